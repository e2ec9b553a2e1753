# %% [markdown]
# # 02 Split with copy
#
# **What if one layer's work is split over two GPUs?** About 55 minutes to read, and 70 for its exercises.
#
# To divide one network among devices is **model parallelism**. It has two kinds: whole layers on different devices
# (**inter-layer**, lesson 03), or each layer cut in pieces (**intra-layer**, this lesson).
#
# In November 2015 a blog post tried the model-parallel MNIST network of Chainer's examples: half of it on each of two
# GPUs, which send each other their results with `F.copy`. The post found hardly an effect: up to the sixth epoch or so,
# all was as on one GPU.
#
# We run that network again, on two virtual GPUs, and ask what the post could not: what did the two GPUs wait for?

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("02_split_with_copy")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from dataclasses import replace
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.models import mlp
from mpcourse.split import NIN, HalvedNIN, ParallelMLP, ParallelNIN, TensorParallelAttention, TensorParallelMLP, copy
from mpcourse.virtual import GPUS, busy, devices, virtual_gpus

# %% [markdown]
# ## Two GPUs on a laptop
#
# `virtual_gpus(2)` makes two. Inside the `with`, `torch.device("vgpu:1")` is a device like any other. `devices(2)`
# returns these two; outside, it returns two real GPUs where there are two. So the same code runs on both.

# %%
with virtual_gpus(2, "GTX TITAN X (Maxwell)", "PCIe 3.0 x16") as box:
    d0, d1 = devices(2)
    a = torch.ones(3, device=d0)
    b = torch.ones(3, device=d1)
    try:
        a + b
    except RuntimeError as error:
        refusal = str(error)
assert "Expected all tensors to be on the same device" in refusal
print(refusal)

# %% [markdown]
# That is torch's own sentence, and below it where the two tensors come from. A kernel works on the memory of its own
# GPU only. So one of the tensors has to be copied.

# %% [markdown]
# ## A copy has a way back
#
# `copy(x, device)` puts x on another device. In the backward pass the gradient is copied in the other direction.
# `x.to(device)` does the same. The second copy is often forgotten, because no line of the program mentions it.

# %%
with virtual_gpus(2) as box:
    x = torch.ones(1000, device="vgpu:0", requires_grad=True)
    y = copy(x, "vgpu:1")
    (3 * y).sum().backward()
    assert y.device == torch.device("vgpu:1") and x.grad.device == torch.device("vgpu:0")
    assert x.grad[0].item() == 3
    crossings = [(e.lane, e.nbytes, e.phase) for e in box.copies[:2]]
assert crossings == [("vgpu:0 -> vgpu:1", 4000, "forward"), ("vgpu:1 -> vgpu:0", 4000, "backward")]
crossings

# %% [markdown]
# Both cross the link, and both have the same size. Every copy of a tensor that needs a gradient costs twice.
#
# Exercise [`e02_copy`](../exercises/e02_copy.py) asks for this function, with both ways written out.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e02_copy

# %% [markdown]
# ## Chainer's network
#
# Four blocks of half the width, two on each GPU. Each block is a small MLP of three layers. After the first two blocks
# both GPUs need the sum of both results. After the second two, one GPU needs it.
#
# ```
# GPU 0                       GPU 1
# first0(x)                   first1(x)
#     \  exchange, add, relu  /
# second0(h)                  second1(h)
#     \  add on GPU 0
# ```

# %%
torch.manual_seed(0)
with virtual_gpus(2, "GTX TITAN X (Maxwell)", "PCIe 3.0 x16") as box:
    model = ParallelMLP(*devices(2))
    images, labels = torch.randn(100, 784, device="vgpu:0"), torch.randint(10, (100,), device="vgpu:0")
    box.reset()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    forward = [(e.lane, e.nbytes) for e in box.copies if e.phase == "forward"]
    backward = [(e.lane, e.nbytes) for e in box.copies if e.phase == "backward"]
    plot.copies(box, "Four copies forward, three gradients backward: the images need none")
assert sum(p.numel() for p in model.parameters()) == 3_800_020
assert len(forward) == 4 and len(backward) == 3
assert forward[0] == ("vgpu:0 -> vgpu:1", 100 * 784 * 4)


# %% [markdown]
# The backward pass goes through the copies of the forward pass from the last to the first, and for each of them it
# copies a gradient in the other direction. The copy of the images is the exception, because no gradient of the images
# is needed. If they were the output of an earlier layer, there would be four copies backward, too.

# %% [markdown]
# ## Is it the same network?
#
# The test is the network itself, with both halves on one device. Three steps of Adam, compared to the last bit.

# %%
def losses_of(places, steps=3):
    torch.manual_seed(1)
    model = ParallelMLP(*places, n_units=100)
    optimizer = torch.optim.Adam(model.parameters())
    found = []
    for _ in range(steps):
        images, labels = torch.randn(20, 784).to(places[0]), torch.randint(10, (20,)).to(places[0])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


plain = losses_of(("cpu", "cpu"))
with virtual_gpus(2):
    split = losses_of(devices(2))
assert split == plain
split

# %% [markdown]
# ## Is it faster?
#
# The **speedup** of p devices is the time of one divided by the time of p. We compute it at the size of Chainer's own
# example: 1000 units, a batch of 100. `dry=True` makes a simulated machine whose tensors hold no data, so that we can
# go on to sizes for which a laptop has no memory.
#
# The host's time matters. With Chainer, as with torch, a Python program launches kernels one after the other, and each
# launch takes some microseconds: about 8 in torch today.
#
# The post does not name its GPUs, so we have to assume them: two GTX TITAN X, and 20 µs a launch for 2015. Peak and
# bandwidth are the data sheet's. Which part of them a kernel reaches, and the 3 µs that the smallest one takes, are
# assumptions as well. After the result we ask how much hangs on them.

# %%
TITAN = GPUS["GTX TITAN X (Maxwell)"]
OF_2015 = replace(TITAN, launch=20e-6)


def step_of(box, make, batch, adam=None):
    """Seconds of the second training step of `make()`, and for each GPU the part of them in which it computed."""
    adam = adam or {"foreach": False}
    with torch.device("vgpu:0"):  # made on a device that holds no data: nothing to draw at random
        model = make()
    tensors = list(model.parameters())
    if "fused" in adam:
        tensors = [{"params": [p]} for p in tensors]  # groups of one: nothing is done for all tensors at once
    optimizer = torch.optim.Adam(tensors, **adam)
    images = torch.empty(batch, 784, device="vgpu:0")
    labels = torch.empty(batch, dtype=torch.long, device="vgpu:0")
    for _ in range(2):
        box.reset()
        start = box.now
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        seconds = box.synchronize() - start
    return seconds, [busy(box.events, str(d)) / seconds for d in box.devices]


def one_and_two(units, batch, gpu=OF_2015, link="PCIe 3.0 x16", adam=None):
    found = []
    for places in (("vgpu:0", "vgpu:0"), ("vgpu:0", "vgpu:1")):
        with virtual_gpus(2, gpu, link, dry=True) as box:
            found.append(step_of(box, partial(ParallelMLP, *places, n_units=units), batch, adam))
    return found


(one, alone), (two, both) = one_and_two(1000, 100)
assert 0.9 < one / two < 1.0, "no faster"
assert round((two - one) / OF_2015.launch, 6) == 7, "the host's time for seven copies"
assert alone[0] < 0.5
print(f"one GPU {1e3 * one:.2f} ms, two {1e3 * two:.2f} ms: a speedup of {one / two:.2f}")
print(f"one GPU computed {alone[0]:.0%} of the time; of two, each {both[0]:.0%}")

# %% [markdown]
# **A speedup of 0.97**: slower, by the time that the host takes to launch seven copies.
#
# The second line says why. One GPU is idle more than half of the time, for the host cannot launch kernels as fast as
# they end. A second GPU shortens only the time in which a GPU computes, and that was not the bottleneck.
#
# **Predict first.** How does the speedup change if a launch costs 4 µs, and from which cost on does it no longer
# change?

# %%
launches = [4, 6, 8, 10, 12, 16, 20, 30]  # microseconds
ratios = {}
for name, options in (
    ("Adam, each tensor with 7 kernels", {"foreach": False}),
    ("Adam, each tensor with 2", {"fused": True}),
    ("Adam, a GPU's tensors together", {"foreach": True}),
):
    ratios[name] = []
    for cost in launches:
        (one, _), (two, _) = one_and_two(1000, 100, replace(TITAN, launch=1e-6 * cost), adam=options)
        ratios[name].append(one / two)
*each, together = ratios.values()
assert all(row[0] > 1.3 and row[2] > 1 > max(row[3:]) > 0.9 for row in each)
assert min(together) > 1
plot.lines(
    launches,
    ratios,
    "a kernel launch (µs)",
    "speedup of two GPUs",
    "Two GPUs gain as long as the host launches fast enough",
    {"no gain": 1.0},
    log=False,
)
None

# %% [markdown]
# With an Adam that goes through the tensors one by one, the result flips between 8 and 10 µs. Above, the host is the
# bottleneck on one GPU as on two, and its exact pace does not matter any more. Chainer's Adam was of this kind, with
# one kernel for each tensor. torch's default (`foreach`) does a step of the formula for all tensors of a GPU together:
# a third of the launches, and two GPUs gain at all these costs. So our 0.97 rests on an optimizer of the first kind and
# on launches of 9 µs or more.

# %%
with virtual_gpus(2, OF_2015, "PCIe 3.0 x16", dry=True) as box:
    split_seconds, _ = step_of(box, lambda: ParallelMLP(*devices(2)), 100)
    split_launches = sum(e.kind == "enqueue" for e in box.events)
    plot.timeline(box, "1000 units, batch 100: the host launches all the time, the GPUs wait for it")
None

# %% [markdown]
# ## What did the post compare?
#
# Its text gives no times, and Chainer's `train_mnist.py` of that month printed only the loss and the accuracy of each
# epoch. And what it ran on one GPU is another network: the MLP of lesson 01, 784-1000-1000-10, with 1.8 million
# parameters in 3 layers. The split one has 3.8 million in 12.
#
# **Predict first.** Which takes longer, a step of the small network on one GPU or one of the large network on two, and
# how many times as long?

# %%
with virtual_gpus(1, OF_2015, dry=True) as box:
    plain_seconds, _ = step_of(box, mlp, 100)
    plain_launches = sum(e.kind == "enqueue" for e in box.events)
assert sum(p.numel() for p in mlp().parameters()) == 1_796_010
assert round(split_seconds / plain_seconds, 1) == round(split_launches / plain_launches, 1) == 4.0
print(f"the MLP on one GPU: {1e3 * plain_seconds:.2f} ms, {plain_launches} launches")
print(f"the split network on two: {1e3 * split_seconds:.2f} ms, {split_launches} launches")

# %% [markdown]
# The split network takes four times as long, for it launches four times as many kernels. So what the post saw to be the
# same was hardly the time. It may have been the loss. A comparison says something about a second GPU only if it
# changes nothing else: the same network, once with both halves on one GPU and once on two, as in the cells above.

# %% [markdown]
# ## When does it pay?
#
# When the GPUs have more to do than the host. The FLOPs grow with the square of the units; the bytes that are copied
# grow with the units.
#
# A larger batch means more FLOPs as well, but the bytes grow with it, too. So the split begins to pay with fewer units,
# and pays less in the end, where the copies limit the speedup.

# %%
sizes = [500, 700, 1000, 1400, 2000, 2800, 4000]
speedups = {}
for batch in (100, 1000):
    pairs = [one_and_two(units, batch) for units in sizes]
    speedups[f"batch {batch}"] = [one / two for (one, _), (two, _) in pairs]
assert all(max(row) < 2 for row in speedups.values())
assert all(later > 0.999 * earlier for row in speedups.values() for earlier, later in zip(row, row[1:]))
assert all(row[0] < 1 and row[-1] > 1.65 for row in speedups.values())
assert speedups["batch 100"][-1] > speedups["batch 1000"][-1]
from_on = {name: next(units for units, ratio in zip(sizes, row) if ratio > 1) for name, row in speedups.items()}
assert from_on == {"batch 100": 2000, "batch 1000": 1000}
plot.lines(
    sizes,
    speedups,
    "units of a layer",
    "speedup of two GPUs",
    "A split pays when the layers are wide enough",
    {"no gain": 1.0, "ideal": 2.0},
)
None

# %% [markdown]
# With 100 images, layers of 1400 units gain nothing, and layers of 2000 do. With 1000 images it is 700 and 1000.

# %%
with virtual_gpus(2, OF_2015, "PCIe 3.0 x16", dry=True) as box:
    wide, utilisation = step_of(box, lambda: ParallelMLP(*devices(2), n_units=4000), 1000)
    plot.timeline(box, "4000 units, batch 1000: now the host waits for the GPUs")
assert min(utilisation) > 0.8
back, forth = [e for e in box.copies if e.phase == "forward" and e.nbytes == 4 * 1000 * 4000]
assert back.lane == "vgpu:1 -> vgpu:0" and forth.lane == "vgpu:0 -> vgpu:1" and forth.start >= back.end


# %% [markdown]
# **Predict first.** Which matters more at 1000 units: a faster link, or a host that launches kernels faster? Then move
# the sliders.

# %% tags=["nbval-ignore-output"]
def try_it(units=1000, batch=100, link="PCIe 3.0 x16", microseconds_a_launch=20):
    gpu = replace(TITAN, launch=1e-6 * microseconds_a_launch)
    (one, _), (two, _) = one_and_two(units, batch, gpu, link)
    with virtual_gpus(2, gpu, link, dry=True) as box:
        step_of(box, lambda: ParallelMLP(*devices(2), n_units=units), batch)
        title = f"{units} units, batch {batch}, {link}: speedup {one / two:.2f} on two GPUs"
        return plot.timeline(box, title)


plot.sliders(
    try_it,
    units=[500, 1000, 2000, 4000],
    batch=[100, 1000],
    link=["PCIe 3.0 x16", "NVLink 4"],
    microseconds_a_launch=[4, 8, 20],
)

# %%
(one, _), (two, _) = one_and_two(1000, 100, link="NVLink 4")
(one_fast, _), (two_fast, _) = one_and_two(1000, 100, replace(TITAN, launch=4e-6))
assert one / two < 1.0 < one_fast / two_fast
print(f"speedup with 37 times the link: {one / two:.2f}; with launches of a fifth: {one_fast / two_fast:.2f}")


# %% [markdown]
# The faster link changes nothing: the GPUs were not waiting for it. The lane that is busy all the time is the
# bottleneck, and only a faster one of those helps.
#
# One more thing shows in the timelines. A copy between two GPUs is in the queue of both, so it waits for what was
# launched before it on either. Therefore the two copies of an exchange follow each other, although the link could carry
# both at once. And `ParallelMLP` copies x first and computes afterwards: the other way round, GPU 1 would wait until
# GPU 0 has computed its block.

# %% [markdown]
# Exercise [`e02_parallel_mlp`](../exercises/e02_parallel_mlp.py): write this network's forward.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e02_parallel_mlp

# %% [markdown]
# ## Two hot GPUs
#
# The same post then trained ParallelNIN: two whole Network-in-Networks, one on each GPU, both fed the same batch, their
# losses added. Both GPUs were busy and hot, at 78 and 74 degrees, and the post counts that as success.
#
# **Predict first.** One such network takes a certain number of FLOPs a step. Does each of the two GPUs do half of that,
# the same, or twice as much?

# %%
def nin_step(kind, batch=128):
    """Seconds of a step, FLOPs and utilisation of each GPU."""
    with virtual_gpus(2, TITAN, "PCIe 3.0 x16", dry=True) as box:
        model = NIN().to("vgpu:0") if kind is NIN else kind(*devices(2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        images = torch.empty(batch, 3, 227, 227, device="vgpu:0")
        labels = torch.empty(batch, dtype=torch.long, device="vgpu:0")
        for _ in range(2):
            box.reset()
            start = box.now
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels) if kind is NIN else model(images, labels)[0]
            loss.backward()
            optimizer.step()
            seconds = box.synchronize() - start
        on = [[e for e in box.events if e.lane == name] for name in box.names]
        return seconds, [sum(e.flops for e in lane) for lane in on], [busy(box.events, n) / seconds for n in box.names]


rows = {kind.__name__: nin_step(kind) for kind in (NIN, ParallelNIN, HalvedNIN)}
for name, (seconds, flops, part) in rows.items():
    work = " + ".join(f"{f / 1e9:.0f}" for f in flops)
    print(f"{name:12} {1e3 * seconds:5.0f} ms a step; GFLOP {work:>9}; busy {part[0]:4.0%} and {part[1]:4.0%}")

# %%
nin, parallel, halved = rows["NIN"], rows["ParallelNIN"], rows["HalvedNIN"]
assert parallel[1] == [nin[1][0], nin[1][0]], "each GPU does all the work of one network"
assert min(parallel[2]) > 0.95, "both are hot"
assert parallel[0] > nin[0], "and it is no faster than one network on one GPU"
assert halved[1] == [nin[1][0] / 2, nin[1][0] / 2] and nin[0] / halved[0] > 1.75

# %% [markdown]
# Each GPU does **all the work of one network**. The two networks never exchange data: the gradient of a sum of losses
# reaches each of them as if it were alone. So these are two trainings side by side, at 96 % utilisation, and a step
# takes a little longer than one network's on one GPU. Utilisation says that a GPU computes, and not that this is of
# use.
#
# Two networks that started from different weights, their probabilities averaged, make an *ensemble*, which is mostly
# better than either. But the post read the accuracy from the first network alone.
#
# `HalvedNIN` is the fair version: **one** network, of which each GPU has a copy, a **replica**, and half of the batch.
# Half the work on each GPU, a speedup of 1.8, and the gradient of the whole batch. That is **data parallelism**, and
# lessons 05 to 09 are about it.

# %%
with virtual_gpus(2):
    torch.manual_seed(0)
    pair = ParallelNIN(*devices(2), 3, (4, 5, 6, 7)).eval()
    images, labels = torch.randn(4, 3, 99, 99, device="vgpu:0"), torch.randint(3, (4,), device="vgpu:0")
    pair(images, labels)[0].backward()
    together = pair.second.features[0][0].weight.grad.cpu()
    pair.zero_grad()
    F.cross_entropy(pair.second(images.to("vgpu:1")), labels.to("vgpu:1")).backward()
    assert torch.equal(together, pair.second.features[0][0].weight.grad.cpu()), "it learns as it would alone"

# %% [markdown]
# ## The same idea today: tensor parallelism
#
# Splitting a layer came back in 2019 as **tensor parallelism**, for transformers whose layers are wide enough.
# Megatron-LM cuts two layers that follow each other, X A and H B. The first is **column parallel**: each GPU has some
# columns of A, and computes some of the outputs. (torch keeps a weight as (outputs, inputs): there they are rows.) The
# function between the layers, GELU, works on each element by itself, so each GPU applies it to the outputs that it has.
# The second is **row parallel**: each GPU has those rows of B that belong to its part of H, and computes a partial
# result of all outputs. Only these have to be summed over the GPUs, in an **all-reduce**.
#
# The other order would not do: GELU of a sum is not the sum of the GELUs, so the first layer's partial results would
# have to be summed before it.

# %%
plot.column_row(4, "Column parallel, then row parallel: one sum for two layers")
None

# %% [markdown]
# Chainer's blocks were nearly such a pair. The first layers of `first0` and `first1` are one layer, cut by columns;
# their last layers are one, cut by rows; and the sum of both is the all-reduce. Only the layer between them is not
# whole: the weights that would lead from one half to the other are missing. That is why Chainer's network is no cut of
# the plain MLP.

# %%
torch.manual_seed(0)
halves = ParallelMLP("cpu", "cpu", n_units=100)
(a1, _, a2, _, a3), (b1, _, b2, _, b3) = halves.first0, halves.first1
x = torch.randn(20, 784)
h = F.relu(F.linear(x, torch.cat([a1.weight, b1.weight]), torch.cat([a1.bias, b1.bias])))
h = F.relu(F.linear(h, torch.block_diag(a2.weight, b2.weight), torch.cat([a2.bias, b2.bias])))
y = F.linear(h, torch.cat([a3.weight, b3.weight], dim=1), a3.bias + b3.bias)
assert torch.allclose(y, halves.first0(x) + halves.first1(x), atol=1e-6)

# %% [markdown]
# Here Megatron's pair runs on four GPUs.

# %%
torch.manual_seed(0)
first, second = nn.Linear(512, 2048), nn.Linear(2048, 512)
x = torch.randn(8, 64, 512)
whole = second(F.gelu(first(x)))
with virtual_gpus(4, "Tesla V100-SXM2", "NVLink 1") as box:
    block = TensorParallelMLP(first, second, devices(4))
    here = x.to("vgpu:0").requires_grad_()
    box.reset()
    out = block(here)
    out.sum().backward()
    counted = [(e.phase, e.nbytes) for e in box.copies]
    plot.traffic(box, "Four GPUs: x goes out, partial sums come in, and gradients likewise")
    assert torch.allclose(out.cpu(), whole, atol=1e-5)
assert counted == [("forward", x.nbytes)] * 6 + [("backward", x.nbytes)] * 6


# %% [markdown]
# The result is not equal to the last bit, because four partial sums are added in another order than one long one. It
# agrees within 1e-5. For three further GPUs there are three copies out and three back, forward and backward.
#
# How much faster is it? We take the MLP block of a transformer, from a width of h to 4 h and back, for 2048 tokens, on
# V100s, in float32.

# %%
def block_seconds(gpus, width, link="NVLink 2", tokens=2048):
    """Seconds of forward and backward of one block on `gpus` virtual V100s."""
    with virtual_gpus(gpus, "Tesla V100-SXM2", link, dry=True) as box:
        with torch.device("vgpu:0"):
            pair = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        block = TensorParallelMLP(*pair, devices(gpus)) if gpus > 1 else nn.Sequential(pair[0], nn.GELU(), pair[1])
        x = torch.empty(tokens, width, device="vgpu:0").requires_grad_()
        for _ in range(2):
            box.reset()
            start = box.synchronize()
            block(x).sum().backward()
            took = box.synchronize() - start
    return took


hidden = [256, 512, 1024, 2048, 4096, 8192]
alone = {width: block_seconds(1, width) for width in hidden}
blocks = {f"{n} GPUs": [alone[width] / block_seconds(n, width) for width in hidden] for n in (2, 4, 8)}
assert all(row == sorted(row) for row in blocks.values())
assert round(blocks["2 GPUs"][-1], 2) == 1.98 and round(blocks["8 GPUs"][-1], 1) == 6.2
assert blocks["8 GPUs"][0] < 0.5
title = "An MLP block over NVLink 2: the wider, the better it can be cut"
plot.lines(hidden, blocks, "width h", "speedup", title, {"no gain": 1.0})
None

# %% [markdown]
# At the largest width two GPUs reach 1.98, and eight reach 6.2 and no more: GPU 0 sends x to seven others, one after
# the other, and receives seven partial sums. At the smallest, eight GPUs are slower than one. A good all-reduce spreads
# the traffic over all links. With the ring of lesson 05 each of p GPUs sends 2 (p - 1) / p times the bytes of the
# result, which is 1.75 times for eight, where GPU 0 now sends and receives 7 times as much.
#
# With one process for each device, as in Megatron-LM, the exchange *is* an all-reduce. In the forward pass it sums the
# partial results of the second layer. In the backward pass it sums the gradients of x, of which each rank has computed
# its part. Here on two real ranks.

# %% tags=["nbval-ignore-output"]
from pathlib import Path

Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/tensor_parallel.py
import torch
import torch.nn as nn
import torch.nn.functional as F
from mpi4py import MPI

comm = MPI.COMM_WORLD


def all_reduced(x):
    total = torch.empty_like(x)
    comm.Allreduce(x.contiguous().numpy(), total.numpy())
    return total


class Shared(torch.autograd.Function):
    """Before the first layer: nothing forward; the sum over ranks of what each has for the gradient of x."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return all_reduced(gradient)


class Summed(torch.autograd.Function):
    """After the second layer: the sum over ranks of the partial results; nothing backward."""

    @staticmethod
    def forward(ctx, partial):
        return all_reduced(partial)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


torch.manual_seed(0)  # the same whole layers, and the same x, on all ranks
first, second = nn.Linear(64, 256).double(), nn.Linear(256, 64).double()
x = torch.randn(8, 64, dtype=torch.float64, requires_grad=True)
whole = second(F.gelu(first(x)))
(whole**2).sum().backward()
expected = x.grad.clone()

mine = slice(256 * comm.rank // comm.size, 256 * (comm.rank + 1) // comm.size)
x.grad = None
hidden = F.gelu(F.linear(Shared.apply(x), first.weight[mine], first.bias[mine]))  # column parallel
out = Summed.apply(F.linear(hidden, second.weight[:, mine])) + second.bias  # row parallel; the bias once
first.weight.grad, held = None, first.weight.grad
(out**2).sum().backward()
difference = max((out - whole).abs().max().item(), (x.grad - expected).abs().max().item())
difference = max(difference, (first.weight.grad[mine] - held[mine]).abs().max().item())
difference = comm.allreduce(difference, MPI.MAX)
if comm.rank == 0:  # float64: only the order of the sums differs
    print(f"{comm.size} ranks: {'as the whole' if difference < 1e-12 else f'{difference} off'}")

# %%
# two = !mpirun -np 2 python scratch/tensor_parallel.py
# three = !mpirun -np 3 python scratch/tensor_parallel.py
assert (two, three) == (["2 ranks: as the whole"], ["3 ranks: as the whole"])
two + three

# %% [markdown]
# Attention is split by heads. They never exchange anything, so each GPU takes some of them whole.

# %%
torch.manual_seed(0)
attention = nn.MultiheadAttention(512, 8, batch_first=True)
whole = attention(x, x, x, need_weights=False)[0]
with virtual_gpus(2) as box:
    heads = TensorParallelAttention(attention, devices(2))
    out = heads(x.to("vgpu:0"))
    assert torch.allclose(out.cpu(), whole, atol=1e-5)
    assert [p.weight.shape[0] for p in heads.queries] == [256, 256], "four heads of 64 on each"

# %% [markdown]
# Exercise [`e02_column_row`](../exercises/e02_column_row.py): the pair of layers, cut and put together again.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e02_column_row

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.split import ParallelMLP
from mpcourse.split.copy import Copy

reference(Copy, ParallelMLP.forward)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `copy(x, device)` | `Tensor.to`, through which autograd differentiates |
# | column and row parallel linear | `ColwiseParallel`, `RowwiseParallel` in `torch.distributed.tensor.parallel` |
# | `Shared`, `Summed` | Megatron-LM's f and g: in a transformer layer two all-reduces forward and two backward |
# | a host too slow for its GPUs | launch-bound; CUDA graphs, `torch.compile`, fused optimizers |
# | ParallelNIN | an ensemble |
# | HalvedNIN | data parallelism; in one process `nn.DataParallel`; lesson 06 |
#
# Next: [03 Split by layers](03_split_by_layers.ipynb), for a network that does not fit.
