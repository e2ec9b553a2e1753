# %% [markdown]
# # 02 Split with copy
#
# **What if one layer's work is split over two GPUs?** About 45 minutes, and 70 for its exercises.
#
# In November 2015 a blog post tried Chainer's new `F.copy`: put half of each layer on a second GPU, and copy what the
# halves need of each other. Its MNIST network ran on two GPUs, and after six epochs it was no faster than on one.
#
# We run it again, on two virtual GPUs. They hold real tensors, refuse what real GPUs refuse, and keep a clock. So we
# can ask what a blog post cannot: what did the two GPUs wait for?

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from dataclasses import replace

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.split import NIN, HalvedNIN, ParallelMLP, ParallelNIN, TensorParallelAttention, TensorParallelMLP, copy
from mpcourse.virtual import GPUS, busy, devices, virtual_gpus

# %% [markdown]
# ## Two GPUs on a laptop
#
# `virtual_gpus(2)` makes two. In the box, `torch.device("vgpu:1")` is a device like any other. `devices(2)` answers
# the box's, or real GPUs where no box is entered and there are two: the same code runs on both.

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
# That is torch's own sentence, and below it where the two tensors come from. A GPU computes on its own memory only.
# So somebody has to copy.

# %% [markdown]
# ## A copy has a way back
#
# `copy(x, device)` puts x on another device. When the gradient comes, it goes the other way. `x.to(device)` does the
# same. The way back is soon forgotten, because nobody writes it down.

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
# Both cross the link, and both are of one size. Every forward copy costs twice.
#
# Exercise `e02_copy` asks for this function, with both ways written out.

# %% tags=["nbval-ignore-output"]
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
    plot.copies(box, "Four copies forward, three gradients back: nobody asks for that of the images")
assert sum(p.numel() for p in model.parameters()) == 3_800_020
assert len(forward) == 4 and len(backward) == 3
assert forward[0] == ("vgpu:0 -> vgpu:1", 100 * 784 * 4)


# %% [markdown]
# Backward goes through the copies of forward from the last to the first, and each gradient takes its copy's way back.
# The images' own copy has none: they are not trained. If they came from a layer before, their gradient would have to go
# back as well: three copies or four, by where the network begins.

# %% [markdown]
# ## Is it the same network?
#
# The oracle is the network itself, both halves on one device. Three steps of Adam, compared to the last bit.

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
# A step on one GPU and on two, at the size of Chainer's own example: 1000 units, a batch of 100. `dry=True` makes a
# simulated machine whose tensors hold no data, so that we can go on to sizes for which a laptop has no memory.
#
# What a step costs the host matters. Chainer, like torch, is a Python program that **launches kernels** one after the
# other, and each launch takes it some microseconds: about 8 in torch today.
#
# The post names neither GPU nor batch, so we have to assume them: two GTX TITAN X, images by the hundred, and 20 µs a
# launch for 2015. Peak and bandwidth are the data sheet's. Which part of them a kernel reaches, and the 3 µs that the
# smallest one takes, are assumptions as well. After the result we ask how much hangs on them.

# %%
TITAN = GPUS["GTX TITAN X (Maxwell)"]
OF_2015 = replace(TITAN, launch=20e-6)


def step_of(box, units, batch, places, adam=None):
    """Seconds of the second training step, and for each GPU the part of them in which it computed."""
    with torch.device(places[0]):  # made on a device that holds no data: nothing to draw at random
        model = ParallelMLP(*places, n_units=units)
    each = [{"params": [p]} for p in model.parameters()]  # a group for each tensor: nothing is done for all at once
    optimizer = torch.optim.Adam(each, **adam or {"foreach": False})
    images = torch.empty(batch, 784, device=places[0])
    labels = torch.empty(batch, dtype=torch.long, device=places[0])
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
            found.append(step_of(box, units, batch, places, adam))
    return found


(one, alone), (two, both) = one_and_two(1000, 100)
assert 0.9 < one / two < 1.0, "the published result: no faster"
print(f"one GPU {1e3 * one:.2f} ms, two {1e3 * two:.2f} ms: a speedup of {one / two:.2f}")
print(f"one GPU computed {alone[0]:.0%} of the time; of two, each {both[0]:.0%}")

# %% [markdown]
# **A speedup of 0.97**: slower, by the time that the host takes to launch seven copies. So the post found.
#
# And the second line says why. One GPU has nothing to do more than half of the time, for the host cannot launch
# kernels as fast as they end. A second GPU halves the part of which there was too little already.
#
# Before you run the next cell: how does the speedup change if a launch costs 4 µs, and from which cost on does it no
# longer change?

# %%
launches = [4, 6, 8, 10, 12, 16, 20, 30]  # microseconds
ratios = {}
for name, options in (("Adam, 7 launches a tensor", {"foreach": False}), ("Adam, fused: 2 a tensor", {"fused": True})):
    ratios[name] = []
    for cost in launches:
        (one, _), (two, _) = one_and_two(1000, 100, replace(TITAN, launch=1e-6 * cost), adam=options)
        ratios[name].append(one / two)
assert all(row[0] > 1.3 and row[2] > 1 > max(row[3:]) > 0.9 for row in ratios.values())
plot.lines(
    launches,
    ratios,
    "a kernel launch (µs)",
    "speedup of two GPUs",
    "The post's result asks for launches of 9 µs or more",
    {"no gain": 1.0},
    log=False,
)
None

# %% [markdown]
# The result flips between 8 and 10 µs. Above, the host is the bottleneck on one GPU as on two, and its exact pace does
# not matter any more. Chainer's Adam had one kernel for each tensor and torch's has seven, but that hardly moves the
# point. So the post is **consistent with** a launch of 9 µs or more, which is little for 2015. With today's torch, the
# same two GPUs would gain a few percent. A replay of one published number cannot say more than that.

# %%
with virtual_gpus(2, OF_2015, "PCIe 3.0 x16", dry=True) as box:
    step_of(box, 1000, 100, devices(2))
    plot.timeline(box, "1000 units, batch 100: the host launches all the time, the GPUs wait for it")
None

# %% [markdown]
# ## When does it pay?
#
# When the GPUs have more to do than the host. Work grows with units squared; what crosses grows with units alone.
#
# A larger batch gives the GPUs more to do as well, but what crosses grows with it, too. So the split begins to pay
# with fewer units, and pays less in the end, where the copies are what is left to save.

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
    wide, utilisation = step_of(box, 4000, 1000, devices(2))
    plot.timeline(box, "4000 units, batch 1000: now the host waits for the GPUs")
assert min(utilisation) > 0.8


# %% [markdown]
# Try it. Which matters more at 1000 units: a faster link, or a host that launches kernels faster?

# %% tags=["nbval-ignore-output"]
def try_it(units=1000, batch=100, link="PCIe 3.0 x16", microseconds_a_launch=20):
    gpu = replace(TITAN, launch=1e-6 * microseconds_a_launch)
    (one, _), (two, _) = one_and_two(units, batch, gpu, link)
    with virtual_gpus(2, gpu, link, dry=True) as box:
        step_of(box, units, batch, devices(2))
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
# The faster link changes nothing: the GPUs were not waiting for it. Look for the lane that is full, before you buy.
#
# One more thing shows in the timelines. A copy between two GPUs is in the queue of both, so it waits for the work that
# was enqueued before it. `ParallelMLP` copies x first and computes afterwards. The other way round, GPU 1 would wait
# until GPU 0 is done with its block.

# %% [markdown]
# Exercise `e02_parallel_mlp`: write this network's forward.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e02_parallel_mlp

# %% [markdown]
# ## Two hot GPUs
#
# The same post then trained ParallelNIN: two whole Network-in-Networks, one on each GPU, both fed the same batch, their
# losses added. Both GPUs ran hot, at 78 and 74 degrees. The author was content.
#
# Heat is work. Whose?

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
# Each GPU does **all the work of one network**. The two networks never exchange a number: a gradient of a sum of losses
# reaches each of them as if it were alone. So it is two trainings at once, at 96 % utilisation, and a step takes a
# little longer than one network's on one GPU.
#
# It is not worth nothing. Two networks that started from different weights, their probabilities averaged, make an
# ensemble, which is mostly better than either. But the post read the accuracy from the first network alone.
#
# `HalvedNIN` is the fair version: **one** network, of which each GPU has a replica and half of the batch. Half the
# work on each GPU, a speedup of 1.8, and the gradient of the whole batch. That is data parallelism, and lessons 05
# to 09 are about it.

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
# Splitting a layer came back in 2019, for transformers whose layers are wide enough. Megatron-LM cuts two layers that
# follow each other: the first by its outputs ("column parallel"), the second by its inputs ("row parallel"). What GPU i
# computes first is what it needs next. Between the two layers nothing is exchanged.

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
    plot.traffic(box, "Four GPUs: x goes out and a sum comes in, and the same again in backward")
    assert torch.allclose(out.cpu(), whole, atol=1e-5)
assert counted == [("forward", x.nbytes)] * 6 + [("backward", x.nbytes)] * 6

# %% [markdown]
# The result is not equal to the last bit: four partial sums are added in another order than one long one. It agrees
# within 1e-5, and for three further devices there are three copies out and three in, forward and backward.
#
# Attention is split by heads: they never exchange anything, so each GPU takes some of them whole.

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
# Exercise `e02_column_row`: the pair of layers, cut and put together again.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e02_column_row

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `copy(x, device)` | `Tensor.to`, which autograd sees; Megatron-LM's f and g, over processes |
# | column and row parallel linear | `ColwiseParallel`, `RowwiseParallel` in `torch.distributed.tensor.parallel` |
# | the one sum after the second layer | an all-reduce, two a transformer layer in forward; lesson 05 |
# | a host too slow for its GPUs | launch-bound; CUDA graphs, `torch.compile`, fused optimizers |
# | ParallelNIN | an ensemble |
# | HalvedNIN | data parallelism; in one process `nn.DataParallel`; lesson 06 |
#
# Next: [03 Split by layers](03_split_by_layers.ipynb), for a network that does not fit.
