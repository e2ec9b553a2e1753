# %% [markdown]
# # 11 ZeRO
#
# **What if even the optimizer does not fit?** About 50 minutes to read, and 80 for its exercises.
#
# In 2020 Rajbhandari et al. counted what a GPU holds of a model that is trained by Adam in mixed precision: 16 bytes a
# parameter, and activations. A model of 7.5 billion parameters needs 120 GB, and their GPUs had 32. Data parallelism
# does not help: each of its ranks holds all of it. Their answer is ZeRO, the Zero Redundancy Optimizer: 64 ranks share
# the 120 GB out, in three stages, and by the paper's count each then holds 31.4, 16.6 or 1.88 GB. What do the ranks
# share out, and what does it cost?

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("10_zero")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import tempfile
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
from mpcourse.data_parallel import share_of
from mpcourse.large_batch import LARS
from mpcourse.models import mlp
from mpcourse.virtual import GPUS, MPI, Link, compute, run, virtual_gpus
from mpcourse.zero import (
    AloneComm,
    PrefetchedParameters,
    ShardedCheckpointer,
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
# Mixed precision (lesson 01): forward and backward compute with parameters of 16 bits (2 bytes), and give gradients of
# 16 bits (2 bytes). The optimizer has float32 copies of the parameters, the **master weights**, and Adam a mean and a
# variance in float32, too (12 bytes together). Why the copies? A number in bfloat16 has 8 significant bits. A small
# update of a large number is rounded away, again in each step.

# %%
short, master = torch.ones((), dtype=torch.bfloat16), torch.ones(())
for _ in range(100):
    short -= 0.001  # an update of a thousandth
    master -= 0.001
print(f"after 100 updates: {short.item():.3f} in bfloat16, {master.bfloat16().item():.3f} from the master weight")
assert short == 1 and abs(master - 0.9) < 1e-5

# %% [markdown]
# **Predict first.** All ranks of data parallelism have the same parameters and the same mean of gradients, and so make
# the same update. Instead, each of d ranks could update 1/d of the parameters, and send these to the others. Which of
# the 16 bytes would a rank still need for all parameters, which for its own part alone, and at which moments of a step?
#
# Each **stage of ZeRO** shares out one kind more. (These are not the stages of a pipeline.) A rank keeps only its
# shard, 1/d, of the optimizer's state (stage 1), of the gradients too (stage 2), of the parameters too (stage 3). Here
# is one rank of many on a virtual GPU. Its tensors hold no data, so that 7.5 billion parameters fit this machine. What
# it holds after backward, counted by the memory trace, stands beside the paper's table 1 (taken from transcriptions).

# %%
ROOMY = replace(GPUS["A100-SXM4"], name="a GPU with room", memory=2**60, workspace=0)
ADAMW = partial(torch.optim.AdamW, fused=True)  # one kernel an update


def one_of_many(stage, ranks, layers, width, batch=1, how=None):
    """A training step of one rank of many, by Adam in mixed precision; its box, and what it holds after backward."""
    with torch.device("meta"):
        parts = [(nn.Linear(width, width, bias=False, dtype=torch.bfloat16), nn.ReLU()) for _ in range(layers)]
        model = nn.Sequential(*[module for pair in parts for module in pair])
    layerwise = {} if stage == 3 else {"bucket_bytes": 1}  # each layer is sent by itself, as in stage 3
    comm = AloneComm(ranks if stage else 1)  # sharded over one rank, nothing is
    with virtual_gpus(1, ROOMY, dry=True) as box:
        model.to("vgpu:0")
        update = (how or STAGES[stage or 1])(ADAMW, model, comm, master=torch.float32, **layerwise)
        for _ in range(2):  # the first step makes the optimizer's state
            box.reset()
            update.zero_grad()
            model(torch.empty(batch, width, dtype=torch.bfloat16, device="vgpu:0")).sum().backward()
            kinds = box.ledger.kinds(0)
            update.step()
    return box, {kind: kinds[kind] for kind in ("parameters", "gradients", "optimizer state")}


print("parameters  ranks   stage 1          stage 2          stage 3      GB: ours, the paper's")
for row in ZERO_TABLE_1:
    layers, width = {7.5e9: (3, 50_000), 1e12: (4, 500_000)}[row.parameters]
    rounding = ROUND_HALF_UP if row.parameters == 7.5e9 else ROUND_DOWN  # the paper's 4011 was 4011.7
    ours = []
    for stage, printed in enumerate(row.gigabytes, start=1):
        nbytes = sum(one_of_many(stage, row.ranks, layers, width)[1].values())
        ours.append(str((Decimal(nbytes) / 10**9).quantize(Decimal(printed), rounding)))
    pairs = "   ".join(f"{a:>5} {b:>5}  " for a, b in zip(ours, row.gigabytes))
    print(f"{row.parameters:.1e} {row.ranks:8}   {pairs}")
    assert ours == list(row.gigabytes)

# %% [markdown]
# All 15 numbers agree. With P parameters and d ranks they are 4 P + 12 P/d, 2 P + 14 P/d and 16 P/d bytes.
#
# ## Stage 1: who owns which elements
#
# All trained parameters stand side by side in one flat buffer, or in several, as the buckets of lesson 06. It is padded
# until its length is a multiple of d, and cut into d equal chunks. A cut may go through the middle of a parameter: an
# optimizer such as Adam or SGD computes each element by itself, so it gives the same numbers. LARS and LAMB of lesson
# 09 would not: they need the norm of a whole layer.

# %%
parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (3,), (3, 1), (1,))]
unit = Unit(parameters, ranks=4)
for rank in range(4):
    owned = ", ".join(f"{end - begin} of parameter {i}" for i, begin, end in unit.owned(rank))
    print(f"rank {rank}: {owned}")
print(f"{unit.length} elements, chunks of {unit.chunk}, {4 * unit.chunk - unit.length} of padding")
assert [sum(end - begin for _, begin, end in unit.owned(rank)) for rank in range(4)] == [4, 4, 4, 1]
try:
    ShardedOptimizer(partial(LARS, lr=0.1), parameters, AloneComm(4))
except ValueError as error:
    print(f"LARS: {error}")
else:
    raise AssertionError("LARS should have been refused")


# %% [markdown]
# Exercise [`e10_shard`](../exercises/e10_shard.py): which elements of which parameters belong to whom, also where
# parameters are frozen or tied.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e10_shard

# %% [markdown]
# A step of stage 1: backward as always. A reduce-scatter gives each rank the mean gradient of its own chunk, and no
# more. The rank updates this chunk. An all-gather sends the new chunks to all. In lesson 05 these were the two halves
# of a ring all-reduce. So stage 1 sends what data parallelism sends, 2 P (d - 1)/d values on each rank, and holds less.
#
# Does it learn the same? Real digits, an MLP, Adam, five steps, one to four ranks that begin with different parameters,
# against one process on the whole batch.

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
    torch.manual_seed(comm.rank)  # rank 0's parameters are broadcast
    model = mlp((64, 33, 10)).double()
    update = STAGES[stage](adam, model, comm)
    for chosen in batches(steps):
        step(model, update, chosen[share_of(len(chosen), comm.rank, comm.size)])
    if stage < 3:
        return flat(model)
    with update.whole():
        return flat(model)


torch.manual_seed(0)
alone = mlp((64, 33, 10)).double()
optimizer = adam(alone.parameters())
for chosen in batches(5):
    step(alone, optimizer, chosen)
for stage in STAGES:
    off = 0.0
    for ranks in (1, 2, 3, 4):
        results = run(partial(together, stage=stage), ranks).results
        assert all(torch.equal(results[0], other) for other in results)
        off = max(off, (results[0] - flat(alone)).abs().max().item())
    assert off < 1e-14
    print(f"stage {stage}: on 1 to 4 ranks the parameters differ from one process by less than 1e-14")


# %% [markdown]
# Equal up to rounding, in all stages. (60 examples divide by 1, 2, 3 and 4; for other batches see lesson 06.)
#
# ## Stage 2: gradients in chunks
#
# In stage 1 each rank still has all gradients until the step. But once a layer's gradients are summed, a rank needs its
# own chunk alone. Stage 2 starts the reduce-scatter during backward, layer by layer (as the buckets of lesson 06), and
# frees the rest at once. The values sent are the same.
#
# Exercise [`e10_reduce_scatter_gradients`](../exercises/e10_reduce_scatter_gradients.py): each rank gets its chunk of
# the mean, and no more is sent than that takes.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e10_reduce_scatter_gradients

# %% [markdown]
# ## Stage 3: parameters in chunks
#
# A layer's parameters are needed while this layer computes. Stage 3 gathers them before its forward, frees them after
# it, gathers them again before its backward, and frees them after it. In between a rank has its chunk alone.
#
# Exercise [`e10_gather_layer`](../exercises/e10_gather_layer.py): a linear layer whose weight is there while it
# computes, and only then.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e10_gather_layer

# %% [markdown]
# **Predict first.** A rank of stages 1 and 2 sends 2 P values in a step, nearly. How many in stage 3?

# %%
def traffic_of(stage, steps, ranks=4):
    """Bytes that each rank has sent after so many steps, all together."""
    return run(partial(together, stage=stage, steps=steps), ranks).traffic.sum(1)


P = sum(p.numel() for p in alone.parameters())
for stage in STAGES:
    a_step = (traffic_of(stage, 2) - traffic_of(stage, 1)) / 8  # values of float64; the first step has a broadcast more
    formula = sent(P, stage, 4)
    print(f"stage {stage}: {a_step.mean():6.0f} values a rank and step; closed form {formula:6.0f}, of P = {P}")
    assert abs(a_step.mean() / formula - 1) < 0.03  # padding, and a few numbers for norms

# %% [markdown]
# 3 P instead of 2 P: parameters are gathered twice, once for forward and once for backward, and gradients are
# reduce-scattered once. Stages 1 and 2 gather the parameters once, after the update.
#
# With gradient accumulation the stages differ more. In stage 1 gradients add up on each rank, and are sent once a step.
# In stage 2 there is no room for that: each backward pass sends its own. Stage 3 gathers in each pass, too.

# %%
for stage in STAGES:
    print(f"stage {stage}: {sent(1, stage, 64, passes=8):5.2f} P values in a step of 8 backward passes on 64 ranks")
assert [round(sent(1, stage, 64, passes=8) * 64 / 63) for stage in STAGES] == [2, 9, 24]


# %% [markdown]
# What does a rank hold during the step? Eight ranks, Adam in mixed precision, four layers of 8 MiB each:

# %%
def most(box, kind):
    """The largest number of layers that one kind holds at once, of the layers of 8 MiB."""
    return max(kinds.get(kind, 0) for _, kinds in box.ledger.history(0)) / 2**23


lanes = {}
for stage in range(4):
    box, after = one_of_many(stage, 8, layers=4, width=2048, batch=512)
    lanes["without sharding" if stage == 0 else f"stage {stage}"] = box
    formula = held(4 * 2048**2, stage, 8)
    assert all(abs(after[kind] - formula[kind]) < 100 for kind in after)  # Adam counts its steps in a few bytes
peaks = [box.ledger.peak(0).nbytes for box in lanes.values()]
assert peaks == sorted(peaks, reverse=True) and peaks[0] > 4 * peaks[3]
assert most(lanes["stage 2"], "parameters") == 4 and most(lanes["stage 3"], "parameters") == 4 / 8 + 1
assert len({round(most(box, "activations"), 3) for box in lanes.values()}) == 1
plot.memory(lanes, "One rank of eight: each stage shares out one kind more", over="operations", beside=True)
None

# %% [markdown]
# Stage 1 takes the largest part away. In stage 2 a layer's gradients are whole only until they are summed; chunks of
# them are left. In stage 3 a layer's parameters are whole only while it computes: these are the steps in dark blue.
# Activations are what they were: no stage of ZeRO touches them. Checkpointing (lesson 03) and cutting the model
# (lessons 02 to 04, 10) do.
#
# ## One layer ahead
#
# Stage 3 waits for each layer's parameters. Which layer comes next is known in advance: its parameters can be on their
# way while this one computes. That is **prefetching**. It takes memory for two layers instead of one. Four ranks; a
# layer computes twice as long forward, and four times as long backward, as its parameters take to arrive.

# %%
WIDTH, LAYERS = 200, 8
ARRIVE = 3 * (WIDTH * WIDTH / 4) * 4 / 1e9  # seconds: three chunks of float32 come from three other ranks, at 1 GB/s
LINK = Link("1 GB/s", bandwidth=1e9, latency=0.0)


def layer_by_layer(comm, kind, steps=2):
    """When the last of some steps began, in virtual seconds."""
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    update = kind(partial(torch.optim.SGD, lr=0.1), model, comm)
    for layer in model:
        layer.register_forward_pre_hook(lambda *_: compute(comm, 2 * ARRIVE, "forward"))
        layer.weight.register_hook(lambda _: compute(comm, 4 * ARRIVE, "backward"))
    for _ in range(steps):
        begin = MPI.Wtime()
        update.zero_grad()
        model(torch.ones(1, WIDTH)).sum().backward()
    return begin, MPI.Wtime()


took, events = {}, {}
for name, kind in (("waiting for each layer", ShardedParameters), ("one layer ahead", PrefetchedParameters)):
    done = run(partial(layer_by_layer, kind=kind), 4, LINK)
    begin, end = done.results[0]
    took[name] = (end - begin) / ARRIVE
    step_of = [e for e in done.events if begin < (e.start + e.end) / 2 < end]
    to_0 = [e._replace(lane="others -> rank 0") for e in step_of if e.lane.endswith("-> rank 0")]
    events[name] = [e for e in step_of if e.lane == "rank 0"] + to_0
computing = LAYERS * (2 + 4)
print({name: round(seconds, 1) for name, seconds in took.items()}, f"of them computing: {computing}")
assert abs(took["waiting for each layer"] - (computing + 3 * LAYERS)) < 0.1
assert computing < took["one layer ahead"] < computing + 5
ahead, _ = one_of_many(3, 8, layers=4, width=2048, how=PrefetchedParameters)
assert most(ahead, "parameters") == 4 / 8 + 2
title = "Stage 3 on four ranks: one layer ahead, computing hides most messages"
plot.timeline(events, title, lanes=("rank 0", "others -> rank 0"))
None

# %% [markdown]
# Waiting, a step takes 72 times as long as a layer's parameters take to arrive, 48 of them computing. One layer ahead
# it takes 52. What is not hidden is the first gather of each direction, and the last sum of gradients. In forward each
# message bar is a gather; in backward there are gathers and sums.
#
# ## The bandwidth below which stage 3 loses
#
# Prefetching hides messages only as long as computing takes longer. A GPU that sees t tokens in a step computes 6 P t
# FLOPs (8 P t if activations are computed again), at X FLOP/s. It sends 3 P values of 2 bytes, 6 P bytes. P stands on
# both sides: the bandwidth that stage 3 needs does not depend on the size of the model. It is 6 P / (6 P t / X), that
# is X / t bytes a second, or 6/8 X / t with recomputation. What counts is how many tokens each GPU sees before it
# sends: with gradient accumulation those of one pass. With less bandwidth, sending takes longer than computing, however
# far ahead it begins. With more, not all can be hidden yet: with recomputation, forward alone needs X / t, for it has a
# third of the messages and a quarter of the computing.
#
# Lesson 12 asked why 768 and 1536 GPUs both needed 74 days. Their batch was the same. (X is what 384 GPUs reached.)

# %%
P, X, BATCH = 174.6e9, 144e12, 1536 * 2048  # parameters; FLOP/s; tokens of a step
REACHED, CARD = 16.1, 25.0  # GB/s: lesson 12 took the first from the 74 days
gpus = [192, 384, 768, 1536, 3072]
needed = {n: 6 / 8 * X / (BATCH / n) / 1e9 for n in gpus}
computes = {n: 8 * P * (BATCH / n) / X for n in gpus}
sends = 6 * P / (REACHED * 1e9)
for n, bandwidth in needed.items():
    print(
        f"{n:5} GPUs: {BATCH / n:5.0f} tokens each; needed {bandwidth:5.1f} GB/s; computing {computes[n]:5.1f} s, "
        f"sending {sends:.1f} s; {300e9 / BATCH * max(computes[n], sends) / 86_400:3.0f} days"
    )
assert needed[384] < REACHED < CARD < needed[768] < needed[1536]
assert computes[384] > sends > computes[768] > computes[1536] and round(sends) == 65
plot.lines(
    gpus,
    {
        "stage 3, 3 P values": list(needed.values()),
        "stages 1 and 2, 2 P values": [2 / 3 * bandwidth for bandwidth in needed.values()],
    },
    "GPUs that share a batch of 3.1 million tokens",
    "GB/s needed at least",
    "From 768 GPUs on, ZeRO-3 needs more than a card carries",
    {"a card: 25 GB/s": CARD, "reached: 16.1 GB/s": REACHED},
    log_y=True,
)
within, whole = sum(held(P, 3, 8).values()), held(P, 2, 384)["parameters"]
print(f"on each GPU: {within / 1e9:.0f} GB in stage 3 over 8 GPUs; {whole / 1e9:.0f} GB of parameters in stage 1 or 2")
assert round(within / 1e9) == round(whole / 1e9) == 349
assert sum(held(40e9, 3, 8).values()) == 80e9

# %% [markdown]
# On 384 GPUs each sees 8192 tokens a step: 13.2 GB/s are needed at least, and 16.1 were reached. On 768 it sees 4096,
# and 26.4 would be needed: more than the network card carries. From there on twice the GPUs compute half as long each,
# and send as much. So a step takes the same time, and training the same 72 days (74 in the paper).
#
# We count one ring through all GPUs, on which one card of each node carries all that the node sends. Lesson 12 took
# this for DeepSpeed of 2021. Where a node's eight cards share it, as with NCCL today, each needs an eighth.
#
# What helps? Stages 1 and 2 send less, but leave 349 GB of this model's parameters on each GPU. To keep the tokens that
# each GPU sees, the batch has to grow with the GPUs, which costs learning (lesson 09). **Hybrid sharding** keeps the
# shards within a node, where the link is fast, and nodes add up their chunks of gradients: `within_nodes` makes the
# communicators. Then 16/8 bytes a parameter stay on each GPU of a node of eight, which GPUs of 80 GB have for up to 40
# billion parameters. For larger ones, cut the model (lesson 12).
#
# ## Theory and measurement
#
# The paper's table 2 has the largest models on 64 V100 of 32 GB: by its own theory, and for two rows measured (also
# taken from transcriptions). And Megatron-LM's documentation counts 18 bytes a parameter, not 16, for bfloat16: its
# gradients are in float32. With its distributed optimizer, which is stage 1, it says 6 + 12/d.

# %%
for stage, theory, measured in ((0, 2.0, 1.3), (1, 7.6, 6.2), (2, 14.4, None), (3, 128.0, None)):
    largest = 32 / sum(held(1.0, stage, 64).values())
    off = f", measured {measured}: {measured / largest - 1:+.0%}" if measured else ""
    print(f"stage {stage}: {largest:5.1f} billion parameters, the paper's theory {theory:5.1f}{off}")
    assert abs(largest - theory) < 0.06
assert sum(held(1, 1, 64, gradient=4).values()) == 6 + 12 / 64

# %% [markdown]
# The theory counts no activations and no buffers. What could be trained is smaller by 35 % without sharding, and by
# 19 % in stage 1. For stages 2 and 3 the table has no measured sizes.
#
# torchtitan publishes the memory of Llama 3 8B under FSDP, which is stage 3. Parameters, gradients and Adam's state are
# sharded in float32: 16 bytes a parameter again. From 8 to 128 GPUs each should hold 16 N (1/8 - 1/128) bytes less.

# %%
N = 8.03e9
less = 16 * N * (1 / 8 - 1 / 128) / 2**30
for name, eight, many in (("eager", 82.4, 67.0), ("compiled", 77.0, 62.0)):
    print(f"{name:8} {eight} -> {many} GiB: {eight - many:.1f} less; by the formula {less:.1f}")
    assert less < eight - many < 1.11 * less


# %% [markdown]
# The formula explains nine tenths. What else becomes smaller with more GPUs, 1.4 and 1.0 GiB, the tables do not tell.
#
# **Predict first.** In which stage, and on how many ranks at least, do 80 GB hold a model of 70 billion parameters?
# Move the sliders. (Activations come on top, in each stage.)

# %%
def fits(billions=7.5, ranks=64, capacity=80):
    rows = {f"stage {stage}" if stage else "no sharding": held(billions * 1e9, stage, ranks) for stage in range(4)}
    enough = sum(sum(row.values()) < capacity * 1e9 for row in rows.values())  # in how many of the four rows
    where = (
        "too little in each stage",
        "enough in stage 3 alone",
        "enough from stage 2 on",
        "enough from stage 1 on",
        "enough without sharding",
    )[enough]
    title = f"{billions:g} billion parameters on {ranks} {'ranks' if ranks > 1 else 'rank'}: {capacity} GB are {where}"
    return plot.memory_breakdown(rows, title, "GB", capacity * 1e9)


plot.sliders(
    fits,
    billions=[1.5, 7.5, 70, 175, 405],
    ranks=[1, 2, 4, 8, 16, 64, 256, 1024],
    capacity=[16, 32, 80, 192],
)


# %% [markdown]
# ## Snapshots, and another number of ranks
#
# Each rank saves its own shard, so no rank needs memory for all. A snapshot counts only if all shards of it are there:
# a run that is killed while it saves goes on from the snapshot before. And the number of ranks may change: the padding
# is taken off the chunks, and what is left is cut anew.

# %%
def some_steps(comm, folder, last):
    """Resume, and go on until step `last`; at which step it began, and the parameters then."""
    torch.manual_seed(comm.rank)
    model = mlp((64, 33, 10)).double()
    update = ShardedParameters(adam, model, comm)
    snapshots = ShardedCheckpointer(update, folder)
    begin = (snapshots.resume() or {"step": 0})["step"]
    for number, chosen in enumerate(batches(5)[:last], 1):
        if number > begin:
            step(model, update, chosen[share_of(len(chosen), comm.rank, comm.size)])
            snapshots.save(number)
    with update.whole():
        return begin, flat(model)


with tempfile.TemporaryDirectory() as folder:
    _, on_four = run(partial(some_steps, folder=folder, last=3), 4).results[0]
    begin, loaded = run(partial(some_steps, folder=folder, last=3), 2).results[0]
    print(f"saved by 4 ranks after step 3, loaded by 2 ranks after step {begin}: same bits, {on_four.equal(loaded)}")
    assert begin == 3 and torch.equal(on_four, loaded)
    next(Path(folder).glob("step00000003-*-rank1of4.pt")).unlink()  # as if rank 1 had been killed before it saved
    begin, on_two = run(partial(some_steps, folder=folder, last=5), 2).results[0]
assert begin == 2 and (on_two - flat(alone)).abs().max() < 1e-14
print(f"one shard is missing: 2 ranks go on from step {begin}, and then differ from one process by less than 1e-14")

# %% [markdown]
# ## You wrote, they ship
#
# torch's `ZeroRedundancyOptimizer` is stage 1, `fully_shard` (FSDP2) is stage 3. The same small model by both, on two
# ranks each, theirs over gloo, ours over MPI:

# %%
TWINS = "../lessons/twins"
# !torchrun --local-addr localhost --nproc-per-node 2 {TWINS}/theirs.py zero_1 fully_sharded 2>/dev/null
# !mpirun -np 2 python {TWINS}/ours.py zero_1 fully_sharded

# %% [markdown]
# How fast, and in how much memory? `mpcourse bench zero --np 2` measures it in a few minutes. This is what it gave on
# 2026-11-24, on two cores: two ranks, an MLP of 10.5 million parameters, Adam in float32 (16 bytes a parameter, 8 of
# them the optimizer's state), theirs over gloo, ours over MPI. Memory is by how much a rank's process has grown since
# before the model was made: after a step, and at most within one.

# %%
MEASURED = {  # examples a second, MB after a step, MB at the peak; ZeRO's stage
    "data parallelism (lesson 06)": (2011, 190, 233, 0),
    "ShardedOptimizer": (2160, 126, 137, 1),
    "ZeroRedundancyOptimizer around DDP": (1768, 126, 139, 1),
    "OverlappedGradients": (1996, 107, 121, 2),
    "PrefetchedParameters": (1882, 86, 103, 3),
    "fully_shard": (951, 85, 100, 3),
}
for name, (speed, after, peak, stage) in MEASURED.items():
    theory = sum(held(10.506, stage, 2, weight=4, gradient=4, state=8).values())
    print(f"stage {stage}: {name:36}{speed:5} examples/s {after:4} MB, at most {peak}; theory {theory:3.0f} MB")
    assert stage == 0 or abs(after / theory - 1) < 0.03

# %% [markdown]
# Memory is the theory's to 3 % where state is sharded. The speeds tell nothing of GPUs, where torch sends by NCCL: here
# MPI's ranks share memory, and gloo sends through sockets.
#
# | you wrote | they ship |
# |---|---|
# | `ShardedOptimizer` | `ZeroRedundancyOptimizer`; Megatron's distributed optimizer; DeepSpeed's `stage: 1` |
# | `ShardedGradients`, `OverlappedGradients` | DeepSpeed's `stage: 2` |
# | `ShardedParameters` | `fully_shard` of each layer; DeepSpeed's `stage: 3` |
# | `PrefetchedParameters` | what `fully_shard` does by itself |
# | `within_nodes` | HSDP: `fully_shard` on a mesh of two axes |
# | `master=torch.float32` | `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` on float32 parameters |
# | `ShardedCheckpointer` | `torch.distributed.checkpoint` |
#
# What differs:
#
# - Megatron cuts flat buffers, as ours does. `ZeroRedundancyOptimizer` deals out whole parameters, the largest first,
#   so its ranks may have unequal shares. DDP all-reduces all gradients before it, and then each rank broadcasts what it
#   has updated: nearly 3 P values in place of 2 P.
# - FSDP2 cuts each parameter along its first axis. So each keeps its name, shape and dtype, as a DTensor. In its mixed
#   precision the shards themselves are float32, and are cast before they are gathered: there are no copies.
#   `reduce_dtype` is the dtype in which gradients are summed; ours sums them in the parameters' own.
# - `fully_shard` frees parameters after forward, but for those of the outermost module, which backward needs first
#   (`reshard_after_forward`). With `False` they stay from forward to backward, and are gathered once. Gathers run on a
#   CUDA stream of their own, so that those of forward begin while the layer before computes; in backward the next
#   layer's is begun ahead.
# - FSDP2 can keep parameters, gradients and optimizer state in the host's memory (`CPUOffloadPolicy`).
#
# Ours shows what is sent and freed when, on one time axis and in one memory trace.
#
# ## The reference implementation
#
# Which elements are whose, and the step of stage 1. The other stages replace single methods of it; all files are in
# `mpcourse/zero`.

# %%
from mpcourse.common.source import reference

reference(Unit.owned, ShardedOptimizer.step, ShardedParameters._before_forward, ShardedParameters._after_forward)

# %% [markdown]
# What is missing here: sequence parallelism, which shards activations, too; experts; optimizer state in the host's
# memory.
#
# Next comes lesson 12: which cut belongs on which wire?
