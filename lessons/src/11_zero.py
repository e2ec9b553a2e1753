# %% [markdown]
# # 11 ZeRO
#
# **What if even the optimizer does not fit?** About 20 minutes to read, and 80 for its exercises.
#
# In 2020 Rajbhandari et al. counted what a GPU holds of a model that is trained by Adam in mixed precision: 16 bytes a
# parameter. A model of 7.5 billion parameters needs 120 GB, and their GPUs had 32. Data parallelism does not help: each
# of its ranks holds all of it. With 64 ranks the paper reaches 31.4, 16.6 and 1.88 GB, in three stages. What do the
# ranks share out, and what does it cost?

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import tempfile
from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data_parallel import share_of
from mpcourse.model_states import held, sent
from mpcourse.models import mlp
from mpcourse.published import ZERO_TABLE_1
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

DATA = digits()
torch.set_num_threads(1)
STAGES = {1: ShardedOptimizer, 2: ShardedGradients, 3: ShardedParameters}

# %% [markdown]
# ## 16 bytes a parameter
#
# Mixed precision (lesson 01): forward and backward compute with parameters of 16 bits (2 bytes), and give gradients of
# 16 bits (2 bytes). The optimizer has float32 copies of the parameters, the **master weights**, and Adam a mean and a
# variance in float32, too (12 bytes together). Why the copies? A number in bfloat16 has 8 significant bits. A small
# update of a large number is rounded away, in each step again.

# %%
short, master = torch.ones((), dtype=torch.bfloat16), torch.ones(())
for _ in range(100):
    short -= 0.001  # an update of a thousandth
    master -= 0.001
print(f"after 100 updates: {short.item():.3f} in bfloat16, {master.bfloat16().item():.3f} from the master weight")
assert short == 1 and abs(master - 0.9) < 1e-5

# %% [markdown]
# **Predict first.** All ranks of data parallelism have the same parameters and the same mean of gradients, and so make
# the same update. Which of the 16 bytes does a rank need at each moment of a step, and which only for its part of the
# update?
#
# ZeRO's answer comes in three stages. A rank keeps only its shard, 1/d of d ranks', of the optimizer's state
# (stage 1), of the gradients too (stage 2), of the parameters too (stage 3). Here is one rank of many on a virtual GPU.
# Its tensors hold no data, so that 7.5 billion parameters fit this machine. What it holds after backward, counted by
# the memory trace, stands beside the paper's table 1.

# %%
ROOMY = replace(GPUS["A100-SXM4"], name="a GPU with room", memory=2**60, workspace=0)


def one_of_many(stage, ranks, layers, width, batch=1, gpu=ROOMY):
    """A training step of one rank of many, by Adam in mixed precision; its box, and what it holds after backward."""
    with torch.device("meta"):
        parts = [(nn.Linear(width, width, bias=False, dtype=torch.bfloat16), nn.ReLU()) for _ in range(layers)]
        model = nn.Sequential(*[module for pair in parts for module in pair])
    layerwise = {} if stage == 3 else {"bucket_bytes": 1}  # each layer is sent by itself, as in stage 3
    comm = AloneComm(ranks if stage else 1)  # sharded over one rank, nothing is
    with virtual_gpus(1, gpu, dry=True) as box:
        model.to("vgpu:0")
        update = STAGES[stage or 1](torch.optim.AdamW, model, comm, master=torch.float32, **layerwise)
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
# All parameters stand side by side in one flat buffer. It is padded until its length is a multiple of d, and cut into
# d equal chunks. A cut may go through the middle of a parameter: an optimizer such as Adam or SGD computes each
# element by itself, so it does not mind. LARS and LAMB of lesson 09 do: they need the norm of a whole layer.
#
# Exercise `e11_shard`: which elements of which parameters belong to whom.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e11_shard

# %%
parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (3,), (3, 1), (1,))]
unit = Unit(parameters, ranks=4)
for rank in range(4):
    owned = ", ".join(f"{end - begin} of parameter {i}" for i, begin, end in unit.owned(rank))
    print(f"rank {rank}: {owned}")
print(f"{unit.length} elements, chunks of {unit.chunk}, {4 * unit.chunk - unit.length} of padding")
assert [sum(end - begin for _, begin, end in unit.owned(rank)) for rank in range(4)] == [4, 4, 4, 1]


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
    print(f"stage {stage}: on 1 to 4 ranks the parameters differ from one process by at most {off:.0e}")
    assert off < 1e-12


# %% [markdown]
# Equal up to rounding, in all stages. (60 examples divide by 1, 2, 3 and 4; for other batches see lesson 06.)
#
# ## Stage 2: gradients in chunks
#
# In stage 1 each rank still has all gradients until the step. But once a layer's gradients are summed, a rank needs its
# own chunk alone. Stage 2 starts the reduce-scatter during backward, layer by layer (as the buckets of lesson 06), and
# frees the rest at once. The values sent are the same.
#
# Exercise `e11_reduce_scatter_gradients`: each rank gets its chunk of the mean, and no more is sent than that takes.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e11_reduce_scatter_gradients

# %% [markdown]
# ## Stage 3: parameters in chunks
#
# A layer's parameters are needed while this layer computes. Stage 3 gathers them before its forward, frees them after
# it, gathers them again before its backward, and frees them for good. In between a rank has its chunk alone.
#
# **Predict first.** How many values does a rank send in a step now, of P parameters?
#
# Exercise `e11_gather_layer`: a linear layer whose weight is there while it computes, and only then.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e11_gather_layer

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
# 3 P instead of 2 P: parameters are gathered twice, once for forward and once for backward, and gradients are scattered
# once. Stages 1 and 2 gather the parameters once, after the update.
#
# What does a rank hold during the step? Eight ranks, Adam in mixed precision, six layers:

# %%
lanes = {}
for stage in range(4):
    box, after = one_of_many(stage, 8, layers=6, width=2048, batch=2048, gpu=GPUS["A100-SXM4"])
    lanes["without sharding" if stage == 0 else f"stage {stage}"] = box
    formula = held(6 * 2048**2, stage, 8)
    assert all(after[kind] == formula[kind] for kind in after)
most = [box.ledger.peak(0).nbytes for box in lanes.values()]
assert most == sorted(most, reverse=True) and most[0] > 3 * most[3]
plot.memory(lanes, "One rank of eight: each stage shares out one kind more", over="operations")
None

# %% [markdown]
# Stage 1 takes the largest part away. In stage 2 the gradients are a thin line: one layer's at a time, and chunks. In
# stage 3 also the parameters. Activations are what they were: no stage of ZeRO touches activations. Checkpointing
# (lesson 03) and cutting the model (lessons 02 to 04, 10) do.
#
# ## One layer ahead
#
# Stage 3 waits for each layer's parameters. The next layer's are known in advance: they can be on their way while this
# one computes. That is **prefetching**. It takes memory for two layers instead of one. Four ranks; a layer computes
# twice as long forward, and four times as long backward, as its parameters take to arrive.

# %%
WIDTH, LAYERS = 100, 8
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


took = {}
for name, kind in (("waiting for each layer", ShardedParameters), ("one layer ahead", PrefetchedParameters)):
    done = run(partial(layer_by_layer, kind=kind), 4, LINK)
    begin, end = done.results[0]
    took[name] = (end - begin) / ARRIVE
    plot.timeline(done.events, f"Stage 3, {name}: rank 0 of four", begin, end, ("rank 0", "rank 3 -> rank 0"))
computing = LAYERS * (2 + 4)
print({name: round(seconds, 1) for name, seconds in took.items()}, f"of them computing: {computing}")
assert abs(took["waiting for each layer"] - (computing + 3 * LAYERS)) < 0.1
assert computing < took["one layer ahead"] < computing + 5

# %% [markdown]
# Waiting, a step takes 72 times as long as a layer's parameters take to arrive, 48 of them computing. One layer ahead
# it takes 52: what is not hidden is the first gather of each direction and the last sum.
#
# ## The bandwidth below which stage 3 loses
#
# Prefetching hides messages only as long as computing takes longer. A GPU that sees t tokens in a step computes 6 P t
# FLOPs (8 P t if activations are computed again), at X FLOP/s. It sends 3 P values of 2 bytes. P stands on both sides:
# the bandwidth that stage 3 needs does not depend on the size of the model. It is X / t bytes a second, or
# 6/8 X / t with recomputation. What counts is how many tokens each GPU sees before it sends.
#
# Lesson 10 asked why 768 and 1536 GPUs needed 74 days both. Their batch was the same. (X is what 384 GPUs reached.)

# %%
X, BATCH = 144e12, 1536 * 2048  # FLOP/s; tokens of a step
gpus = [192, 384, 768, 1536, 3072]
needed = {n: 6 / 8 * X / (BATCH / n) / 1e9 for n in gpus}
for n, bandwidth in needed.items():
    print(f"{n:5} GPUs: {BATCH / n:5.0f} tokens each, so stage 3 needs {bandwidth:5.1f} GB/s")
REACHED, CARD = 16.1, 25.0  # GB/s: lesson 10 took the first from the 74 days
assert needed[384] < REACHED < CARD < needed[768] < needed[1536]
plot.lines(
    gpus,
    {
        "stage 3, 3 P values": list(needed.values()),
        "stages 1 and 2, 2 P values": [2 / 3 * bandwidth for bandwidth in needed.values()],
    },
    "GPUs that share a batch of 3.1 million tokens",
    "GB/s that hide all messages",
    "From 768 GPUs on, ZeRO-3 needs more than a card carries",
    {"a card: 25 GB/s": CARD, "reached: 16.1 GB/s": REACHED},
    log_y=True,
)
None

# %% [markdown]
# On 384 GPUs each sees 8192 tokens a step, and 13.2 GB/s are enough. On 768 it sees 4096, and 26.4 would be needed:
# more than the network card carries. From there on twice the GPUs compute half as long each, and send as much. So a
# step takes the same time. To keep what each GPU sees, the batch has to grow with the GPUs, which costs learning
# (lesson 09). Or the shards stay within a node, where the link is fast, and nodes add up their chunks of gradients:
# `within_nodes` makes the communicators. Then 16/8 bytes a parameter stay on each GPU of a node of eight.
#
# ## What the memory pays for
#
# The paper's table 2 has the largest models on 64 V100 of 32 GB. By its own theory, and measured:

# %%
for stage, theory, measured in ((0, 2.0, 1.3), (1, 7.6, 6.2), (2, 14.4, None), (3, 128.0, None)):
    largest = 32 / sum(held(1.0, stage, 64).values())
    off = f", measured {measured}: {measured / largest - 1:+.0%}" if measured else ""
    print(f"stage {stage}: {largest:5.1f} billion parameters, the paper's theory {theory:5.1f}{off}")
    assert abs(largest - theory) < 0.06

# %% [markdown]
# Theory has no activations and no buffers in it. What could be trained is smaller by 35 % without sharding, and by 19 %
# in stage 1. For stages 2 and 3 the table has no measured sizes.
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
# The formula explains nine tenths. What else becomes smaller with more GPUs, 1.0 and 1.4 GiB, the tables do not tell.
#
# Move the sliders: how large a model, over how many ranks?

# %%
def fits(billions=7.5, ranks=64, capacity=80):
    rows = {f"stage {stage}" if stage else "no sharding": held(billions * 1e9, stage, ranks) for stage in range(4)}
    enough = [name for name, row in rows.items() if sum(row.values()) < capacity * 1e9]
    where = f"enough for {enough[0]}" if enough else "too little in each stage"
    title = f"{billions:g} billion parameters, {ranks} ranks: without activations {capacity} GB are {where}"
    return plot.memory_breakdown(rows, title, "GB")


plot.sliders(
    fits,
    billions=[1.5, 7.5, 70, 175, 405],
    ranks=[1, 2, 4, 8, 16, 64, 256, 1024],
    capacity=[16, 32, 80, 192],
)


# %% [markdown]
# ## A run that is killed
#
# Each rank saves its own shard, so no rank needs memory for all. A snapshot counts only if all shards of it are there.
# And the number of ranks may change: from flat chunks the padding is taken off, and they are cut anew.

# %%
def some_steps(comm, folder, steps, last):
    """Resume, and go on until step `last`; the parameters then."""
    torch.manual_seed(comm.rank)
    model = mlp((64, 33, 10)).double()
    update = ShardedParameters(adam, model, comm)
    snapshots = ShardedCheckpointer(update, folder)
    begin = (snapshots.resume() or {"step": 0})["step"]
    for number, chosen in enumerate(batches(steps)[:last], 1):
        if number > begin:
            step(model, update, chosen[share_of(len(chosen), comm.rank, comm.size)])
            snapshots.save(number)
    with update.whole():
        return flat(model)


with tempfile.TemporaryDirectory() as folder:
    on_four = run(partial(some_steps, folder=folder, steps=5, last=3), 4).results[0]
    loaded = run(partial(some_steps, folder=folder, steps=5, last=3), 2).results[0]  # nothing is left to do
    on_two = run(partial(some_steps, folder=folder, steps=5, last=5), 2).results[0]
print(f"saved by 4 ranks, loaded by 2: the same bits, {torch.equal(on_four, loaded)}")
print(f"two more steps there: {(on_two - flat(alone)).abs().max():.0e} from one process")
assert torch.equal(on_four, loaded) and (on_two - flat(alone)).abs().max() < 1e-12

# %% [markdown]
# ## You wrote, they ship
#
# torch's `ZeroRedundancyOptimizer` is stage 1, `fully_shard` (FSDP2) is stage 3. The same small model by both, on two
# ranks each, theirs over gloo, ours over MPI:

# %%
TWINS = "../lessons/twins"
# !torchrun --standalone --nproc-per-node 2 {TWINS}/theirs.py zero_1 fully_sharded 2>/dev/null
# !mpirun -np 2 python {TWINS}/ours.py zero_1 fully_sharded

# %% [markdown]
# | you wrote | they ship |
# |---|---|
# | `ShardedOptimizer` | `ZeroRedundancyOptimizer`; Megatron's distributed optimizer; DeepSpeed's `stage: 1` |
# | `ShardedGradients`, `OverlappedGradients` | DeepSpeed's `stage: 2` |
# | `ShardedParameters` | `fully_shard` with `reshard_after_forward=True`; DeepSpeed's `stage: 3` |
# | `PrefetchedParameters` | what `fully_shard` does by itself |
# | `within_nodes` | HSDP: `fully_shard` on a mesh of two axes |
# | `master=torch.float32` | `MixedPrecisionPolicy` |
# | `ShardedCheckpointer` | `torch.distributed.checkpoint` |
#
# Megatron cuts a flat buffer, as ours does. `ZeroRedundancyOptimizer` deals out whole parameters, so that its ranks
# may have unequal shares. Theirs does more: FSDP2 cuts each parameter along its first axis, so that it keeps its name,
# shape and dtype as a DTensor; gathers run on a stream of their own; and optimizer state can go to the host's memory.
# Ours shows what is sent and freed when, on one time axis and in one memory trace.
#
# ## The reference implementation
#
# Which elements are whose, and the step of stage 1. The other stages replace single methods of it; all files are in
# `mpcourse/zero`.

# %%
from mpcourse.source import reference

reference(Unit.owned, ShardedOptimizer.step, ShardedParameters._before_forward, ShardedParameters._after_forward)

# %% [markdown]
# What is missing here: sequence parallelism, which shards activations, too; experts; optimizer state in the host's
# memory.
#
# Next comes your own training. `mpcourse plan` and `mpcourse predict --zero` tell what fits, and how fast it is.
