# %% [markdown]
# # 06 Data parallelism
#
# **What is ChainerMN?** About 55 minutes to read, and 230 for its exercises.
#
# In November 2017, Akiba, Suzuki and Fukuda trained ResNet-50 on ImageNet in 15 minutes, on 1024 GPUs [1]. They wrote
# their program in Chainer, a deep-learning framework that built its graph while the program ran, as PyTorch does.
# (Chainer's makers moved to PyTorch in 2019 [2].) ChainerMN was Chainer's library for many GPUs [3]. With it, changing
# four lines turns a program for one GPU into one for many. Every process has a copy of the whole model, a replica, and
# trains it on its own share of each batch. Between the backward pass and the optimizer step, the processes replace each
# gradient by its mean over all processes. This is data parallelism.
#
# After this lesson you can
#
# - turn a training loop for one process into one for many, with ChainerMN's four lines and with PyTorch's
#   `DistributedDataParallel`, and test that both programs learn what one process learns;
# - recognise five mistakes that raise no error;
# - clip gradients, accumulate them and use batch norm on several ranks without changing the result;
# - predict how much communication time the backward pass can hide, and find the hidden part in a profiler's trace.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("06_data_parallel")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import contextlib
from functools import partial
from pathlib import Path
from textwrap import fill

import torch
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.data import course_text, digits, draw_batch
from mpcourse.data_parallel import (
    COMMUNICATORS,
    MultiNodeOptimizer,
    convert_batch_norm,
    create_communicator,
    evaluate,
    share_of,
)
from mpcourse.models import mlp
from mpcourse.models.gpt import gpt, token_loss
from mpcourse.studies.compare import difference
from mpcourse.virtual import MPI, Deadlock, compute, run

DATA, TEXT = digits(), course_text()
IMAGES, LABELS = DATA.train.images.double(), DATA.train.labels
torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves
WIDTHS = (64, 32, 10)

# %% [markdown]
# ## One process
#
# A small MLP learns to read handwritten digits. The training set has 1437 images, and we use plain SGD with batches of
# 64.

# %%
BATCH, RATE = 64, 0.2


def batches(steps, batch=BATCH, seed=1):
    """Return the numbers of the examples of each step. All ranks draw them from the same seed, so they are equal."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randperm(len(IMAGES), generator=generator)[:batch] for _ in range(steps)]


def loss_of(model, chosen, dtype=torch.float64):
    return F.cross_entropy(model(IMAGES[chosen].to(dtype)), LABELS[chosen])


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def whole(steps, batch=BATCH, rate=RATE, dtype=torch.float64, part=slice(None)):
    """Train in one process, on the given part of each batch. Return all parameters in one tensor."""
    torch.manual_seed(0)
    model = mlp(WIDTHS).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for chosen in batches(steps, batch):
        optimizer.zero_grad()
        loss_of(model, chosen[part], dtype).backward()
        optimizer.step()
    return flat(model)


# %% [markdown]
# ## Two processes
#
# The next cell numbers the four lines that make the loop data parallel. "flat" is one of five ways to compute the mean
# (listed below). `share_of` returns the indices, within a batch, of this rank's examples. The ranks begin with
# different parameters on purpose. `run(program, 2)` calls `program(comm)` on two virtual ranks, as in lesson 05.

# %% tags=["nbval-ignore-output"]
def together(comm, steps, dtype=torch.float64):
    torch.manual_seed(comm.rank)
    model = mlp(WIDTHS).to(dtype)
    communicator = create_communicator("flat", comm)  # 1
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    optimizer = MultiNodeOptimizer(optimizer, communicator)  # 2: gives all ranks the parameters of rank 0
    for chosen in batches(steps):
        mine = chosen[share_of(len(chosen), comm.rank, comm.size)]  # 3
        optimizer.zero_grad()
        loss_of(model, mine, dtype).backward()
        optimizer.step()  # 4: first the mean over ranks, then the optimizer step
    return flat(model)


offs = {}
for dtype in (torch.float64, torch.float32):
    ranks = run(partial(together, steps=3, dtype=dtype), 2).results
    alike = "the same bits" if torch.equal(*ranks) else "different bits"
    offs[dtype] = (ranks[0] - whole(3, dtype=dtype)).abs().max().item()
    print(f"{str(dtype)[6:]}: both ranks have {alike}, and differ from one process by {offs[dtype]:.0e}")

# %% tags=["checked"]
# checked: float64 agrees to 1e-14, and more than a million times better than float32
assert torch.equal(*ranks) and offs[torch.float64] < 1e-14
assert 1e6 * offs[torch.float64] < offs[torch.float32] < 1e-5


# %% [markdown]
# The parameters are identical bit for bit on both ranks, and almost identical to those of one process. One process sums
# the gradients of 64 examples. Two ranks sum 32 each, and then add the two sums. Only the order of additions differs.
# Float64 rounds more finely, so the difference in float64 is less than a millionth of the difference in float32.
#
# The ranks use the mean, not the sum, because the loss is a mean over examples. The mean of two means over 32 examples
# each is the mean over all 64.
#
# Only one rank should print; otherwise each line would appear once per rank. Programs therefore contain `if comm.rank
# == 0: print(...)`. A collective call inside this `if` is a mistake, because only rank 0 makes it. In the next cell,
# both ranks call an all-reduce of the number 10, but rank 0 first calls one of the number 1.

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


# %% [markdown]
# MPI matches all-reduces only by the order in which each rank calls them. It pairs rank 0's first all-reduce with rank
# 1's first, so the printed sum is wrong. At the end, rank 0 waits for a call that rank 1 never makes. Compute the value
# on all ranks before the `if`, and only print it inside.
#
# Exercise [`e06_allreduce_gradients`](../exercises/e06_allreduce_gradients.py): write the first half of line 4, which
# computes the mean. Some gradients may be None.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_allreduce_gradients

# %% [markdown]
# Exercise [`e06_multi_node_optimizer`](../exercises/e06_multi_node_optimizer.py): write the optimizer of lines 2 and 4.
# The training loop uses it like the optimizer that it wraps.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_multi_node_optimizer

# %% [markdown]
# The four lines do not depend on the model. The next cell trains a small GPT, which predicts the next character of this
# course's text, on one rank and then on two. Each step uses 16 sequences of 64 characters.

# %%
def train_gpt(comm, steps=3):
    torch.manual_seed(comm.rank)
    model = gpt().double()
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), create_communicator("flat", comm))
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x, y = draw_batch(TEXT.train, 16, 64, generator)
        mine = share_of(16, comm.rank, comm.size)
        optimizer.zero_grad()
        token_loss(model(x[mine]), y[mine]).backward()
        optimizer.step()
    return flat(model)


(one,) = run(train_gpt, 1).results
equal = [torch.allclose(rank, one, rtol=0, atol=1e-12) for rank in run(train_gpt, 2).results]
print(f"{len(one)} parameters, on both ranks equal to those of one process to 1e-12: {all(equal)}")

# %% [markdown]
# ## Five mistakes
#
# The next function trains on four ranks, correctly or with one of five mistakes. No mistake raises an error or makes
# the program hang, and with each of them the test accuracy rises.
#
# - **Sum, not mean.** The ranks sum their gradients, and do not divide by the number of ranks.
# - **No broadcast.** The ranks begin with different parameters.
# - **Same shard.** A rank's part of the data is its **shard**. All ranks train on the shard of rank 0.
# - **Mean of means.** Ranks 0 to 2 have 21 examples each, and rank 3 has only one. Each takes the mean over its own
#   examples.
# - **Batch not divided.** Each rank takes as many examples as the single process did.

# %%
STEPS, EVERY, P, SEEDS = 46, 2, 4, 4


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
        mine = chosen[share_of(len(chosen), 0 if mistake == "same shard" else comm.rank, comm.size)]
        if mistake in ("mean of means", "weighted"):
            edges = [0, 21, 42, 63, 64]
            mine = chosen[edges[comm.rank] : edges[comm.rank + 1]]
        optimizer.zero_grad()
        loss = loss_of(model, mine)
        (loss * communicator.share(len(mine)) if mistake == "weighted" else loss).backward()
        communicator.mean_gradients(model)
        if mistake == "sum, not mean":
            for p in model.parameters():
                p.grad *= comm.size
        optimizer.step()
        if comm.rank == 0 and step % EVERY == EVERY - 1:
            right = model(DATA.test.images.double()).argmax(1) == DATA.test.labels
            curve.append(100 * right.double().mean().item())
    return curve, flat(model), first


# %% [markdown]
# **Predict first.** Three of the mistakes have the same effect as a changed setting in a correct program. Which three,
# and which settings? Which mistakes can make a program look *better* than the correct one?

# %% tags=["answer", "nbval-ignore-output"]
# answer
MISTAKES = ["sum, not mean", "no broadcast", "same shard", "mean of means", "batch not divided"]
runs = {
    name: [run(partial(mistaken, mistake=name, seed=seed), P, record=False).results for seed in range(SEEDS)]
    for name in ["right", *MISTAKES]
}
final = {name: of_seeds[0][0][1] for name, of_seeds in runs.items()}
equal = {
    "right": ("one process with a batch of 64", whole(STEPS)),
    "sum, not mean": (f"{P} times the learning rate", whole(STEPS, rate=P * RATE)),
    "same shard": ("a batch of 16", whole(STEPS, part=slice(16))),
    "batch not divided": ("a batch of 256", whole(STEPS, P * BATCH)),
}
for name, (settings, parameters) in equal.items():
    print(f"{name:17} equals {settings} to {(final[name] - parameters).abs().max():.0e}")
curves = {name: [ranks[0][0] for ranks in of_seeds] for name, of_seeds in runs.items()}
learnt = {name: [sum(curve) / len(curve) for curve in of_seeds] for name, of_seeds in curves.items()}
minus_right = {name: difference(learnt[name], learnt["right"], paired=True) for name in MISTAKES}
print("mean of the learning curve, minus that of the correct program (points):")
for name, compared in minus_right.items():
    print(f"{name:17} {compared}")
title = f"Test accuracy with each mistake, {SEEDS} seeds"
steps = [EVERY * (i + 1) for i in range(STEPS // EVERY)]
plot.against_reference(steps, curves, "right", "with the mistake", "steps", "test accuracy (%)", title)
None

# %% tags=["checked"]
# checked: three mistakes equal other settings, two learn faster, the others slower, and all learn
assert all((final[name] - parameters).abs().max() < 1e-10 for name, (_, parameters) in equal.items())
assert all(torch.equal(final["same shard"], parameters) for _, parameters, _ in runs["same shard"][0])
assert [name for name, compared in minus_right.items() if compared.low > 0] == ["sum, not mean", "batch not divided"]
assert sum(compared.high < 0 for compared in minus_right.values()) == 3
assert min(learnt, key=lambda name: sum(learnt[name])) == "no broadcast"
assert all(min(curve[-1] - curve[0] for curve in of_seeds) > 5 for of_seeds in curves.values())
a, b = runs["no broadcast"][0][:2]
before, after = (a[2] - b[2]).norm().item(), (a[1] - b[1]).norm().item()
assert abs(before - after) < 1e-9 and before > 1
assert (final["mean of means"] - final["right"]).norm() > 0.02 * final["right"].norm()
weighted = run(partial(mistaken, mistake="weighted"), P, record=False).results[0][1]
assert (weighted - final["right"]).abs().max() < 1e-10  # communicator.share() mends it


def with_adam(factor):
    torch.manual_seed(0)
    model = mlp(WIDTHS).double()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for chosen in batches(STEPS):
        optimizer.zero_grad()
        (factor * loss_of(model, chosen)).backward()
        optimizer.step()
    return flat(model)


assert (with_adam(P) - with_adam(1)).norm() < 1e-3 * with_adam(1).norm()


# %% [markdown]
# <details><summary>Why</summary>
#
# - **Sum, not mean** multiplies the learning rate of SGD by p. Here the larger rate happens to be better. Adam divides
#   by the size of the gradients, which hides the mistake.
# - **No broadcast.** All ranks add the same updates to different parameters, so the parameters never become equal. Each
#   rank uses the mean of four gradients, and three of them belong to other models. This program learns the least.
# - **Same shard.** All four ranks train on the same quarter of each batch. Their parameters are identical, so a test
#   that compares ranks does not find this mistake.
# - **Mean of means.** The single example of rank 3 counts as much as 21 examples of another rank. In practice, this
#   happens in the last, shorter batch of an epoch, and in every step if the loss is a mean over tokens of texts with
#   different lengths. A rank with n examples must multiply its loss by `communicator.share(n)`.
# - **Batch not divided** makes the batch p times as large. Often this is a good decision, but it changes the training.
#
# In the figure, a line is the mean over four seeds, and its band extends two standard errors to each side. With two of
# the mistakes, the program learns faster than the correct one, because it takes larger steps or sees four times as many
# examples. So a good learning curve does not show that a program is correct.
#
# </details>
#
# `MultiNodeOptimizer` prevents two of the mistakes. It broadcasts the parameters when it is made, and its
# `step(examples=n)` raises an error on every rank if the ranks have different numbers of examples.
#
# Another mistake concerns **gradient clipping**, which scales a gradient down to a given norm if its norm is larger.
# Clip the gradient after it has been averaged over the ranks. A rank's own gradient, of 16 examples here, is noisier
# than the mean, so its norm is larger, and each rank would scale its gradient by a different factor.

# %%
def clipped(comm, when, most=0.7):
    torch.manual_seed(0)
    model, norms = mlp(WIDTHS).double(), []
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE), create_communicator("flat", comm))
    for chosen in batches(STEPS):
        optimizer.zero_grad()
        loss_of(model, chosen[share_of(len(chosen), comm.rank, comm.size)]).backward()
        if when == "after":
            optimizer.mean_gradients()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), most).item())
        optimizer.step()  # averages first, unless mean_gradients() has done so
    return flat(model), sum(norms) / len(norms)


one, one_norm = run(partial(clipped, when="before"), 1, record=False).results[0]
for when in ("after", "before"):
    model, norm = run(partial(clipped, when=when), P, record=False).results[0]
    off = 100 * ((model - one).norm() / one.norm()).item()
    print(f"clipped {when} the mean: norms of {norm:.2f} on average, parameters {off:.1f} % off one process")

# %% tags=["checked"]
# checked: clipped before the mean, norms are larger and the parameters are wrong
assert norm > 1.2 * one_norm and off > 2


# %% [markdown]
# ## Gradient accumulation
#
# A rank's batch may be too large for its memory. The rank then cuts the batch into micro-batches, and `backward` adds
# their gradients to `.grad` (gradient accumulation, lesson 01). One all-reduce after the last micro-batch is enough.
# `no_sync()` skips the all-reduces after the earlier micro-batches. The next cell trains with and without `no_sync()`.
# Its communicator, "bucketed", begins all-reduces during the backward pass.

# %%
def accumulated(comm, leave_out, parts=4):
    torch.manual_seed(0)
    model = mlp(WIDTHS).double()
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), RATE), create_communicator("bucketed", comm))
    for chosen in batches(3):
        optimizer.zero_grad()
        *others, last = chosen[share_of(len(chosen), comm.rank, comm.size)].chunk(parts)
        for mine in others:
            with optimizer.no_sync() if leave_out else contextlib.nullcontext():
                (loss_of(model, mine) / parts).backward()
        (loss_of(model, last) / parts).backward()
        optimizer.step()
    return flat(model)


with_it, _ = run(partial(accumulated, leave_out=True), 2).results
print("with no_sync(), equal to one process to 1e-12:", torch.allclose(with_it, whole(3), rtol=0, atol=1e-12))
try:
    run(partial(accumulated, leave_out=False), 2)
except RuntimeError as error:
    print(fill(f"without: {error}", 100))


# %% [markdown]
# Without `no_sync()`, the all-reduce of the first micro-batch is already reading a gradient when the second micro-batch
# adds to it, so the library raises an error. PyTorch's `DistributedDataParallel` completes the all-reduce within each
# `backward()`. Its gradients are right even without `no_sync()`, but each micro-batch causes the traffic of an
# all-reduce.
#
# ## Batch norm over ranks
#
# Batch norm computes the mean and the variance over the batch. On each rank, it sees only that rank's share, so p ranks
# train a different model from that of one process. In **synchronised batch norm**, the ranks compute the statistics of
# all their examples together. This needs one all-reduce in the forward pass and one in the backward pass. In the next
# cell, each of four ranks trains for three steps of 4 examples.

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
        optimizer.zero_grad()
        loss_of(model, chosen[share_of(len(chosen), comm.rank, comm.size)]).backward()
        optimizer.step()
    return flat(model)


(one,) = run(partial(normed, synced=False), 1, record=False).results
for synced in (False, True):
    ours = run(partial(normed, synced=synced), P, record=False).results[0]
    off = ((ours - one).norm() / one.norm()).item()
    print(f"statistics of {'all 16' if synced else '4'} examples: {100 * off:.1f} % off one process with 16")

# %% [markdown]
# Exercise [`e06_sync_batch_norm`](../exercises/e06_sync_batch_norm.py): write synchronised batch norm, with one
# all-reduce in each direction.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_sync_batch_norm

# %% [markdown]
# ## Which rank learns from which examples
#
# Four ranks cannot have equal parts of 1437 examples. Either the shards' lengths differ by one, or some examples are in
# two shards, or the last examples are in none. All ranks must shuffle with the same seed. If each rank shuffles with
# its own seed, some examples are in several shards and others in none.

# %%
for shards in ("exact", "repeat", "drop"):
    lengths = [len(share_of(1437, rank, P, shuffle=True, seed=3, shards=shards)) for rank in range(P)]
    print(f"{shards:7} {lengths}, {sum(lengths)} examples")
for name, seeds in (("the same seed", [3] * P), ("a seed for each rank", range(P))):
    seen = {i for rank, seed in enumerate(seeds) for i in share_of(1437, rank, P, shuffle=True, seed=seed).tolist()}
    print(f"{name}: {len(seen)} of 1437 examples are in some shard, {len(seen) / 1437:.0%}")

# %% [markdown]
# An example is in none of four random quarters with probability (3/4)^4. So on average 1 - (3/4)^4, or 68 %, of the
# examples are in at least one shard.
#
# Exercise [`e06_scatter_dataset`](../exercises/e06_scatter_dataset.py): which examples are in which rank's shard?

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_scatter_dataset

# %% [markdown]
# Test results need weights, too. If rank 0 has 9 of 10 examples right, rank 1 has 1 of 2, and rank 2 has no examples,
# the accuracy is 10 / 12 = 0.83. The mean of the three accuracies 0.9, 0.5 and 0 would be 0.47.
#
# Exercise [`e06_evaluate`](../exercises/e06_evaluate.py): compute the accuracy over all ranks.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_evaluate

# %% tags=["checked"]
# checked: `evaluate` returns 10 / 12, and the mean of the three accuracies is 0.47


def accuracy_of_all(comm):
    correct, count = [(9, 10), (1, 2), (0, 0)][comm.rank]
    return evaluate(create_communicator("flat", comm), correct, count)


assert run(accuracy_of_all, 3).results == [10 / 12] * 3
assert round((9 / 10 + 1 / 2 + 0) / 3, 2) == 0.47 and round(10 / 12, 2) == 0.83

# %% [markdown]
# ## What the mean costs
#
# The library has five communicators, which compute the mean in five ways.
#
# - **naive** performs an all-reduce for each parameter.
# - **flat** copies all gradients into one buffer and performs one all-reduce.
# - **bucketed** copies the gradients into several buffers of a given size, the **buckets**. The all-reduce of a bucket
#   begins when its gradients have been computed, while the backward pass goes on to earlier layers. Communication
#   during computation is called **overlap**.
# - **hierarchical** and **two_dimensional** are made for machines with several ranks. The appendix [06, eight ranks on
#   two machines](appendix/06_eight_ranks.ipynb) compares all five on such machines.
#
# An all-reduce consists of several messages, with additions between them. If it is to continue while the rank computes
# gradients, something must start each message after the previous one. This is called **progress**. gloo has a thread
# for it, and NCCL, a library for collectives between NVIDIA's GPUs, leaves it to the GPU. "bucketed" does neither: it
# continues its all-reduces only when the rank calls `progress()`, here after each gradient.
#
# Two machines with one rank each, joined by a link of 10 Gbit/s, train an MLP of five layers. Its gradients take up n =
# 6.2 MB. The virtual clock counts only the time of messages, so `compute` adds the time of computing: 4 ms for the
# forward pass, and 8 ms for the backward pass, divided among the layers in proportion to their parameters.

# %%
LAYERS = (784, 600, 600, 600, 600, 10)
FORWARD, BACKWARD = 0.004, 0.008


def charge_backward(comm, model, communicator, seconds):
    """Charge each layer's part of the backward pass as soon as autograd has computed its gradient."""
    n = sum(p.numel() for p in model.parameters())

    def computed(p):
        compute(comm, seconds * p.numel() / n, "backward")
        communicator.progress()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(computed)


def step_by(name, link="10 GbE", bucket_kib=1024):
    """Run two steps. Return the events and the seconds of the second one."""

    def program(comm):
        model = mlp(LAYERS)
        sizes = dict.fromkeys(("bucket_bytes", "first_bucket_bytes"), bucket_kib << 10) if name == "bucketed" else {}
        communicator = create_communicator(name, comm, **sizes)
        charge_backward(comm, model, communicator, BACKWARD)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator)
        for _ in range(2):
            comm.Barrier()
            begin = MPI.Wtime()
            optimizer.zero_grad()
            compute(comm, FORWARD, "forward")
            model(torch.ones(2, 784)).sum().backward()
            optimizer.step()
        return begin, MPI.Wtime()

    done = run(program, 2, link)
    begin, end = done.results[0]
    shown = [e for e in done.events if e.start >= begin and e.lane in ("rank 0", "rank 0 -> rank 1")]
    return shown, end - begin


# %% [markdown]
# **Predict first.** The link carries 1.2 GB/s in each direction. How long does a step take with "flat"? What is the
# least time that it can take with "bucketed", if each bucket holds about one layer?

# %% tags=["answer"]
# answer
events, took = {}, {}
for name in ("naive", "flat", "bucketed"):
    events[name], took[name] = step_by(name)
    print(f"{name:9} {1e3 * took[name]:.1f} ms")
plot.timeline(events, "A training step with three communicators, and what rank 0 sends")
None

# %% tags=["checked"]
# checked: n is 6.2 MB, "flat" adds a little more than 5 ms, and "bucketed" hides more than half of this
nbytes = 4 * sum(p.numel() for p in mlp(LAYERS).parameters())
assert round(nbytes / 1e6, 1) == 6.2 and 5.0 < 1e3 * (took["flat"] - FORWARD - BACKWARD) < 6
assert 1.5 < 1e3 * (took["bucketed"] - FORWARD - BACKWARD) < 2.5 and took["naive"] > took["flat"]

# %% [markdown]
# <details><summary>Why</summary>
#
# In an all-reduce between two ranks, each rank sends n bytes, which takes 5.2 ms. "flat" adds this time and a few
# latencies to the 12 ms of computing. With "bucketed", the backward pass can hide all buckets but the last. The last
# bucket holds the gradient of the first layer, whose 1.9 MB take 1.6 ms to send. So a step takes at least 13.6 ms.
#
# In the figure, the light bar is the forward pass. The backward pass goes from the last layer, whose bar is too short
# to be seen, to the first. A hatched bar is a message that rank 0 sends to rank 1.
#
# </details>
#
# **Predict first.** Suppose the link carries 1, 10 or 56 Gbit/s (InfiniBand FDR). With which of the three does overlap
# shorten the step by the largest factor?

# %% tags=["answer"]
# answer
gain = {}
for link in ("1 GbE", "10 GbE", "InfiniBand FDR"):
    one_bucket, many = (1e3 * step_by("bucketed", link, kib)[1] for kib in (16384, 1024))
    gain[link] = one_bucket / many
    print(f"{link:15} one bucket {one_bucket:5.1f} ms, buckets of 1 MiB {many:5.1f} ms: {gain[link]:.2f} times as fast")

# %% tags=["checked"]
# checked: the gain is largest with 10 GbE, and below a factor of 1.15 with the others
assert max(gain, key=gain.get) == "10 GbE" and sorted(gain.values())[1] < 1.15


# %% [markdown]
# <details><summary>Why</summary>
#
# With one bucket, nothing overlaps. Overlap helps most if the all-reduce takes about as long as the backward pass, as
# it does with 10 Gbit/s. With 1 Gbit/s, the all-reduce takes more than 50 ms, and overlap can hide at most the 8 ms of
# the backward pass. The rest is **exposed communication**, during which the ranks compute nothing. With InfiniBand,
# there is little to hide.
#
# </details>
#
# Move the sliders. Which bucket size is best for each link?

# %% tags=["nbval-ignore-output"]
def try_it(communicator="bucketed", bucket_kib=1024, link="1 GbE"):
    shown, seconds = step_by(communicator, link, bucket_kib)
    return plot.timeline(shown, f"{communicator}, {bucket_kib} KiB a bucket, {link}: {1e3 * seconds:.1f} ms a step")


plot.sliders(
    try_it, communicator=["bucketed", *(name for name in COMMUNICATORS if name != "bucketed")],
    bucket_kib=[1024, 2048, 4096, 16384], link=["1 GbE", "10 GbE", "InfiniBand FDR"],
)  # fmt: skip

# %% [markdown]
# Exercise [`e06_bucket_overlap`](../exercises/e06_bucket_overlap.py): write buckets that overlap, with hooks and
# non-blocking all-reduces.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e06_bucket_overlap

# %% [markdown]
# ## The same in PyTorch
#
# `DistributedDataParallel` (DDP) does in PyTorch what lines 1, 2 and 4 do, and `DistributedSampler` does what line 3
# does. The function `train` accumulates the gradients of two micro-batches in each step and clips them. The program
# trains a wider MLP on the digits, and the profiler records what each thread does.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)
torch.save((IMAGES.flatten(1), LABELS), "scratch/digits.pt")

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/accumulate.py
import torch
from torch.nn.functional import cross_entropy


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    for x, y in loader:
        with model.no_sync():  # forward pass and backward pass
            (cross_entropy(model(x[:32]), y[:32]) / 2).backward()
        (cross_entropy(model(x[32:]), y[32:]) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
        optimizer.step()
        optimizer.zero_grad()


# %% tags=["nbval-ignore-output"]
# %%writefile scratch/ddp.py
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a process group, which its functions would keep
from accumulate import train
from torch.profiler import profile
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from mpcourse.models import mlp

dist.init_process_group("gloo")  # or "nccl", with model and batches on the GPU of this process
data = TensorDataset(*torch.load("scratch/digits.pt"))
sampler = DistributedSampler(data, seed=1)  # other examples on each rank
loader = DataLoader(data, batch_size=64, sampler=sampler, drop_last=True)
torch.manual_seed(dist.get_rank())
model = mlp((64, 600, 600, 600, 10)).double()
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)  # broadcasts parameters
with profile() as trace:
    train(model, loader)
torch.save(model.module.state_dict(), f"scratch/ddp{dist.get_rank()}.pt")
trace.export_chrome_trace(f"scratch/ddp{dist.get_rank()}.json")
del model  # or else gloo's threads outlive the group, and may abort Python's exit
dist.destroy_process_group()

# %% tags=["nbval-ignore-output"]
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/ddp.py 2> scratch/torchrun.log

# %% [markdown]
# The next cell runs the same program with our library, on two virtual ranks with a link of 10 Gbit/s. Its computing
# times are assumptions.

# %%
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

data = TensorDataset(IMAGES, LABELS)


def ours(comm):
    torch.manual_seed(comm.rank)
    model = mlp((64, 600, 600, 600, 10)).double()
    communicator = create_communicator("bucketed", comm, bucket_bytes=1 << 20)
    charge_backward(comm, model, communicator, 0.002)
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.2), communicator)
    sampler = DistributedSampler(data, comm.size, comm.rank, seed=1)
    for x, y in DataLoader(data, 64, sampler=sampler, drop_last=True):
        compute(comm, 0.001, "forward")
        with optimizer.no_sync():
            (F.cross_entropy(model(x[:32]), y[:32]) / 2).backward()
        compute(comm, 0.001, "forward")
        (F.cross_entropy(model(x[32:]), y[32:]) / 2).backward()
        optimizer.mean_gradients()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
        compute(comm, 0.001, "optimizer")
        optimizer.step()
        optimizer.zero_grad()
    return flat(model)


done = run(ours, 2, "10 GbE")
theirs = torch.cat([p.flatten() for p in torch.load("scratch/ddp0.pt").values()])
print("11 steps, equal to DDP to 1e-12:", torch.allclose(done.results[0], theirs, rtol=0, atol=1e-12))

# %% [markdown]
# Five notes on DDP:
#
# - DDP completes the mean within `backward()`, so clip right after it. With "bucketed", call `mean_gradients()` first.
# - `no_sync()` must enclose the forward pass, too, because DDP decides there whether the backward pass averages.
# - DDP divides by the number of ranks, so it computes a mean of means unless all batches are equally long.
# - `DistributedSampler` makes all shards equally long by repeating examples. Do not compute test results with it. Call
#   `sampler.set_epoch(n)` before epoch n, or all epochs have the same order.
# - By default, the first bucket holds 1 MiB and the others 25 MiB. `bucket_cap_mb` sets the size of all.
#
# `nn.SyncBatchNorm.convert_sync_batchnorm(model)` replaces all batch norms by synchronised ones, which work only on
# GPUs. On a CPU, their forward pass raises an error if there is a process group. (The message names vgpu because this
# course registers its virtual GPUs with PyTorch.)

# %%
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
try:
    torch.nn.SyncBatchNorm(16)(torch.ones(4, 16))
except ValueError as error:
    print(error)
dist.destroy_process_group()


# %% [markdown]
# `scratch/ddp0.json` is the trace of rank 0. <https://ui.perfetto.dev> shows every operation in it. The next figure
# shows a predicted training step, and the fastest of nine measured ones.

# %% tags=["nbval-ignore-output"]
def one_step(events, number=6):
    ends = [e.end for e in events if e.lane == "rank 0" and e.phase == "optimizer"]
    inside = [e for e in events if ends[number - 1] <= e.start < ends[number]]
    return [e for e in inside if e.lane.endswith("rank 0") != ("->" in e.lane)]  # rank 0 and what it sends


measured = [one_step(plot.read_trace("scratch/ddp0.json"), number) for number in range(2, 11)]
fastest = min(measured, key=lambda step: step[-1].end - step[0].start)
steps = {
    "predicted: two machines, 10 Gbit/s": one_step(done.events),
    "measured by torch.profiler: two processes on this machine, DDP with gloo": fastest,
}
plot.timeline(steps, "A step of two micro-batches, with one all-reduce in buckets: rank 0")
None

# %% tags=["checked"]
# checked: the first backward pass of a step averages nothing, and an all-reduce begins before the second one ends


def begins(events):
    second = [e.start for e in events if e.phase == "forward"][1]
    begun = min(e.start for e in events if e.kind == "copy")
    return second < begun, begun < max(e.end for e in events if e.phase == "backward")


assert begins(one_step(done.events)) == (True, True)
in_time = [begins(events) for events in measured]
assert all(late for late, _ in in_time) and any(overlaps for _, overlaps in in_time)

# %% [markdown]
# Both panels show the same order of events. The backward pass of the first micro-batch is within `no_sync()`, so no
# all-reduce follows it. During the second backward pass, the all-reduces of the buckets begin. The optimizer step comes
# after the last all-reduce. All threads share this machine's cores, so an all-reduce slows down the computation that it
# overlaps. The appendix [06, this machine](appendix/06_this_machine.ipynb) measures how much time overlap saves.
#
# ## The reference implementation
#

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
# | `"bucketed"` | DDP's reducer; Horovod's fusion buffer |
# | `MultiNodeOptimizer` | ChainerMN's `create_multi_node_optimizer`, Horovod's `DistributedOptimizer` |
# | `scatter_dataset`, `ShardSampler` | ChainerMN's `scatter_dataset`, PyTorch's `DistributedSampler` |
# | `evaluate`, `weighted_mean` | ChainerMN's multi-node evaluator |
# | `convert_batch_norm` | `nn.SyncBatchNorm.convert_sync_batchnorm` |
#
# The appendices cover what is left out here: [float16 and its loss scale](appendix/06_loss_scaling.ipynb), and
# [snapshots, from which a run continues after a rank is killed](appendix/06_snapshots.ipynb).
#
# 1. Takuya Akiba, Shuji Suzuki and Keisuke Fukuda, *Extremely Large Minibatch SGD: Training ResNet-50 on ImageNet in 15
#    Minutes*, 2017, <https://arxiv.org/abs/1711.04325>
# 2. Seiya Tokui, *Looking Back on Chainer*, 2019, <https://beam2d.net/blog/2019/12/10/chainer-look-back-en>
# 3. Takuya Akiba, Keisuke Fukuda and Shuji Suzuki, *ChainerMN: Scalable Distributed Deep Learning Framework*, 2017,
#    <https://arxiv.org/abs/1710.11351>
# 4. shu-yusa, *TensorFlow MirroredStrategy sample*, 2018,
#    <https://github.com/shu-yusa/tensorflow-mirrored-strategy-sample>
#
# ## Problems
#
# **1.** A program from 2018 [4] took 68.0 s for 10 000 steps of 100 images each on one GTX 1080. On two such GPUs, with
# 50 images on each, it took 90.6 s. The network has 3.3 million parameters. By our prediction, its kernels take 2.2 ms
# for 100 images and 1.3 ms for 50. One GPU collects the float32 gradients over a link of 12 GB/s and sends the mean
# back. Why are two GPUs slower than one?
#
# **2.** Assume that an H100 computes 400 TFLOP/s when it trains a language model, and that it can send and receive 50
# GB/s. A backward pass needs 4 N FLOPs for each token, where N is the number of parameters. The gradients are bfloat16.
# How many tokens must each GPU process in a step, so that the backward pass can hide a ring all-reduce over many GPUs?

# %% tags=["answer"]
# answer
saved, cost = 2.2 - 1.3, 2 * 3.3e6 * 4 / 12e9 * 1e3
print(f"1. Half of the batch saves {saved:.1f} ms a step. The gradients, 13 MB, cross the link twice: {cost:.1f} ms.")
print(f"   10 000 steps take {10 * (cost - saved):.0f} s longer, from these two alone. Published: {90.6 - 68.0:.1f} s")
print("2. A ring sends almost 2 n bytes, and n = 2 N. 4 N / 50 GB/s = 4 N tokens / 400 TFLOP/s, whatever N is:")
print(f"   {400e12 / 50e9:.0f} tokens")

# %% [markdown]
# The appendix [06, 68.0 s on one GPU and 90.6 s on two](appendix/06_mirrored_strategy.ipynb) predicts the published
# time from all operations of a step.
#
# ## What you found
#
# - Four changed lines make a training loop data parallel. An MLP and a GPT trained on two ranks equal those trained in
#   one process, except for rounding. `DistributedDataParallel` and our library compute the same parameters.
# - Five mistakes raise no error, and with two of them the program learns faster than the correct one. Compare the
#   parameters with those of one process, because a learning curve does not reveal such a mistake.
# - Clip gradients after they have been averaged, skip all-reduces while gradients accumulate, and compute batch norm's
#   statistics over all ranks.
# - Overlap hides at most the time of the backward pass, and helps most if the all-reduce takes about as long as that
#   pass.
#
# Next comes lesson 07: why should all ranks wait for the slowest one?
