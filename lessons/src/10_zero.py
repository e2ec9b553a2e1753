# %% [markdown]
# # 10 ZeRO
#
# **What if even the optimizer does not fit?** About 55 minutes to read, and 105 for its exercises.
#
# In 2020 Rajbhandari and others counted what a GPU holds when it trains a model with Adam in mixed precision: 16 bytes
# for each parameter, and activations [1]. A model of 7.5 billion parameters therefore needs 120 GB, but their GPUs had
# 32 GB. Data parallelism does not help, because each rank holds all 120 GB. The authors' answer is ZeRO, the Zero
# Redundancy Optimizer. With it, each of 64 GPUs holds only 1.9 GB. What do the GPUs divide among themselves, and what
# does that cost?
#
# After this lesson you can
#
# - say which bytes ZeRO divides among the ranks in each of its three stages, and compute what a rank holds;
# - write the three stages with a reduce-scatter and an all-gather;
# - compute how much bandwidth stage 3 needs, and tell when a network is too slow for it;
# - use stages 1 and 3 in PyTorch, with `ZeroRedundancyOptimizer` and `fully_shard`.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("10_zero")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data.published import ZERO_TABLE_1
from mpcourse.data.published_plans import LENGTH, ZERO_3
from mpcourse.data_parallel import share_of
from mpcourse.large_batch import LARS
from mpcourse.models import mlp
from mpcourse.models.gpt import GPT2, gpt, token_loss
from mpcourse.virtual import GPUS, MPI, Link, compute, run, virtual_gpus
from mpcourse.zero import (
    AloneComm,
    PrefetchedParameters,
    ShardedGradients,
    ShardedOptimizer,
    ShardedParameters,
    Unit,
)
from mpcourse.zero.model_states import held, sent

DATA = digits()
torch.set_num_threads(1)
STAGES = {1: ShardedOptimizer, 2: ShardedGradients, 3: ShardedParameters}

# %% [markdown]
# ## 16 bytes a parameter
#
# In mixed precision (lesson 01), the forward and the backward pass compute with parameters of 16 bits. A parameter
# takes 2 bytes, and so does its gradient. The optimizer keeps three float32 numbers for each parameter: a copy of the
# parameter, and Adam's mean and variance. They take 12 bytes. The copies are called **master weights**. Parameters,
# gradients and optimizer state together are the **model states**.
#
# Why does the optimizer need the copies? A number in bfloat16 has 8 significant bits. An update that is small compared
# with its parameter is rounded away, however often it is repeated.

# %%
short, master = torch.ones((), dtype=torch.bfloat16), torch.ones(())
for _ in range(100):
    short -= 0.001  # an update of a thousandth
    master -= 0.001
print(f"after 100 updates: {short.item():.3f} in bfloat16, {master.bfloat16().item():.3f} from the master weight")

# %% [markdown]
# In data parallelism, all ranks hold the same parameters, average their gradients, and perform the same update. In
# ZeRO, each rank updates only a part of the parameters. With d ranks, each rank then keeps only a shard, which is 1/d
# of the elements:
#
# - of the optimizer's state in stage 1;
# - of the optimizer's state and the gradients in stage 2;
# - of the optimizer's state, the gradients and the parameters in stage 3.
#
# A **stage of ZeRO** has nothing to do with the stages of a pipeline (lesson 04).
#
# The next cell defines a training step of one of many ranks, on a virtual GPU. The rank's communicator is an
# `AloneComm`, which knows the number of ranks, but sends nothing. The tensors hold no data, so even a model of 7.5
# billion parameters (three layers of 50 000 x 50 000) runs on this machine. The virtual GPU counts the bytes of each
# kind.

# %%
ROOMY = replace(GPUS["H100-SXM"], name="an H100 with room for all", memory=2**60, workspace=0)
ADAMW = partial(torch.optim.AdamW, fused=True)  # one kernel an update


def square_layers(layers, width):
    """Return linear layers of width x width, without data."""
    with torch.device("meta"):
        return nn.Sequential(*[nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(layers)])


def one_of_many(stage, ranks, model, x, how=None):
    """Train one rank of many by Adam in mixed precision. Return its box, and what it holds after a backward pass."""
    model = deepcopy(model)
    layerwise = {} if stage == 3 else {"bucket_bytes": 1}  # each layer is sent by itself, as in stage 3
    comm = AloneComm(ranks if stage else 1)  # sharding over one rank changes nothing
    with virtual_gpus(1, ROOMY, dry=True) as box:
        model.to("vgpu:0")
        update = (how or STAGES[stage or 1])(ADAMW, model, comm, master=torch.float32, **layerwise)
        for _ in range(2):  # the first step makes the optimizer's state
            box.reset()
            update.zero_grad()
            model(x.to("vgpu:0")).sum().backward()
            kinds = box.ledger.kinds(0)
            update.step()
    return box, {kind: kinds[kind] for kind in ("parameters", "gradients", "optimizer state")}


def examples(batch, width):
    return torch.empty(batch, width, dtype=torch.bfloat16, device="meta")


# %% [markdown]
# **Predict first.** Four GPUs of 32 GB train a model of 7.5 billion parameters. How many GB of model states does each
# GPU hold in stages 1, 2 and 3? In which stages do they fit?

# %% tags=["answer"]
# answer
print("parameters  ranks   stage 1          stage 2          stage 3      GB: ours, the paper's")
agree = []
for row in ZERO_TABLE_1:
    layers, width = {7.5e9: (3, 50_000), 1e12: (4, 500_000)}[row.parameters]
    rounding = ROUND_HALF_UP if row.parameters == 7.5e9 else ROUND_DOWN  # the paper's 4011 was 4011.7
    ours = []
    for stage, printed in enumerate(row.gigabytes, start=1):
        _, holds = one_of_many(stage, row.ranks, square_layers(layers, width), examples(1, width))
        ours.append(str((Decimal(sum(holds.values())) / 10**9).quantize(Decimal(printed), rounding)))
    agree.append(ours == list(row.gigabytes))
    pairs = "   ".join(f"{a:>5} {b:>5}  " for a, b in zip(ours, row.gigabytes))
    print(f"{row.parameters:.1e} {row.ranks:8}   {pairs}")

# %% tags=["checked"]
# checked: an update of a thousandth is lost in bfloat16, and all 15 numbers of the paper's table agree
assert short == 1 and abs(master - 0.9) < 1e-5
assert agree == [True] * 5

# %% [markdown]
# <details><summary>Why</summary>
#
# The first row is the answer. With P parameters and d ranks, a rank holds 4 P + 12 P/d bytes in stage 1, 2 P + 14 P/d
# in stage 2, and 16 P/d in stage 3. Only in stage 3 do the model states fit into 32 GB, with 2 GB left for activations.
# The other rows have more ranks, but stage 1 always needs more than 4 P bytes, and stage 2 more than 2 P. All 15
# numbers agree with the paper's table 1.
#
# </details>
#
# ## Stage 1: each rank updates its chunk
#
# All trained parameters lie side by side in one flat buffer (or in several, like the buckets of lesson 06). The buffer
# is padded until its length is a multiple of d, and is cut into d chunks of equal length. Rank r owns chunk r. A cut
# may go through a parameter. This does not matter to SGD and Adam, which update each element by itself. LARS and LAMB
# (lesson 09) need the norm of a whole layer, so `ShardedOptimizer` refuses them.

# %%
parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (3,), (3, 1), (1,))]
unit = Unit(parameters, ranks=4)
for rank in range(4):
    owned = ", ".join(f"{end - begin} of parameter {i}" for i, begin, end in unit.owned(rank))
    print(f"rank {rank}: {owned}")
print(f"{unit.length} elements, chunks of {unit.chunk}, {4 * unit.chunk - unit.length} of padding")
try:
    ShardedOptimizer(partial(LARS, lr=0.1), parameters, AloneComm(4))
except ValueError as error:
    print(f"LARS: {error}")


# %% [markdown]
# Exercise [`e10_shard`](../exercises/e10_shard.py): compute which elements of which parameters each rank owns. Some
# parameters are frozen or tied.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e10_shard

# %% [markdown]
# After an ordinary backward pass, a step of stage 1 has three parts.
#
# 1. A reduce-scatter gives each rank the mean gradient of its own chunk, and nothing else.
# 2. Each rank updates its chunk.
# 3. An all-gather sends the new chunks to all ranks.
#
# In lesson 05 these two collectives were the two halves of a ring all-reduce. In each step a rank therefore sends 2 P
# (d - 1)/d values, as in data parallelism, but needs less memory.
#
# Does the model end with the same parameters as without ZeRO? The next cell uses Adam to train an MLP on real digits
# for five steps, in each stage and on one to four ranks. The ranks create different parameters, and then rank 0
# broadcasts its own. At the end we compare the parameters with those of one process that trained on the whole batches.

# %%
def batches(steps):
    generator = torch.Generator().manual_seed(1)
    return [torch.randperm(len(DATA.train), generator=generator)[:60] for _ in range(steps)]


def adam(groups):
    return torch.optim.Adam(groups, lr=0.01)


def step(model, update, chosen):
    update.zero_grad()
    F.cross_entropy(model(DATA.train.images[chosen].double()), DATA.train.labels[chosen]).backward()
    update.step()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def together(comm, stage, steps=5):
    torch.manual_seed(comm.rank)
    model = mlp((64, 33, 10)).double()
    update = STAGES[stage](adam, model, comm)
    for chosen in batches(steps):
        step(model, update, chosen[share_of(len(chosen), comm.rank, comm.size)])
    with update.whole() if stage == 3 else nullcontext():  # gathers the parameters
        return flat(model)


torch.manual_seed(0)
alone = mlp((64, 33, 10)).double()
optimizer = adam(alone.parameters())
for chosen in batches(5):
    step(alone, optimizer, chosen)
results = {}
for stage in STAGES:
    for ranks in (1, 2, 3, 4):
        results[stage, ranks] = run(partial(together, stage=stage), ranks).results
    off = max((results[stage, ranks][0] - flat(alone)).abs().max() for ranks in (1, 2, 3, 4))
    print(f"stage {stage}: 1 to 4 ranks differ from one process by less than 1e-14: {bool(off < 1e-14)}")

# %% tags=["checked"]
# checked: the parameters are those of one process up to rounding, and all ranks have the same bits
for parameters in results.values():
    assert (parameters[0] - flat(alone)).abs().max() < 1e-14
    assert all(torch.equal(parameters[0], other) for other in parameters)


# %% [markdown]
# In all stages, the parameters agree up to rounding.
#
# ## Stage 2: gradients in chunks
#
# In stage 1, each rank still holds all gradients until the optimizer's step. But once a layer's gradients are summed
# over the ranks, a rank needs only its own chunk of the sum. Stage 2 therefore starts a reduce-scatter for each layer
# during the backward pass (as lesson 06 starts an all-reduce for each bucket), and frees the other chunks at once. It
# sends as many values as stage 1. In `ShardedGradients`, the backward pass waits for each sum. In
# `OverlappedGradients`, it computes the next gradients while the sum is under way.
#
# Exercise [`e10_reduce_scatter_gradients`](../exercises/e10_reduce_scatter_gradients.py): give each rank its chunk of
# the mean gradients, and send no more bytes than necessary.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e10_reduce_scatter_gradients

# %% [markdown]
# ## Stage 3: parameters in chunks
#
# A layer needs its parameters only while it computes. In stage 3, the ranks gather a layer's parameters before its
# forward pass and free them afterwards. They do the same for its backward pass. At all other times, a rank holds only
# its own chunk.
#
# Exercise [`e10_gather_layer`](../exercises/e10_gather_layer.py): write a linear layer whose whole weight is in memory
# only while it computes.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e10_gather_layer

# %% [markdown]
# **Predict first.** In stages 1 and 2, a rank sends almost 2 P values in a step. How many values does it send in stage
# 3? How many does it send in each stage if a step accumulates the gradients of 8 backward passes?

# %% tags=["answer"]
# answer
def traffic_of(stage, steps, ranks=4):
    """Return the bytes that each rank sends in so many steps."""
    return run(partial(together, stage=stage, steps=steps), ranks).traffic.sum(1)


P = sum(p.numel() for p in alone.parameters())
counted = {}
for stage in STAGES:
    a_step = (traffic_of(stage, 2) - traffic_of(stage, 1)) / 8  # values of float64; the first step has a broadcast more
    counted[stage] = a_step.mean() / P
    print(
        f"stage {stage}: {counted[stage]:.2f} P values on 4 ranks, by the formula {sent(1, stage, 4):.2f} P; "
        f"with 8 backward passes on 64 ranks {sent(1, stage, 64, passes=8):5.2f} P"
    )

# %% tags=["checked"]
# checked: the traffic is that of the formula, but for padding and a few numbers for norms
assert all(abs(counted[stage] / sent(1, stage, 4) - 1) < 0.03 for stage in STAGES)

# %% [markdown]
# <details><summary>Why</summary>
#
# In a reduce-scatter or an all-gather of P values, each rank sends P (d - 1)/d values. Stages 1 and 2 need one of each.
# Stage 3 needs two all-gathers, one for the forward and one for the backward pass, and one reduce-scatter. So each rank
# sends almost 3 P values.
#
# In stage 1, each rank accumulates the gradients of the 8 passes, and sends them once. In stage 2, a rank has no room
# for whole gradients, so it sends P values in each pass. With the all-gather of the parameters, this makes 9 P values.
# In stage 3, a rank sends 3 P values in each pass, which makes 24 P.
#
# </details>
#
# ## What a rank holds during a step
#
# Eight ranks train four layers of 8 MiB each with Adam in mixed precision.

# %%
layers, x = square_layers(4, 2048), examples(512, 2048)
traced = {stage: one_of_many(stage, 8, layers, x) for stage in range(4)}
lanes = {f"stage {stage}" if stage else "without sharding": box for stage, (box, _) in traced.items()}
plot.memory(lanes, "One rank of eight: each stage divides one more kind", over="operations", beside=True)
None


# %% tags=["checked"]
# checked: model states follow the closed form, each stage has a lower peak, and all stages have the same activations
def most(box, kind):
    """Return how many layers of 8 MiB one kind of memory holds at most."""
    return max(kinds.get(kind, 0) for _, kinds in box.ledger.history(0)) / 2**23


for stage, (_, after) in traced.items():
    formula = held(4 * 2048**2, stage, 8)
    assert all(abs(after[kind] - formula[kind]) < 100 for kind in after)  # Adam counts its steps in a few bytes
peaks = [box.ledger.peak(0).nbytes for box in lanes.values()]
assert peaks == sorted(peaks, reverse=True) and peaks[0] > 4 * peaks[3]
assert most(lanes["stage 2"], "parameters") == 4 and most(lanes["stage 3"], "parameters") == 4 / 8 + 1
assert len({round(most(box, "activations"), 3) for box in lanes.values()}) == 1

# %% [markdown]
# Stage 1 divides the largest part, the optimizer's state. In stage 2, a rank holds a layer's whole gradients only until
# they are summed. In stage 3, it holds a layer's whole parameters only while the layer computes, so the dark blue area
# has steps. The activations are the same in all panels.
#
# The next cell counts the model states of a transformer with the dimensions of the smallest GPT-2, and traces a step on
# 8 sequences of 1024 tokens. (Its head has weights of its own, unlike GPT-2's.)

# %%
V, L, w = GPT2.vocabulary, GPT2.length, GPT2.width
P = (V + L) * w + GPT2.layers * (12 * w**2 + 13 * w) + 2 * w + V * w  # embeddings, blocks, norm, head
with torch.device("meta"):
    model, x = gpt(GPT2).bfloat16(), torch.empty(8, L, dtype=torch.int64)
states = {stage: round(sum(held(P, stage, 8).values()) / 1e9, 3) for stage in range(4)}
print(f"{P / 1e6:.1f} million parameters. GB of model states on each of 8 GPUs, by stage: {states}")
gpt_traced = {stage: one_of_many(stage, 8, model, x) for stage in (0, 3)}
for stage, (box, after) in gpt_traced.items():
    peak = box.ledger.peak(0).nbytes / 1e9
    print(f"stage {stage}, traced: model states {sum(after.values()) / 1e9:.3f} GB, peak {peak:.1f} GB")

# %% tags=["checked"]
# checked: P is right, model states follow the formula to a thousandth, and activations are the same to a hundredth
assert sum(p.numel() for p in model.parameters()) == P
assert all(abs(sum(after.values()) / 1e9 / states[stage] - 1) < 1e-3 for stage, (_, after) in gpt_traced.items())
assert abs(most(gpt_traced[0][0], "activations") / most(gpt_traced[3][0], "activations") - 1) < 0.01

# %% [markdown]
# Stage 3 reduces the model states to an eighth. But the peak falls by less than half, because most of it is
# activations. No stage of ZeRO divides the activations. Checkpointing (lesson 03) keeps fewer of them, and cutting the
# model into parts (lessons 02 to 04) divides them.
#
# ## One layer ahead
#
# `ShardedParameters` waits for each layer's parameters. But the program knows in advance which layer comes next, so it
# can gather that layer's parameters while the current layer computes. This is **prefetching**. It needs memory for the
# parameters of two layers instead of one. In the next cell, four ranks train a model of eight layers. One unit of time
# is the time that a layer's parameters take to arrive. A layer computes for 2 units forward and for 4 units backward.

# %%
WIDTH, LAYERS = 200, 8
UNIT = 3 * (WIDTH * WIDTH / 4) * 4 / 1e9  # seconds: three chunks of float32 come from three other ranks, at 1 GB/s
LINK = Link("1 GB/s", bandwidth=1e9, latency=0.0)


def layer_by_layer(comm, kind, steps=2):
    """Train for some steps. Return when the last one began, in virtual seconds."""
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    update = kind(partial(torch.optim.SGD, lr=0.1), model, comm)
    for layer in model:
        layer.register_forward_pre_hook(lambda *_: compute(comm, 2 * UNIT, "forward"))
        layer.weight.register_hook(lambda _: compute(comm, 4 * UNIT, "backward"))
    for _ in range(steps):
        comm.Barrier()  # all ranks begin at the same time
        begin = MPI.Wtime()
        update.zero_grad()
        model(torch.ones(1, WIDTH)).sum().backward()
        update.step()  # the new chunks are gathered by the next forward pass
    return begin


# %% [markdown]
# **Predict first.** How many units does a step take if each layer waits for its parameters and for the sum of its
# gradients? What is the minimum with prefetching?

# %% tags=["answer"]
# answer
took, idle, events = {}, {}, {}
for name, kind in (("waiting for each layer", ShardedParameters), ("one layer ahead", PrefetchedParameters)):
    done = run(partial(layer_by_layer, kind=kind), 4, LINK)
    begin, end = done.results[0], done.seconds
    step_of = [e for e in done.events if e.start > begin - UNIT / 100]
    computing = [e for e in step_of if e.lane == "rank 2" and e.name in ("forward", "backward")]
    took[name] = (end - begin) / UNIT
    edges = [begin, *[t for e in computing for t in (e.start, e.end)], end]
    idle[name] = [round((b - a) / UNIT, 1) for a, b in zip(edges[::2], edges[1::2]) if b - a > UNIT / 10]
    to_2 = [e._replace(lane="others -> rank 2") for e in step_of if e.lane.endswith("-> rank 2")]
    events[name] = [e for e in step_of if e.lane == "rank 2"] + to_2
    print(f"{name}: {took[name]:.1f} units; {len(idle[name])} waits, the last three {idle[name][-3:]} units long")
plot.timeline(events, "Stage 3 on four ranks, without and with prefetching", lanes=("rank 2", "others -> rank 2"))
None

# %% tags=["checked"]
# checked: waiting takes 72 units, prefetching 52, and prefetching needs memory for two layers
assert round(took["waiting for each layer"], 1) == 72 and round(took["one layer ahead"], 1) == 52
assert idle["one layer ahead"] == [1, 1, 2]
ahead, _ = one_of_many(3, 8, layers, examples(512, 2048), how=PrefetchedParameters)
assert most(ahead, "parameters") == 4 / 8 + 2

# %% [markdown]
# <details><summary>Why</summary>
#
# Computing takes 8 x (2 + 4) = 48 units. Without prefetching, each layer waits three times, one unit each time: for its
# parameters in the forward pass and in the backward pass, and for the sum of its gradients. This makes 48 + 8 x 3 = 72
# units.
#
# With prefetching, three waits are left. The first layer of each pass waits for its parameters, and at the end all
# ranks wait for the last sum. This makes at least 48 + 3 = 51 units. Our step takes 52, because the last sum takes two.
# During this sum each rank sends to all others at the same time, and some messages wait while their receiver is busy
# with an earlier message. The figure shows rank 2, which finishes last.
#
# </details>
#
# ## The bandwidth that stage 3 needs
#
# Prefetching can hide all messages only if sending takes no longer than computing. A GPU that sees t tokens performs
# about 6 P t FLOPs. At X FLOP/s, this takes 6 P t / X seconds. In this time, the GPU must send 3 P values of 2 bytes,
# that is, 6 P bytes. It therefore needs a bandwidth of **X / t bytes a second**. A GPU that recomputes activations
# (lesson 03) performs 8 P t FLOPs, and needs only 6/8 of this bandwidth.
#
# This bandwidth does not depend on the size of the model, but on the number of tokens that a GPU sees in each pass.
# Even with more bandwidth, some messages may still make ranks wait.
#
# The next cell computes this bandwidth for two GPUs. The A100 reaches 144 TFLOP/s with recomputation, as in the next
# section. The H100 reaches 400 TFLOP/s, as each of Meta's 16 384 H100s did [2]. Their network cards carry 25 and 50
# GB/s.

# %%
for t in (2048, 4096, 8192, 16_384):
    a100, h100 = 6 / 8 * 144e12 / t / 1e9, 400e12 / t / 1e9
    print(f"{t:6} tokens in a pass: an A100 needs {a100:4.1f} GB/s, an H100 {h100:5.1f} GB/s")

# %% [markdown]
# Stages 1 and 2 need only two thirds of this bandwidth.
#
# ## A riddle from 2021
#
# Narayanan and others trained GPT models of 174.6 and 529.6 billion parameters on A100s with DeepSpeed's stage 3 [3].
# Training the smaller model would take 90 days on 384 GPUs, 74 days on 768, and 74 days on 1536, with the same batch.
# Doubling the GPUs from 768 to 1536 did not save a single day.
#
# **Predict first.** Which part of a step takes as long on 1536 GPUs as on 768 GPUs? How many bytes does a GPU send in
# this part?

# %% tags=["answer"]
# answer
rates = {}
print("parameters   GPUs  days: theirs, from their FLOP/s  seconds a step  GB a GPU sends  GB/s if it only sends")
for row in ZERO_3:
    P, tokens = row.parameters * 1e9, row.batch * LENGTH
    seconds = 8 * P * tokens / (row.gpus * row.teraflops * 1e12)
    days, nbytes = 300e9 / tokens * seconds / 86_400, 3 * P * 2
    rates[row.parameters, row.gpus] = nbytes / seconds / 1e9
    print(
        f"{row.parameters:10} {row.gpus:6} {row.days:12} {days:20.0f} {seconds:15.1f} {nbytes / 1e9:15.0f} "
        f"{rates[row.parameters, row.gpus]:22.1f}"
    )
nbytes = 3 * 174.6e9 * 2
print(f"1048 GB at 16.1 GB/s: {nbytes / 16.1e9:.0f} s; at 8 x 25 GB/s: {nbytes / 200e9:.1f} s")
fastest = 8 * 174.6e9 * 1536 * LENGTH / (384 * 271e12)
print(f"computing on 384 GPUs at 271 TFLOP/s: {fastest:.0f} s")

# %% tags=["checked"]
# checked: each GPU sends the same on any number of GPUs, and the effective rates lie between 16 and 18 GB/s
assert rates[174.6, 768].__round__(1) == rates[174.6, 1536].__round__(1) == 16.1
assert 16 < min(rates[529.6, n] for n in (1120, 2240)) and max(rates.values()) < 18
assert round(nbytes / 200e9, 1) == 5.2 and round(fastest) == 42

# %% [markdown]
# <details><summary>Why</summary>
#
# Sending takes the same time. In stage 3, each GPU sends 6 P bytes in a step, here 1048 GB, on any number of GPUs. With
# twice the GPUs, only the computing time of each GPU is halved.
#
# </details>
#
# What do we know?
#
# - On 768 GPUs, a step took 65.0 s. If the whole step was spent on sending, each GPU sent at an effective rate of 16.1
#   GB/s. The same rate would explain the 65.0 s on 1536 GPUs. The two largest runs of the other model imply 17.9 and
#   17.6 GB/s.
# - The run on 384 GPUs does not test this rate. Its step took 79.5 s, so computing may have hidden 65 s of sending. But
#   the only computing rate that we know, 144 TFLOP/s, was measured over the whole step. So this argument is circular.
#   At 271 TFLOP/s, the highest rate that Bekman measured for matrix products on an A100 [4], computing would take only
#   42 s and could not hide 65 s.
# - The cause of the 16 GB/s is not known. A node had eight GPUs and eight network cards of 25 GB/s. If a ring through
#   all GPUs used all eight cards, 1048 GB would take 5.2 s.
#
# Some reports are clues to the cause. NCCL, NVIDIA's library of collectives, could already use several cards at once:
# in April 2021, a user measured 600 Gbit/s with eight cards of 100 Gbit/s [5]. But DeepSpeed's stage 3 was slow even
# within one node. In June 2021, a user reported that a forward pass took 480 ms in stage 3 and 60 ms in stage 2 [6]. In
# October 2021, a change to DeepSpeed raised the rate of stage 3 from 54.9 to 92.1 TFLOP/s on 64 A100s [7]. So 16 GB/s
# describes one program on one machine, not a limit of stage 3. Whatever the cause, a GPU's traffic does not fall when
# there are more GPUs.
#
# What helps if the network is too slow? Stages 1 and 2 send less, but leave all parameters on each GPU. A larger batch
# gives each GPU more tokens, but may cost accuracy (lesson 09). **Hybrid sharding** divides the model states only
# within a node, where links are fast. Between nodes, each GPU only all-reduces its chunk of the gradients. Each of a
# node's eight GPUs then holds 16/8 bytes a parameter. With 40 billion parameters, this fills 80 GB and leaves nothing
# for activations. If 20 GB are left for activations, 30 billion parameters fit.
#
# ## A published run on H100s
#
# torchtitan is PyTorch's library for training large models. Its authors trained Llama 3.1 8B with FSDP, which is stage
# 3, and published the memory and the speed [8]. The GPUs were H100s with 96 GB, each with a network card of 400 Gbit/s.
# Each GPU saw two sequences in a step. We assume 8192 tokens in each sequence, as in torchtitan's configuration for
# this model. FSDP shards parameters, gradients and Adam's two moments in float32, which is again 16 bytes a parameter.
# With N parameters, a GPU should hold 16 N (1/8 - 1/128) bytes less in the run on 128 GPUs than in the run on 8.

# %%
N = 8.03e9
less = 16 * N * (1 / 8 - 1 / 128) / 2**30
for name, (eight, many), rate in (("eager", (82.4, 67.0), 5605), ("compiled", (77.0, 62.0), 6514)):
    step_seconds = 2 * 8192 / rate
    print(f"{name:8} {eight} -> {many} GiB: {eight - many:.1f} GiB less, by the formula {less:.1f} GiB;", end=" ")
    print(f"needed {6 * N / step_seconds / 1e9:.0f} to {8 * N / step_seconds / 1e9:.0f} GB/s of 50")
print(f"tokens/s of each GPU on 128 instead of 8: {5605 / 5762 - 1:+.1%} (eager), {6514 / 6667 - 1:+.1%} (compiled)")

# %% tags=["checked"]
# checked: the formula explains nine tenths of the differences in memory
assert less < 77.0 - 62.0 < 82.4 - 67.0 < 1.11 * less


# %% [markdown]
# The formula explains nine tenths of the difference. The tables do not show what accounts for the rest. In a step, a
# GPU sends 6 bytes a parameter if gradients are summed in 16 bits, and 8 bytes if in float32. In both cases it needs at
# most about half of its card's bandwidth. FSDP can therefore hide the traffic, and the speed falls by less than 3 %
# from 8 to 128 GPUs.
#
# Which stage does your model need? Move the sliders. Activations are not counted.

# %%
def fits(billions=7.5, ranks=8, capacity=80):
    rows = {f"stage {stage}" if stage else "no sharding": held(billions * 1e9, stage, ranks) for stage in range(4)}
    enough = sum(sum(row.values()) < capacity * 1e9 for row in rows.values())  # in how many of the four rows
    where = ("in no stage", "in stage 3 only", "from stage 2 on", "from stage 1 on", "without sharding")[enough]
    title = f"{billions:g} billion parameters, {ranks} GPUs of {capacity} GB: model states fit {where}"
    return plot.memory_breakdown(rows, title, "GB", capacity * 1e9)


plot.sliders(
    fits,
    billions=[1.5, 7.5, 70, 175, 405],
    ranks=[1, 2, 4, 8, 16, 64, 256, 1024],
    capacity=[16, 32, 80, 192],
)

# %% [markdown]
# ## The same in PyTorch
#
# `ZeroRedundancyOptimizer` is stage 1, and `fully_shard` (FSDP2) is stage 3. `MixedPrecisionPolicy` chooses the dtype
# of the forward and backward pass, and the dtype in which gradients are summed. `train` takes three steps with a small
# GPT of 216 448 parameters. The program after it trains this model in both stages, in two processes. On GPUs, use
# "nccl" instead of "gloo", and move each process's model and batches to its own GPU.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/small_gpt.py
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from mpcourse.models.gpt import gpt, token_loss


def new(dtype):
    torch.manual_seed(0)  # the same model on all ranks
    return gpt().bfloat16().to(dtype)


def train(name, model, optimizer):
    for tokens in torch.randint(96, (3, 8, 65), generator=torch.Generator().manual_seed(1)):
        own = tokens.chunk(dist.get_world_size())[dist.get_rank()]
        optimizer.zero_grad()
        token_loss(model(own[:, :-1]), own[:, 1:]).backward()
        optimizer.step()
    states = getattr(optimizer, "optim", optimizer).state.values()
    kept = [*model.parameters(), *(t for state in states for t in state.values() if t.ndim)]
    nbytes = sum((t.to_local() if isinstance(t, DTensor) else t).nbytes for t in kept)
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    if dist.get_rank() == 0:
        print(f"{name}: {nbytes / sum(p.numel() for p in whole):.1f} bytes a parameter", flush=True)
        torch.save(whole, f"scratch/{name}.pt")


# %% tags=["nbval-ignore-output"]
# %%writefile scratch/zero.py
import time

import torch
import torch.distributed as dist
from small_gpt import new, train
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(new(torch.float64))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
train("ZeroRedundancyOptimizer", model, optimizer)

model = new(torch.float32)
bfloat16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
for layer in model:
    fully_shard(layer, mp_policy=bfloat16)  # gathers the parameters of a layer together
fully_shard(model, mp_policy=bfloat16)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # after fully_shard: a sharded state
train("fully_shard", model, optimizer)
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()

# %%
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/zero.py 2> scratch/torchrun.log

# %% [markdown]
# The program prints how many bytes of parameters and of Adam's two moments rank 0 keeps. The model of stage 1 is in
# float64, where they take 24 bytes a parameter. The two ranks divide the moments, which leaves 8 + 16/2 bytes on each.
# In stage 3, they divide everything. Here parameters and moments are in float32, which leaves 12/2 bytes.
#
# The next cell trains the same model with our classes on two virtual ranks, and compares the parameters.

# %%
torch.manual_seed(0)
start = gpt().bfloat16()
tokens_of = torch.randint(96, (3, 8, 65), generator=torch.Generator().manual_seed(1))


def ours(comm, kind, dtype, **master):
    model = deepcopy(start).to(dtype)
    update = kind(adam, model, comm, **master)
    for tokens in tokens_of:
        own = tokens.chunk(comm.size)[comm.rank]
        update.zero_grad()
        token_loss(model(own[:, :-1]), own[:, 1:]).backward()
        update.step()
    with update.whole() if kind is ShardedParameters else nullcontext():
        return flat(model)


largest = {}
for name, kind, dtype, master in (
    ("ZeroRedundancyOptimizer", ShardedOptimizer, torch.float64, {}),
    ("fully_shard", ShardedParameters, torch.bfloat16, {"master": torch.float32}),
):
    mine = run(partial(ours, kind=kind, dtype=dtype, **master), 2).results[0]
    theirs = torch.cat([p.flatten() for p in torch.load(f"scratch/{name}.pt")]).to(dtype)
    largest[name] = (mine - theirs).abs().max().item()
    print(f"{name}: differs from {kind.__name__} by less than 1e-14: {largest[name] < 1e-14}")

# %% tags=["checked"]
# checked: PyTorch's parameters are ours up to rounding, and in bfloat16 bit for bit
assert max(largest.values()) < 1e-14 and largest["fully_shard"] == 0

# %% [markdown]
# The results agree, but PyTorch works differently in four respects.
#
# - `ZeroRedundancyOptimizer` gives each rank whole parameters, so the shares may be unequal. Here
#   `DistributedDataParallel` all-reduces all gradients, and then each rank broadcasts the parameters that it has
#   updated. So a rank sends almost 3 P values instead of 2 P.
# - `fully_shard` cuts each parameter along its first axis. The parameter keeps its name and its shape as a DTensor, a
#   tensor that is divided among ranks. The shards are the float32 master weights. `fully_shard` casts them to bfloat16
#   before it gathers them.
# - Our classes sum gradients in the dtype of the parameters, so the program above has `reduce_dtype=torch.bfloat16`. In
#   practice, `torch.float32` is safer, but adds 2 bytes a parameter to the traffic.
# - `fully_shard` prefetches by itself. With `reshard_after_forward=False`, the parameters stay in memory after the
#   forward pass, and are gathered only once. With `CPUOffloadPolicy`, the shards stay in the host's memory.
#
# ## The reference implementation
#
# The cell shows the functions that compute which elements a rank owns, perform the optimizer's step of stage 1, and
# gather and free parameters in stage 3. All files are in `mpcourse/zero`.

# %%
from mpcourse.common.source import reference

reference(Unit.owned, ShardedOptimizer.step, ShardedParameters._before_forward, ShardedParameters._after_forward)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `ShardedOptimizer` | `ZeroRedundancyOptimizer`; Megatron's distributed optimizer; DeepSpeed's `stage: 1` |
# | `ShardedGradients`, `OverlappedGradients` | DeepSpeed's `stage: 2` |
# | `ShardedParameters`, `PrefetchedParameters` | `fully_shard` of each layer; DeepSpeed's `stage: 3` |
# | `within_nodes` | HSDP: `fully_shard` on a mesh with two axes |
# | `master=torch.float32` | `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` on float32 parameters |
# | `ShardedCheckpointer` (appendix) | `torch.distributed.checkpoint` |
#
# 1. Samyam Rajbhandari and others, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, 2020, table
#    1, <https://arxiv.org/abs/1910.02054> (read in transcriptions)
# 2. Llama Team, *The Llama 3 Herd of Models*, 2024, table 4, <https://arxiv.org/abs/2407.21783>
# 3. Deepak Narayanan and others, *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*,
#    2021, table 2, <https://arxiv.org/abs/2104.04473> (read in a transcription)
# 4. Stas Bekman, *Machine Learning Engineering Open Book*, 2024, <https://github.com/stas00/ml-engineering>
# 5. NVIDIA/nccl, issues *How will NCCL behave when there are multiple NICs on a node?*, 2020,
#    <https://github.com/NVIDIA/nccl/issues/412>, and *Nccl-tests bandwidth confirmation*, 2021,
#    <https://github.com/NVIDIA/nccl/issues/495>
# 6. DeepSpeed, issue *ZeRO3 is slow, even with nvlink for all-gather*, 2021,
#    <https://github.com/deepspeedai/DeepSpeed/issues/1174>
# 7. DeepSpeed, pull request *Various ZeRO Stage3 Optimizations + Improvements (including bfloat16 support)*, 2021,
#    <https://github.com/deepspeedai/DeepSpeed/pull/1453>
# 8. The torchtitan team, *llama3_h100_202412_torchtitan.md*, 2024, tables 1 and 3,
#    <https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md>
#
# ## Problems
#
# **1.** A model of 70 billion parameters is trained on GPUs of 80 GB. In which stages do its model states fit, and what
# is the minimum number of GPUs? What is the minimum if 20 GB of each GPU are left for activations?
#
# **2.** 16 384 H100s, each at 400 TFLOP/s, train a model with stage 3 alone, without recomputation. A step has 16.8
# million tokens. What bandwidth does each GPU need? How many tokens must a step have if each GPU has only 50 GB/s?

# %% tags=["answer"]
# answer
for stage in (1, 2):
    print(f"1. Stage {stage} leaves at least {sum(held(70, stage, 1e9).values()):.0f} GB on each GPU.")
print(f"   Stage 3 needs 16 * 70 GB / d: {-(-16 * 70 // 80)} GPUs, or {-(-16 * 70 // 60)} if 20 GB are left.")
each, least = 16.8e6 / 16_384, 400e12 / 50e9
print(f"2. {each:.0f} tokens on each GPU: X / t = {400e12 / each / 1e9:.0f} GB/s")
print(f"   50 GB/s are enough for t = {least:.0f} tokens on each GPU, {least * 16_384 / 1e6:.0f} million in a step")

# %% [markdown]
# ## What you found
#
# - Adam in mixed precision needs 16 bytes a parameter. On each of d ranks, the stages of ZeRO leave 4 P + 12 P/d,
#   2 P + 14 P/d and 16 P/d bytes. They do not divide activations.
# - A step consists of a reduce-scatter, an update of the rank's own chunk, and an all-gather. Stages 1 and 2 send
#   almost 2 P values, as data parallelism does. Stage 3 gathers twice and sends almost 3 P values. In every stage, the
#   model ends with the same parameters as in one process.
# - A GPU that computes at X FLOP/s and sees t tokens in a pass needs a bandwidth of at least X / t in stage 3, for any
#   model.
# - `ZeroRedundancyOptimizer` and `fully_shard` end with the same parameters as our classes.
#
# The appendix [10, ZeRO measured](appendix/10_measured.ipynb) compares the formulas with published and measured memory.
# It also saves a training run as shards, so that a different number of ranks can continue it.
#
# Next, lesson 12 combines data parallelism, pipelines and tensor parallelism.
