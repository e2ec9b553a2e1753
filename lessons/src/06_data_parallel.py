# %% [markdown]
# # 06 Data parallelism
#
# **What is ChainerMN?** About 85 minutes to read, and 170 for its exercises.
#
# In 2017 ChainerMN, the part of the framework Chainer for many GPUs (Akiba, Fukuda and Suzuki, "ChainerMN: Scalable
# Distributed Deep Learning Framework"), turned a program for one GPU into one for many by a few changes: a
# communicator, an optimizer wrapped in another one, a device for each process, a distributed dataset, an evaluator that
# takes the results of all processes, and reports from one of them alone. Every process has the whole model (a
# **replica**), and its share of each batch. Between the backward pass and the optimizer step each gradient is replaced
# by its mean over all processes. This is **data parallelism**.
#
# This lesson writes the four lines that do it, makes five common mistakes with them, and measures what the mean costs.
# It also asks why, in an article of 2018, two GPUs took 90.6 s for what one GPU did in 68.0 s.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("06_data_parallel")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import json
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data.published import MIRRORED_STRATEGY
from mpcourse.data_parallel import (
    COMMUNICATORS,
    Checkpointer,
    MultiNodeOptimizer,
    convert_batch_norm,
    create_communicator,
    evaluate,
    fuse_weight_gradients,
    share_of,
)
from mpcourse.data_parallel.mirrored import mirrored_seconds
from mpcourse.models import mlp, mnist_cnn
from mpcourse.studies.compare import difference, mean_of
from mpcourse.virtual import GPUS, LINKS, MPI, Deadlock, Event, Topology, compute, run

DATA = digits()
torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves
WIDTHS = (64, 32, 10)

# %% [markdown]
# ## One process
#
# A small MLP learns handwritten digits, of which 1437 are for training, with plain SGD and batches of 64.

# %%
BATCH, RATE = 64, 0.2


def whole(steps, batch=BATCH, rate=RATE, dtype=torch.float64, part=slice(None), make=torch.optim.SGD, factor=1):
    """One process; the model's parameters after so many steps. part: of each batch. factor: of the loss."""
    torch.manual_seed(0)
    model = mlp(WIDTHS).to(dtype)
    optimizer = make(model.parameters(), rate)
    for chosen in batches(steps, batch):
        optimizer.zero_grad()
        chosen = chosen[part]
        loss = F.cross_entropy(model(DATA.train.images[chosen].to(dtype)), DATA.train.labels[chosen])
        (factor * loss).backward()
        optimizer.step()
    return flat(model)


def batches(steps, batch=BATCH, seed=1):
    """The examples of each step, by their numbers: the same on all ranks, for all draw them from the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randperm(len(DATA.train), generator=generator)[:batch] for _ in range(steps)]


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# %% [markdown]
# ## Two processes
#
# The four lines are marked. "flat" is the name of one of five ways to compute the mean, which are compared below.
# `share_of` says which positions of a batch are this rank's. Each rank begins with different parameters, on purpose.

# %% tags=["nbval-ignore-output"]
def together(comm, steps, dtype=torch.float64):
    torch.manual_seed(comm.rank)
    model = mlp(WIDTHS).to(dtype)
    communicator = create_communicator("flat", comm)  # 1
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    optimizer = MultiNodeOptimizer(optimizer, communicator)  # 2: broadcasts rank 0's model, now
    for chosen in batches(steps):
        mine = chosen[share_of(len(chosen), comm.rank, comm.size)]  # 3
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.train.images[mine].to(dtype)), DATA.train.labels[mine]).backward()
        optimizer.step()  # 4: first the mean over ranks, then the optimizer step
    return flat(model)


offs = {}
for dtype in (torch.float64, torch.float32):
    one = whole(3, dtype=dtype)
    ranks = run(lambda comm, dtype=dtype: together(comm, 3, dtype), 2).results
    assert torch.equal(ranks[0], ranks[1])
    off = offs[dtype] = (ranks[0] - one).abs().max().item()
    print(f"{str(dtype)[6:]}: two ranks have the same bits, and differ from one process by {off:.0e}")
assert offs[torch.float64] < 1e-14 and 1e6 * offs[torch.float64] < offs[torch.float32] < 1e-5


# %% [markdown]
# Both ranks have the same bits. One process has almost the same: it adds up 64 examples in one sum, where each of two
# ranks adds up 32, and the two sums are added after that. The order of additions is all that differs. In float64, which
# rounds more finely, the difference is more than a million times smaller than in float32.
#
# Why the mean, and not the sum? The loss is a mean over examples. The mean of two means over 32 examples is the mean
# over 64.
#
# One rank alone should report, or each line is printed p times: `if comm.rank == 0: print(...)`. But no collective may
# stand inside that `if`, for rank 0 alone would call it. Here all ranks add up ten, and rank 0 adds up one before that:

# %%
def reports(comm):
    for _ in range(2):
        if comm.rank == 0:
            print(f"1 + 1 is {comm.allreduce(1)}")
        comm.allreduce(10)


try:
    run(reports, 2)
except Deadlock as error:
    print(error)
else:
    raise AssertionError("no deadlock")

# %% [markdown]
# MPI has no names for all-reduces: rank 0's first is paired with rank 1's first. So the sums are wrong, and then rank 0
# waits without end. What is to be printed has to be computed by all ranks before the `if`.
#
# Exercise [`e06_allreduce_gradients`](../exercises/e06_allreduce_gradients.py): write the first half of line 4, the
# mean. Some gradients may be None.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_allreduce_gradients

# %% [markdown]
# Exercise [`e06_multi_node_optimizer`](../exercises/e06_multi_node_optimizer.py): write what lines 2 and 4 call. The
# training loop stays as it is, for the new optimizer is used like the one that it wraps. But it does not distribute the
# data, which line 3 does.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_multi_node_optimizer

# %% [markdown]
# ## Five mistakes
#
# None of these five mistakes raises an error, none hangs, and with all of them test accuracy rises. Three of them are
# equivalent to another correct training, and the output below says to which one. Four ranks train for 46 steps of 64
# examples, which is about two epochs.
#
# **Predict first.** Which of the five can look *better* than the correct program?

# %% tags=["nbval-ignore-output"]
STEPS, EVERY, P, SEEDS = 46, 2, 4, 6


def mistaken(comm, mistake, seed=0):
    torch.manual_seed(P * seed + comm.rank)
    model = mlp(WIDTHS).double()
    communicator = create_communicator("flat", comm)
    if mistake != "no broadcast":
        communicator.broadcast_parameters(model)
    first = flat(model)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    curve = []
    for step, chosen in enumerate(batches(STEPS, P * BATCH if mistake == "batch not divided" else BATCH, 1 + seed)):
        rank = 0 if mistake == "same shard" else comm.rank
        mine = chosen[share_of(len(chosen), rank, comm.size)]
        if mistake in ("mean of means", "weighted"):  # rank 3's batches hold 1 example, and the others' 21
            edges = [0, 21, 42, 63, 64]
            mine = chosen[edges[comm.rank] : edges[comm.rank + 1]]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(DATA.train.images[mine].double()), DATA.train.labels[mine])
        (loss * communicator.share(len(mine)) if mistake == "weighted" else loss).backward()
        communicator.mean_gradients(model)
        if mistake == "sum, not mean":
            for p in model.parameters():
                p.grad *= comm.size
        optimizer.step()
        if comm.rank == 0 and step % EVERY == EVERY - 1:
            curve.append(accuracy(model))
    return curve, flat(model), first


def accuracy(model):
    with torch.no_grad():
        return (model(DATA.test.images.double()).argmax(1) == DATA.test.labels).double().mean().item()


MISTAKES = ["sum, not mean", "no broadcast", "same shard", "mean of means", "batch not divided"]
results = {
    name: [run(partial(mistaken, mistake=name, seed=seed), P, record=False).results for seed in range(SEEDS)]
    for name in ["right", *MISTAKES]
}
final = {name: found[0][0][1] for name, found in results.items()}


def same(name, other, bound=1e-10):
    off = (final[name] - other).abs().max().item()
    assert off < bound, off
    return off


print(f"right: one process with a batch of 64, to {same('right', whole(STEPS)):.0e}")
print(f"sum, not mean: {P} times the learning rate, to {same('sum, not mean', whole(STEPS, rate=P * RATE)):.0e}")
assert all(torch.equal(final["same shard"], parameters) for _, parameters, _ in results["same shard"][0])
print(f"same shard: a batch of 16, to the last bit {same('same shard', whole(STEPS, part=slice(16)), 1e-300):.0e}")
print(f"batch not divided: a batch of 256, to {same('batch not divided', whole(STEPS, P * BATCH)):.0e}")
a, b = results["no broadcast"][0][:2]
before, after = (a[2] - b[2]).norm().item(), (a[1] - b[1]).norm().item()
print(f"no broadcast: ranks 0 and 1 are {before:.3f} apart in the beginning, and {after:.3f} in the end")
assert abs(before - after) < 1e-9 and before > 1
adam = partial(whole, STEPS, rate=0.01, make=torch.optim.Adam)
off = ((adam(factor=P) - adam()).norm() / adam().norm()).item()
print(f"sum, not mean, with Adam: the parameters are {100 * off:.0g} % of their norm off")
assert off < 1e-3
off = (final["mean of means"] - final["right"]).norm() / final["right"].norm()
print(f"mean of means: the parameters are {100 * off:.1f} % of their norm off")
final["weighted"] = run(partial(mistaken, mistake="weighted"), P, record=False).results[0][1]
print(f"mean of means, with a factor of the loss: right, to {same('weighted', final['right']):.0e}")
assert off > 0.02

# %% tags=["nbval-ignore-output"]
steps = [EVERY * (i + 1) for i in range(STEPS // EVERY)]
curves = {name: [[100 * value for value in found[0][0]] for found in seeds] for name, seeds in results.items()}
title = "Five mistakes raise no error, and two of them learn faster"
plot.against_reference(steps, curves, "right", "with the mistake", "steps", "test accuracy (%)", title)
learnt = {name: [sum(curve) / len(curve) for curve in seeds] for name, seeds in curves.items()}
print(f"mean of the curve, right: {mean_of(learnt['right'])}")
minus_right = {name: difference(learnt[name], learnt["right"], paired=True) for name in MISTAKES}
for name, compared in minus_right.items():
    print(f"{name:17} minus right: {compared}")
assert [name for name, compared in minus_right.items() if compared.low > 0] == ["sum, not mean", "batch not divided"]
others = [name for name in curves if name != "no broadcast"]
assert all(difference(learnt[name], learnt["no broadcast"], paired=True).low > 0 for name in others)
assert all(min(curve[-1] - curve[0] for curve in seeds) > 5 for seeds in curves.values())


# %% [markdown]
# - **Sum, not mean.** With SGD that is a learning rate p times as large. Here such a rate happens to be better. Adam
#   divides by the size of gradients, and so hides the mistake.
# - **No broadcast.** All ranks add the same updates to different parameters, so the ranks' parameters never become
#   equal. Each rank uses the mean of four gradients, three of which are those of other models. It learns least here.
# - **Same shard.** p processes do the work of one, with 1/p of each batch. All ranks have the same bits, so no test of
#   equality between ranks finds this mistake.
# - **Mean of means.** Where batches differ in length, the mean of their means is not the mean over examples. Here one
#   rank has a single example in each step, which counts as much as the 21 of another rank. In practice it is the last,
#   short batch of each epoch. With texts of different lengths, where the loss is a mean over tokens, it is every step.
#   `communicator.share(n)`, with n the rank's number of examples, is the factor of the loss that makes the mean right.
# - **Batch not divided.** Each rank takes as many examples as one process did, so the batch is p times as large. That
#   is a decision, and often the right one. But it is another training, with p times the examples in each step.
#
# A line in the figure is the mean of six seeds, and its band has two standard errors to each side. Judged by the mean
# of the curve, two mistakes learn faster than the correct program. The first took larger steps, the second saw four
# times the examples. A learning curve alone does not show that a program is correct.
#
# The library guards against two of them. `MultiNodeOptimizer` broadcasts the parameters when it is made, and
# `step(examples=...)` raises an error on every rank if the ranks have different numbers of examples:

# %%
def unequal(comm):
    model = mlp(WIDTHS)
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE), create_communicator("flat", comm))
    model(torch.ones(1 + comm.rank, 64)).sum().backward()
    try:
        optimizer.step(examples=1 + comm.rank)
    except ValueError as error:
        return str(error)


raised = run(unequal, 2).results
assert all(raised)
print(raised[1])

# %% [markdown]
# One more mistake is possible where gradients are clipped. In **gradient clipping** a gradient whose norm is too large
# is scaled down to a given norm. With several ranks, clip after the mean. A rank's own gradient, of 16 examples, is
# noisier than the mean, and so its norm is larger. Clipped before the mean, each is scaled by a factor of its own.

# %%
MOST = 0.7


def clipped(comm, when, name="flat"):
    torch.manual_seed(0)
    model, norms = mlp(WIDTHS).double(), []
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE), create_communicator(name, comm))
    for chosen in batches(STEPS):
        mine = chosen[share_of(len(chosen), comm.rank, comm.size)]
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.train.images[mine].double()), DATA.train.labels[mine]).backward()
        if when == "after":
            optimizer.mean_gradients()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), MOST).item())
        optimizer.step()
    return flat(model), sum(norms) / len(norms)


norms = {}
one, of_one = run(lambda comm: clipped(comm, "before"), 1, record=False).results[0]
for when in ("after", "before"):
    model, norms[when] = run(lambda comm, when=when: clipped(comm, when), P, record=False).results[0]
    off = (model - one).norm() / one.norm()
    print(f"clipped {when} the mean: a mean norm of {norms[when]:.2f} on rank 0; {100 * off:.1f} % off one process")
    assert off < 1e-12 if when == "after" else off > 0.02
assert norms["before"] > 1.2 * of_one and abs(norms["after"] - of_one) < 1e-9


# %% [markdown]
# With the communicator `bucketed` (below) the mean begins during the backward pass, and `mean_gradients()` completes
# it. Clipping in between would change what is being summed, and raises an error on every rank. (PyTorch's
# DistributedDataParallel, DDP, completes the mean within `backward()`. There, clip right after it.)

# %%
def errors_of(program, size):
    """What a RuntimeError says, by the rank that it is raised on."""
    told = {}

    def rank(comm):
        try:
            program(comm)
        except RuntimeError as error:
            told[comm.rank] = str(error)
            raise

    try:
        run(rank, size)
    except RuntimeError:
        return told


told = errors_of(lambda comm: clipped(comm, "before", "bucketed"), P)
assert set(told) == {0, 1, 2, 3}
print(told[0])


# %% [markdown]
# ## Loss scaling
#
# In float16 small gradients become 0. So `torch.amp.GradScaler` multiplies the loss by a scale, and divides gradients
# by it before the step (lesson 01). Where a gradient is infinite, it skips the step and halves the scale; after many
# others it doubles it.
#
# With several ranks, who decides? A rank that looked at its own gradients would skip a step alone, and the others would
# wait in their all-reduce. So all look at the mean. One rank's infinity makes it infinite, or NaN, on all ranks, and
# they decide alike. `scaler.step` of a `MultiNodeOptimizer` averages first. To clip, the order is
# `optimizer.mean_gradients()`, `scaler.unscale_`, clip, `scaler.step`.

# %%
def scaled(comm):
    """The scale after each step. In step 4 (from 0) rank 2's images are too large for float16."""
    model, scales = mlp(WIDTHS), []
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE), create_communicator("flat", comm))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=3)
    for step, chosen in enumerate(batches(8)):
        mine = chosen[share_of(len(chosen), comm.rank, comm.size)]
        images = DATA.train.images[mine] * (1e6 if (step, comm.rank) == (4, 2) else 1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(images), DATA.train.labels[mine])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(round(scaler.get_scale()))
    return scales, flat(model)


ranks = run(scaled, P).results
print(*(f"rank {rank}: {scales}" for rank, (scales, _) in enumerate(ranks)), sep="\n")
assert all(torch.equal(model, ranks[0][1]) and model.isfinite().all() for _, model in ranks)


# %% [markdown]
# Rank 2 alone had an infinity. All ranks halved their scale.

# %% [markdown]
# ## Gradient accumulation
#
# A rank's batch may be too large for its memory. Then it is cut into micro-batches, and `backward` adds the gradients
# of each to `.grad`: gradient accumulation (lesson 01). One all-reduce is enough, after the last micro-batch.
# `no_sync()` leaves it out for the others.
#
# **Predict first.** What happens without `no_sync()`: wrong parameters, more traffic, or an error?

# %%
def accumulated(comm, leave_out, name="bucketed", parts=4):
    torch.manual_seed(0)
    model = mlp(WIDTHS).double()
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE), create_communicator(name, comm))
    for chosen in batches(3):
        optimizer.zero_grad()
        pieces = chosen[share_of(len(chosen), comm.rank, comm.size)].chunk(parts)
        for i, mine in enumerate(pieces):
            loss = F.cross_entropy(model(DATA.train.images[mine].double()), DATA.train.labels[mine])
            if leave_out and i < parts - 1:
                with optimizer.no_sync():
                    (loss / parts).backward()
            else:
                (loss / parts).backward()
        optimizer.step()
    return flat(model)


done = run(lambda comm: accumulated(comm, True), 2)
off = (done.results[0] - whole(3)).abs().max().item()
print(f"with no_sync(): {done.traffic[0].sum() / 1e3:.0f} kB sent, the parameters of one process: {off < 1e-12}")
told = errors_of(lambda comm: accumulated(comm, False), 2)
print(f"without no_sync(): {told[0]}")
of_flat = [run(lambda comm, out=out: accumulated(comm, out, "flat"), 2) for out in (True, False)]
assert off < 1e-12 and set(told) == {0, 1} and torch.equal(of_flat[0].results[0], of_flat[1].results[0])
assert (of_flat[0].traffic == of_flat[1].traffic).all()


# %% [markdown]
# Without `no_sync()` the all-reduce of the first micro-batch's gradients has begun when the second adds to them, which
# raises an error on every rank. (With a communicator that reduces after the backward pass, as `flat`, `no_sync()`
# changes nothing. In DDP each backward pass without it averages `.grad` anew: the gradients are right, but every
# micro-batch causes the traffic of an all-reduce.)
#
# ## Batch norm over ranks
#
# Everything so far treats each example by itself. Batch norm does not: it takes mean and variance over the batch. On a
# rank that is the rank's share, so p ranks compute something else than one process does. With `convert_batch_norm`
# ranks exchange their counts, means and squared deviations in the forward pass, and all-reduce two sums in the backward
# pass, as torch's SyncBatchNorm does: **synchronised batch norm**. Four ranks train for three steps:

# %%
def normed(comm, synced, steps=3):
    torch.manual_seed(0)
    layers = torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 10)
    model = torch.nn.Sequential(*layers).double()
    communicator = create_communicator("flat", comm)
    if synced:
        model = convert_batch_norm(model, communicator)
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE), communicator)
    for chosen in batches(steps, 16):
        mine = chosen[share_of(len(chosen), comm.rank, comm.size)]
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.train.images[mine].double()), DATA.train.labels[mine]).backward()
        optimizer.step()
    return flat(model)


(one,) = run(lambda comm: normed(comm, False), 1, record=False).results
for synced in (False, True):
    ours = run(lambda comm, synced=synced: normed(comm, synced), P, record=False).results[0]
    off = ((ours - one).norm() / one.norm()).item()
    print(f"statistics of {'all 16' if synced else '4'} examples: {100 * off:.1f} % off one process with 16")
    assert off < 1e-12 if synced else off > 0.02

# %% [markdown]
# Statistics of few examples are noisy. Lesson 09 asks whether that harms or helps. Exercise
# [`e06_sync_batch_norm`](../exercises/e06_sync_batch_norm.py): write synchronised batch norm, with one all-reduce in
# each direction.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_sync_batch_norm

# %% [markdown]
# ## Which rank learns from which examples
#
# A rank's part of the dataset is its **shard**. 1437 is not divisible by 4. There are three choices: shards whose
# lengths differ by one, some examples in two shards, or the last examples in none.

# %%
for shards in ("exact", "repeat", "drop"):
    lengths = [len(share_of(len(DATA.train), rank, P, shuffle=True, seed=3, shards=shards)) for rank in range(P)]
    print(f"{shards:7} {lengths}, {sum(lengths)} of {len(DATA.train)}")
assert sum(lengths) == 1436


# %% [markdown]
# Shuffling needs one seed for all. With a seed of its own on each rank some examples are in two shards, and others in
# none.

# %%
def shard(rank, seed):
    return set(share_of(len(DATA.train), rank, P, shuffle=True, seed=seed).tolist())


seen = set().union(*(shard(rank, seed=3) for rank in range(P)))
seen_of_own = set().union(*(shard(rank, seed=rank) for rank in range(P)))
print(f"one seed: {len(seen)} examples are in some shard; a seed for each rank: {len(seen_of_own)}")
assert len(seen) == 1437 and abs(len(seen_of_own) / 1437 - (1 - (3 / 4) ** 4)) < 0.02


# %% [markdown]
# An example is in none of four random quarters with a probability of (3/4)^4. So 1 - (3/4)^4 of all examples, or 68 %,
# are in some shard on average.
#
# Exercise [`e06_scatter_dataset`](../exercises/e06_scatter_dataset.py): which examples are in which rank's shard?

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_scatter_dataset

# %% [markdown]
# Test results, too, are averaged with the numbers of examples as weights. Otherwise a rank with few examples counts as
# much as one with many. Exercise [`e06_evaluate`](../exercises/e06_evaluate.py) asks for that.

# %%
def two_ways(comm):
    correct, count = [(9, 10), (1, 2), (0, 0)][comm.rank]
    communicator = create_communicator("flat", comm)
    shares = comm.allgather(correct / count if count else 0.0)
    return evaluate(communicator, correct, count), sum(shares) / comm.size


right, mean_of_shares = run(two_ways, 3).results[0]
print(f"10 of 12 are right: {right:.3f}. The mean of shares: {mean_of_shares:.3f}")
assert abs(right - 10 / 12) < 1e-12


# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_evaluate

# %% [markdown]
# ## A run whose rank is killed
#
# When one rank ends, the others wait for it without end, or are ended, too. A long training therefore saves snapshots
# of its state and resumes from the last one. Each rank writes a file of its own, with model, optimizer state and the
# state of its random numbers. A snapshot counts only if all ranks have written theirs. Here a snapshot follows each
# second step, and rank 1 ends after step 3.

# %%
def resumable(comm, folder, steps, ends=None):
    """Parameters after so many steps, from the latest snapshot in `folder` on. ends: after which step rank 1 does."""
    torch.manual_seed(comm.rank)
    model = mlp(WIDTHS)
    communicator = create_communicator("flat", comm)
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE, momentum=0.9), communicator)
    snapshots = Checkpointer(communicator, folder, model=model, optimizer=optimizer)
    begin = (snapshots.resume() or {"step": 0})["step"]
    for step, chosen in enumerate(batches(steps), 1):
        if step > begin:
            mine = chosen[share_of(len(chosen), comm.rank, comm.size)]
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train.images[mine]), DATA.train.labels[mine]).backward()
            optimizer.step()
            if comm.rank == 1 and step == ends:
                raise SystemExit("killed")
            if step % 2 == 0:
                snapshots.save(step)
    return begin, flat(model)


with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as empty:
    try:
        run(partial(resumable, folder=kept, steps=6, ends=3), 2)
    except SystemExit as error:
        print(f"rank 1 was {error}; snapshots of {sorted({file.name[:12] for file in Path(kept).iterdir()})}")
    begin, resumed = run(partial(resumable, folder=kept, steps=6), 2).results[0]
    _, at_once = run(partial(resumable, folder=empty, steps=6), 2).results[0]
print(f"resumed after step {begin}; the same bits as six steps at once: {torch.equal(resumed, at_once)}")
assert begin == 2 and torch.equal(resumed, at_once)

# %% [markdown]
# ## What the mean costs
#
# The library has five communicators, which compute the mean in five ways.
#
# - **naive**: an all-reduce for each parameter.
# - **flat**: all gradients in one flat buffer, one all-reduce.
# - **hierarchical**: a reduce inside each machine, an all-reduce over one rank of each machine, and a broadcast inside.
# - **two_dimensional**: a reduce-scatter inside each machine; an all-reduce between machines, for which each rank has
#   its part of the buffer; an all-gather inside.
# - **bucketed**: gradients are put into **buckets** of a given size. A bucket's all-reduce begins when its gradients
#   are computed, while the backward pass of earlier layers goes on. That is called **overlap**. PyTorch's DDP does
#   this.
#
# Here are eight ranks, four on each of two machines, with PCIe inside a machine and 10 Gbit/s between them. They train
# an MLP of five layers with 1.6 million parameters. On the virtual clock its forward pass takes 4 ms and its backward
# pass 8 ms, each layer in proportion to its parameters. All gradients together are n = 6.2 MB. A bucket has about one
# layer (the last layer is small, and shares a bucket with the one before).
#
# **Predict first.** Which of the five is the fastest here, and which the slowest?

# %%
NODES = Topology(nodes=[rank // 4 for rank in range(8)], inside="PCIe 3.0 x16", between="10 GbE")
LAYERS = (784, 600, 600, 600, 600, 10)
FORWARD, BACKWARD = 0.004, 0.008


def step_by(name, size=8, link=NODES, times=2, calls=1, bucket_kib=1024):
    """Some steps; the run, and when the last of them began and ended. calls: of MPI, for each gradient."""

    def program(comm):
        torch.manual_seed(0)
        model = mlp(LAYERS)
        parameters = sum(p.numel() for p in model.parameters())
        size_of = dict.fromkeys(("bucket_bytes", "first_bucket_bytes"), bucket_kib << 10) if name == "bucketed" else {}
        communicator = create_communicator(name, comm, **size_of)

        def backward_of(p):
            for _ in range(calls):
                compute(comm, BACKWARD * p.numel() / parameters / calls, "backward")
                communicator.progress()

        for p in model.parameters():  # a layer's gradient is there after its share of the time, not before
            p.register_post_accumulate_grad_hook(backward_of)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator)
        for _ in range(times):
            comm.Barrier()
            begin = MPI.Wtime()
            optimizer.zero_grad()
            compute(comm, FORWARD, "forward")
            model(torch.ones(2, 784)).sum().backward()
            optimizer.step()
        return begin, MPI.Wtime(), [p.grad.clone() for p in model.parameters()]

    done = run(program, size, link)
    return done, min(r[0] for r in done.results), max(r[1] for r in done.results)


spans, wire, senders = {}, {}, {}
nbytes = 4 * sum(n * m + m for n, m in zip(LAYERS, LAYERS[1:]))
for name in COMMUNICATORS:
    done, begin, end = spans[name] = step_by(name)
    ms = 1e3 * (end - begin)
    leaving = Counter()  # bytes from the first machine to the second, by rank
    for e in done.events:
        if e.kind == "copy" and e.start >= begin:
            source, target = int(e.lane.split()[1]), int(e.lane.split()[-1])
            leaving[source] += e.nbytes if source < 4 <= target else 0
    wire[name] = sum(leaving.values()) / nbytes
    senders[name] = sum(sent > 0.1 * nbytes for sent in leaving.values())
    print(
        f"{name:16} {ms:6.1f} ms a step, {ms - 1e3 * (FORWARD + BACKWARD):5.1f} of them for the mean; "
        f"{wire[name]:.2f} n leave a machine"
    )
took = {name: end - begin for name, (_, begin, end) in spans.items()}
assert round(nbytes / 4e6, 1) == 1.6 and round(nbytes / 1e6, 1) == 6.2
assert took["flat"] < 0.96 * took["hierarchical"] < took["naive"] < took["bucketed"]
assert abs(took["flat"] / took["two_dimensional"] - 1) < 0.02
assert abs(wire["flat"] - 1) < 0.02 and wire["bucketed"] > 1.7
assert senders["flat"] == senders["two_dimensional"] == 4 and senders["hierarchical"] == 1
grads = [spans[name][0].results[0][2] for name in COMMUNICATORS]
assert all(torch.allclose(a, b, rtol=0, atol=1e-4) for other in grads[1:] for a, b in zip(grads[0], other))

# %% [markdown]
# `flat` and `two_dimensional` are the fastest, for all ranks of a machine send between machines, each a part of the
# buffer. (`flat` does so because in Rabenseifner's algorithm the partners of the long messages are near, and those of
# the short ones are on the other machine: lesson 05.) With `hierarchical` one rank of each machine sends everything.
#
# `bucketed` is the slowest here, although its all-reduces overlap with the backward pass. These all-reduces are rings,
# and a ring of eight ranks sends 7/4 n over the link between machines where the others send n. And a ring of eight
# ranks has 14 rounds. A rank begins a round only when it calls MPI: while it computes, it sends nothing. Here it calls
# MPI once for each gradient. The next cell lets it call more often.

# %%
print(f" 1 call of MPI for each gradient:  {1e3 * took['bucketed']:5.1f} ms a step")
for calls in (4, 16):
    done, begin, end = step_by("bucketed", calls=calls)
    print(f"{calls:2} calls of MPI for each gradient: {1e3 * (end - begin):5.1f} ms a step")
assert end - begin < 0.95 * min(took.values())


# %% [markdown]
# With 16 calls `bucketed` is the fastest. That a collective continues while its caller computes is called **progress**.
# Something has to provide it: repeated calls of MPI, a thread (as in gloo, and in some MPIs), or the device itself (as
# in NCCL, NVIDIA's library for collectives between GPUs).
#
# The timelines show what rank 0 computes, and what it sends. The first bar is the forward pass. The backward pass goes
# from the last layer to the first. (The last layer is too short to be seen.) The first two are of two machines with one
# rank each. In the all-reduce of two ranks each sends half of its gradients to the other, which adds them. Here that
# half is sent in six pieces, so that adding begins early. Then each sends the half that it has summed.

# %%
def picture(name, title, lanes=("rank 0", "rank 0 -> rank 1"), size=2, link="10 GbE"):
    done, begin, end = step_by(name, size, link)
    figure = plot.timeline(done.events, title, begin, end, lanes)
    figure.axes[0].set(xlim=(0, 20), xticks=range(0, 21, 4))  # in all four figures, which are compared
    return end - begin, [e.nbytes for e in done.events if e.lane == lanes[1] and e.start >= begin]


picture("naive", "naive: first all gradients, then an all-reduce for each parameter")
None

# %%
flat_step, sent = picture("flat", "flat: first all gradients, then one all-reduce")
assert len(sent) == 7 and sum(sent[:6]) == sent[6] == nbytes // 2

# %% [markdown]
# The next timeline is that of `hierarchical`, on two machines of two ranks. Rank 1 sends its gradients to rank 0. Then
# ranks 0 and 2 alone use the slow link. Then rank 0 sends the sum to rank 1.

# %%
picture(
    "hierarchical",
    "hierarchical: inside a machine, between machines, inside",
    lanes=["rank 0", "rank 1 -> rank 0", "rank 0 -> rank 2", "rank 0 -> rank 1"],
    size=4,
    link=Topology(nodes=[0, 0, 1, 1], inside="PCIe 3.0 x16", between="10 GbE"),
)
None

# %% [markdown]
# The last timeline is that of `bucketed`, with one rank on each machine again.

# %%
bucketed_step, _ = picture("bucketed", "bucketed: a layer's all-reduce runs while the layers before it compute")
print(f"flat {1e3 * flat_step:.1f} ms, bucketed {1e3 * bucketed_step:.1f} ms")
assert bucketed_step < 0.85 * flat_step


# %% [markdown]
# A ring of p ranks has 2 (p - 1) rounds, and between rounds a rank has to add. Here it does so whenever it has computed
# another gradient.
#
# In the next figure there are four ranks on two machines, which call MPI four times for each gradient. Which bucket
# size is best, and over which link does it matter most? Move the sliders.

# %% tags=["nbval-ignore-output"]
def try_it(communicator="bucketed", bucket_kib=1024, between="10 GbE"):
    link = Topology(nodes=[0, 0, 1, 1], inside="PCIe 3.0 x16", between=between)
    done, begin, end = step_by(communicator, 4, link, calls=4, bucket_kib=bucket_kib)
    title = f"{communicator}, buckets of {bucket_kib} KiB, {between}: {1e3 * (end - begin):.1f} ms a step"
    sent = {e.lane for e in done.events if e.kind == "copy" and e.start > begin}
    lanes = sorted(lane for lane in sent if lane.startswith(("rank 0", "rank 1")))  # what leaves the first machine, too
    return plot.timeline(done.events, title, begin, end, ["rank 0", *lanes])


plot.sliders(
    try_it, communicator=["bucketed", *(name for name in COMMUNICATORS if name != "bucketed")],
    bucket_kib=[1024, 2048, 4096, 16384], between=["1 GbE", "10 GbE", "InfiniBand FDR"],
)  # fmt: skip

# %%
by_bucket = {}
for between in ("1 GbE", "10 GbE", "InfiniBand FDR"):
    link = Topology(nodes=[0, 0, 1, 1], inside="PCIe 3.0 x16", between=between)
    for kib in (1024, 16384):
        _, begin, end = step_by("bucketed", 4, link, calls=4, bucket_kib=kib)
        by_bucket[between, kib] = 1e3 * (end - begin)
    many, one_bucket = by_bucket[between, 1024], by_bucket[between, 16384]
    gain = one_bucket / many
    print(f"{between:15} four buckets {many:5.1f} ms, all in one bucket {one_bucket:5.1f}: a speedup of {gain:.2f}")
speedups = {line: by_bucket[line, 16384] / by_bucket[line, 1024] for line, _ in by_bucket}
assert max(speedups, key=speedups.get) == "10 GbE" and max(speedups["1 GbE"], speedups["InfiniBand FDR"]) < 1.1
exposed = {line: by_bucket[line, 16384] - 1e3 * (FORWARD + BACKWARD) for line in speedups}  # with one bucket
assert 75 < exposed["1 GbE"] < 85 and 7 < exposed["10 GbE"] < 9 and exposed["InfiniBand FDR"] < 2

# %% [markdown]
# With one bucket for all gradients nothing overlaps. Overlap gains most where the all-reduce takes about as long as the
# backward pass, as over 10 Gbit/s here. Over 1 Gbit/s it takes ten times as long: overlap can hide 8 ms of 80 at most,
# and the rest is **exposed communication**, during which nothing computes. Over InfiniBand there is little to hide.
#
# Exercise [`e06_bucket_overlap`](../exercises/e06_bucket_overlap.py): write buckets that overlap, with hooks and
# non-blocking all-reduces. The checker looks at the gradients, at the number of collective calls, and at the time of a
# step.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_bucket_overlap

# %% [markdown]
# ## The same on this machine
#
# Now there are two real processes with one thread each. Rank 0 records when each gradient has been computed, when a
# bucket's all-reduce begins, and when the rank sees that it is complete. Three communicators take turns, with 12 steps
# each. The output has the median step and, in brackets, the quartiles.

# %%
Path("scratch").mkdir(exist_ok=True)
Path("scratch/overlap.py").write_text("""
import json
import sys

import torch
from mpi4py import MPI

from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.models import mlp

torch.set_num_threads(1)
torch.manual_seed(0)
comm = MPI.COMM_WORLD
NAMES = ("naive", "flat", "bucketed")
programs, steps = {}, {name: [] for name in NAMES}
arrived = []  # when each gradient of the present step was there
for name in NAMES:
    model, x = mlp((784, 1000, 1000, 1000, 1000, 10)), torch.randn(100, 784)
    communicator = create_communicator(name, **({"bucket_bytes": 1 << 20} if name == "bucketed" else {}))
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: arrived.append(MPI.Wtime()))
    programs[name] = model, x, communicator, MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.01), communicator)
for _ in range(14):  # in turns, so that what else the machine does meets all three
    for name, (model, x, communicator, optimizer) in programs.items():
        arrived.clear()
        comm.Barrier()
        begin = MPI.Wtime()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        forward = MPI.Wtime()
        loss.backward()
        backward = MPI.Wtime()
        optimizer.mean_gradients()
        mean = MPI.Wtime()
        optimizer.step()
        end = MPI.Wtime()
        sums = [bucket.span for bucket in getattr(communicator, "buckets", [])]
        steps[name].append([begin, forward, backward, mean, end, list(arrived), sums])
if comm.rank == 0:
    json.dump({name: done[2:] for name, done in steps.items()}, open(sys.argv[1], "w"))  # two to warm up
""")
None

# %% tags=["nbval-ignore-output"]
Path("scratch/overlap.json").unlink(missing_ok=True)
# !mpirun -np 2 python scratch/overlap.py scratch/overlap.json
measured = {}
for name, done in json.loads(Path("scratch/overlap.json").read_text()).items():
    done.sort(key=lambda step: step[4] - step[0])
    low, median, high = (1e3 * (step[4] - step[0]) for step in (done[3], done[6], done[9]))  # of 12: quartiles
    _, _, backward, mean, *_ = measured[name] = done[6]
    after = 1e3 * (mean - backward)
    print(f"{name:9} {median:5.1f} ms a step ({low:.1f} to {high:.1f}); gradients averaged {after:4.1f} after backward")


# %% tags=["nbval-ignore-output"]
def events_of(name):
    begin, forward, backward, mean, end, arrived, sums = measured[name]
    found = [Event("rank 0", "forward", "compute", 0.0, forward - begin, 0.0, phase="forward")]
    for a, b in zip([forward, *arrived], [*arrived, backward]):
        found.append(Event("rank 0", "", "compute", a - begin, b - begin, a - begin, phase="backward"))
    found.append(Event("rank 0", "rest", "wait", backward - begin, mean - begin, backward - begin))
    found.append(Event("rank 0", "step", "compute", mean - begin, end - begin, mean - begin, phase="optimizer"))
    for i, (a, b) in enumerate(sums):
        found.append(Event(f"bucket {i} of rank 0", "all-reduce", "copy", a - begin, b - begin, a - begin))
    return found


events = events_of("bucketed")
lanes = list(dict.fromkeys(e.lane for e in events))
plot.timeline(events, "Measured: all-reduces begin during the backward pass", lanes=lanes)
_, _, backward, _, _, _, sums = measured["bucketed"]
assert len(sums) > 2 and all(begun < backward for begun, _ in sums)


# %% [markdown]
# White lines in the backward pass mark when gradients had been computed. The all-reduce of a bucket, a hatched bar,
# begins when its last gradient is there. No network card moves data meanwhile: on one machine buckets lie in shared
# memory, and a rank copies and adds between two gradients. So what the rank does for the sums lies within its bars of
# the backward pass, and a hatched bar ends when the rank looks again. The thin line ends when all gradients are
# averaged. Overlap saves waiting here, but no work.
#
# Copies can be saved. Autograd puts each gradient into memory of its own, from which it is copied into its bucket. But
# the gradient of a linear layer's weight is one product of matrices, whose result can be written to any place.
# `fuse_weight_gradients(model)` lets large layers write it into their bucket.

# %%
def copied(fused):
    """Bytes of gradients that a rank copies into its buckets in each step, and the gradients."""

    def rank(comm):
        torch.manual_seed(0)
        model = mlp((784, 1000, 1000, 10))
        if fused:
            fuse_weight_gradients(model)
        communicator = create_communicator("bucketed", comm)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE), communicator)
        with optimizer.no_sync():  # no all-reduce yet
            model(torch.ones(100, 784)).square().mean().backward()
        places = {place.data_ptr() for bucket in communicator.buckets for place in bucket.views.values()}
        gradients = [p.grad.clone() for p in model.parameters()]
        return sum(p.grad.nbytes for p in model.parameters() if p.grad.data_ptr() not in places), gradients

    return run(rank, P).results[0]


(all_bytes, plain), (few_bytes, placed) = copied(False), copied(True)
print(f"copied in each step: {all_bytes / 1e6:.2f} MB; with fuse_weight_gradients {few_bytes / 1e6:.2f} MB")
assert all(map(torch.equal, plain, placed)) and few_bytes < 0.01 * all_bytes

# %% [markdown]
# Only biases and a small last layer are still copied. No gradient has changed, to the last bit. The price is that such
# a gradient must not be read between the backward pass and the optimizer step, for it may be partly summed.
#
# `mpcourse bench data-parallel --np 2` compares this with torch's DDP: it trains an MLP, a small convolutional network
# and a small transformer with both, step by step in one run, and compares the parameters. Beside them run two processes
# that do not communicate, whose speed is the upper limit.

# %% [markdown]
# ## 68.0 s on one GPU, 90.6 s on two
#
# MirroredStrategy is TensorFlow's data parallelism for the GPUs of one machine. One process drives all of them. An
# article of 2018, in Japanese (its program is shu-yusa/tensorflow-mirrored-strategy-sample on GitHub), tried it on the
# MNIST tutorial, with 10 000 steps of 100 examples. One GTX 1080 took 68.0 s. Two of them, with 50 examples each, took
# 90.6 s. The test accuracies, 95.11 % and 95.15 %, differ by less than their standard error: with 10 000 test images
# each is known to 0.2 points.
#
# We fit one value to the first time: what a step costs besides its kernels (feeding images, starting a step from
# Python). Peaks and bandwidths are from data sheets. Which part of them is reached, and how long a launch and the
# shortest kernel take, are assumptions, which the cell varies. Then the second time is a prediction.
#
# **Predict first.** Half of the batch on each of two GPUs: do the kernels of a step take half as long, or as long as
# before?

# %%
GPU, LINK = "GTX 1080", "PCIe 3.0 x16"
steps, batch = MIRRORED_STRATEGY.steps, MIRRORED_STRATEGY.batch
published_one, published_two = MIRRORED_STRATEGY.seconds
alone = mirrored_seconds(1, batch, GPU, LINK)
half_alone = mirrored_seconds(1, batch // 2, GPU, LINK)
halves = mirrored_seconds(2, batch // 2, GPU, LINK)
rest = published_one / steps - alone
print(f"a step on one GPU: {1e3 * alone:.2f} ms of operations, {1e3 * rest:.2f} ms of everything else")
print(f"50 examples on one GPU alone: {1e3 * half_alone:.2f} ms of operations; on each of two: {1e3 * halves:.2f} ms")
predicted = steps * (halves + rest)
print(f"predicted {predicted:.1f} s, published {published_two} s: {100 * (predicted / published_two - 1):+.1f} %")
assert abs(predicted / published_two - 1) < 0.03 and 0.55 < half_alone / alone < 0.65 and 2 < halves / alone < 2.2
assert round(1e3 * (alone - half_alone), 1) == 0.9 and round(1e3 * (halves - half_alone), 1) == 3.3
gradients = 4 * sum(p.numel() for p in mnist_cnn().parameters())
one_way = gradients / LINKS[LINK].bandwidth
print(f"{gradients / 1e6:.1f} MB of gradients: {1e3 * one_way:.1f} ms in each direction of the link")
print(f"predicted {predicted - steps * one_way:.1f} s, if both directions are used at once")
low, high = MIRRORED_STRATEGY.accuracy
assert high - low < 0.002 < (low * (1 - low) / 10_000) ** 0.5 < 0.0025


def predicted_with(**changed):
    """The second time, if the data sheets' GPU is another one in what is assumed."""
    other = replace(GPUS[GPU], **changed)
    one, two = (mirrored_seconds(n, batch // n, other, LINK) for n in (1, 2))
    return published_one + steps * (two - one)


ASSUMED = {
    "launch": (4e-6, 16e-6),
    "kernel": (1e-6, 6e-6),
    "product_efficiency": (0.5, 1),
    "memory_efficiency": (0.5, 1),
}
others = [predicted_with(**{name: value}) for name, values in ASSUMED.items() for value in values]
print(f"with other assumptions: {min(others):.1f} to {max(others):.1f} s")
assert mirrored_seconds(2, batch // 2, replace(GPUS[GPU], launch=0.0), LINK) > 0.9 * halves  # so it is not launch-bound
assert published_one * 1.25 < min(others) and max(others) < published_one * 1.45

# %% [markdown]
# Half of the examples take twice the time. Kernels of 50 examples take 60 % of the time of those of 100, for some of
# their work does not depend on the batch: that saves 0.9 ms. But then gradients are averaged, which takes 3.3 ms. The
# network has 3.3 million parameters. Their gradients, 13 MB, go to one GPU in 1.1 ms, which computes the mean. Then
# the same happens in the other direction. (The host launches every kernel twice. But the step is not launch-bound: with
# launches that take no time it would be less than a tenth shorter.)
#
# As in torch, a copy occupies both GPUs here, so that the two directions follow each other. Whether TensorFlow sent
# both at once we do not know. If it did, we would predict 81 s, and the error would be 10 % instead of 2 %. So the
# explanation is this: in a step of 2 ms of kernels, averaging 13 MB costs more than halving the kernels saves. The
# prediction within 2 % is luck.
#
# ## What is the batch size?
#
# The article's author had to divide the batch size by hand. If it stays 100, each GPU takes 100 examples. Then 10 000
# steps are 2 million examples and not 1 million.

# %%
doubled = mirrored_seconds(2, batch, GPU, LINK)
for told, step, examples in (
    ("one GPU, 100", alone + rest, batch),
    ("two GPUs, 50 each: one batch of 100", halves + rest, batch),
    ("two GPUs, 100 each: a batch of 200", doubled + rest, 2 * batch),
):
    print(f"{told:36} {steps * step:5.1f} s for 10 000 steps, {1e6 / examples * step:5.1f} s for a million examples")
assert steps * (doubled + rest) > published_one and 1e6 / (2 * batch) * (doubled + rest) < published_one
slower = 1e6 / (2 * batch) * (doubled + 2 * rest)
print(f"the last row, if everything else takes twice as long for 200 examples: {slower:.1f} s for a million examples")
assert slower > published_one

# %% [markdown]
# Counted in steps, two GPUs with 100 examples each are slower than one. Counted in examples, they are faster, if
# everything else takes as long for 200 images as for 100. If it takes twice as long, they are slower by examples, too.
# And it is another training, with a batch of 200. Lesson 09 is about what that does to learning.
#
# When are two GPUs faster at the same batch? They are when halving the kernels saves more than averaging the gradients
# costs. How much faster they are depends on everything else: it may take 4.6 ms whatever the batch (solid lines), or
# grow with the examples, as feeding images would (lines without marks). Both cross "no gain" at the same place.

# %%
WORK = [50, 100, 200, 400, 800, 1600]
gains, grown = {}, {}
for width, name in ((1, "the network"), (4, "4 times the channels")):
    times = [[mirrored_seconds(p, n // p, GPU, LINK, width) for p in (1, 2)] for n in WORK]
    gains[name] = [(one + rest) / (two + rest) for one, two in times]
    more = [(one + rest * n / batch) / (two + rest * n / batch) for n, (one, two) in zip(WORK, times)]
    grown[f"{name}, all else grows with the examples"] = more
    assert [gain > 1 for gain in gains[name]] == [gain > 1 for gain in more]
plot.lines(
    WORK, gains, "examples a step, over all GPUs", "speedup of two GPUs",
    "Two GPUs win with more work for each", {"no gain": 1.0}, formulas=grown,
)  # fmt: skip
faster = [mirrored_seconds(2, n // 2, GPU, LINK, 4) < mirrored_seconds(1, n, GPU, LINK, 4) for n in (130, 150)]
assert faster == [False, True]
flops, elements = [], []
for width in (1, 4):
    model = mnist_cnn(width)
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(1, 1, 28, 28)).sum().backward()
    flops.append(counter.get_total_flops())
    elements.append(sum(p.numel() for p in model.parameters()))
assert 12.5 < flops[1] / flops[0] < 13.5 and 4 < elements[1] / elements[0] < 4.3

# %% [markdown]
# The article also says that two GPUs were faster on a more complex network. Here four times the channels are about 13
# times the FLOPs, and four times the gradients to send: two GPUs win from about 140 examples on. With 50 they lose, as
# on the small network.

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.data_parallel import Communicator

reference(Communicator.mean_gradients, MultiNodeOptimizer.step)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `create_communicator("naive")`, `"flat"`, `"hierarchical"`, `"two_dimensional"` | the same names in ChainerMN |
# | `"bucketed"` | PyTorch's DistributedDataParallel: buckets of 25 MiB, the first of 1 MiB; Horovod's fusion buffer |
# | `GradScaler`, which finds the mean | DDP; FSDP's ShardedGradScaler |
# | `fuse_weight_gradients` | gradient accumulation fusion in Megatron-LM: products are written into the bucket |
# | `MultiNodeOptimizer` | ChainerMN's `create_multi_node_optimizer`, Horovod's `DistributedOptimizer` |
# | `DoubleBufferedOptimizer` | ChainerMN's double buffering: gradients one step old |
# | `no_sync()` | DDP's `no_sync()`, which may be left out there, for more traffic |
# | `scatter_dataset`, `ShardSampler` | ChainerMN's `scatter_dataset`, torch's `DistributedSampler`, which repeats |
# | `evaluate`, `weighted_mean` | ChainerMN's multi-node evaluator |
# | `convert_batch_norm` | `nn.SyncBatchNorm.convert_sync_batchnorm` |
# | `Checkpointer` | ChainerMN's multi-node checkpoint; torch's distributed checkpoint |
# | the consistency check before each all-reduce: do all ranks reduce the same? | `TORCH_DISTRIBUTED_DEBUG=DETAIL` |
#
# Some rows were not shown above. Each has a docstring in `mpcourse.data_parallel`.
#
# Two things are missing here: gradients that are sent in 16 bits, and models that do not fit into the memory of one
# rank, which are the subject of lesson 10.
#
# Next comes lesson 07: why should all ranks wait for the slowest?
