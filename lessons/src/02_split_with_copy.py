# %% [markdown]
# # 02 Split with copy
#
# **What if one layer's work is split over two GPUs?** About 55 minutes to read, and 70 for its exercises.
#
# In 2018, Tadao Yamaoka ran two examples of the Chainer framework. The first trained a network on MNIST with one GPU,
# in 50.2 s. The second divided a network between two GPUs, and took 140.5 s [1]. In 2015, the blogger shi3z had tried
# the same two networks. Up to about the sixth epoch, he saw no difference between two GPUs and one [2]. Yamaoka
# supposed that the cause was the synchronisation of the GPUs. Neither blogger measured it.
#
# This lesson runs the divided network on two virtual GPUs, and shows what they wait for. Then it shows how today's
# transformers are divided. Eight virtual GPUs run a wide block of a transformer 6.2 times as fast as one.
#
# After this lesson you can
#
# - divide a layer's work between two GPUs, and count the copies between them in the forward and the backward pass;
# - predict from the number of kernel launches whether a second GPU makes a training step shorter;
# - tell whether two busy GPUs also save time;
# - cut two layers of a network, the first by columns and the second by rows, so that they need only one sum over the
#   GPUs;
# - split layers with PyTorch's own functions.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("02_split_with_copy")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.split import NIN, HalvedNIN, ParallelMLP, ParallelNIN, TensorParallelMLP, copy
from mpcourse.virtual import GPUS, busy, devices, virtual_gpus

# %% [markdown]
# ## Two GPUs on a laptop
#
# In **model parallelism**, one network is divided among devices. **Inter-layer** model parallelism puts whole layers on
# different devices (lesson 03). **Intra-layer** model parallelism cuts each layer into pieces, and is the subject of
# this lesson.
#
# `virtual_gpus(2)` makes two virtual GPUs. Inside the `with` block, `torch.device("vgpu:1")` is a device like any
# other. `devices(2)` returns the two devices. Outside the block, it returns two real GPUs if the machine has them, so
# the same code runs on virtual and real GPUs.

# %%
with virtual_gpus(2, "GTX TITAN X (Maxwell)", "PCIe 3.0 x16") as box:
    d0, d1 = devices(2)
    a = torch.ones(3, device=d0)
    b = torch.ones(3, device=d1)
    try:
        a + b
    except RuntimeError as error:
        print(error)

# %% [markdown]
# The first line is PyTorch's error message. The other lines say where each tensor was made. A kernel reads only the
# memory of its own GPU. So one of the two tensors must be copied first.
#
# ## A copy and its gradient
#
# `copy(x, device)` copies x to another device. In the backward pass, it copies the gradient back. `x.to(device)` does
# the same. The copy of the gradient is often forgotten, because no line of the program mentions it.

# %%
with virtual_gpus(2) as box:
    x = torch.ones(1000, device="vgpu:0", requires_grad=True)
    y = copy(x, "vgpu:1")
    (3 * y).sum().backward()
    for e in box.copies[:2]:
        print(f"{e.phase:8} {e.lane}, {e.nbytes} bytes")
    print(f"x.grad is on {x.grad.device}, and each of its elements is {x.grad[0].item():g}")

# %% [markdown]
# The copy of x and the copy of its gradient have the same size. Copying a tensor that needs a gradient therefore moves
# twice the tensor's bytes.
#
# Exercise [`e02_copy`](../exercises/e02_copy.py): write this function, including its backward pass.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e02_copy

# %% [markdown]
# ## Chainer's network
#
# The divided network of Chainer's example has four blocks, two on each GPU. Each block is a small MLP of three linear
# layers with 500 hidden units. After the first two blocks, the GPUs exchange their results, and each GPU computes the
# sum. After the last two blocks, only GPU 0 needs the sum.
#
# ```
# GPU 0                       GPU 1 first0(x)                   first1(x) \  exchange, add, relu  / second0(h)
# second1(h) \  add on GPU 0
# ```
#
# **Predict first.** The images x begin on GPU 0. The forward pass makes four copies: one of the images, two in the
# exchange, and one at the end. How many copies does the backward pass make?

# %% tags=["answer"]
# answer
torch.manual_seed(0)
with virtual_gpus(2, "GTX TITAN X (Maxwell)", "PCIe 3.0 x16") as box:
    model = ParallelMLP(*devices(2))
    images, labels = torch.randn(100, 784, device="vgpu:0"), torch.randint(10, (100,), device="vgpu:0")
    box.reset()
    F.cross_entropy(model(images), labels).backward()
    plot.copies(box, "Four copies forward, three gradients backward")
None

# %% tags=["checked"]
# checked: four copies forward, three backward; the first copies the images; the network has 3 800 020 parameters
assert [e.phase for e in box.copies] == ["forward"] * 4 + ["backward"] * 3
assert (box.copies[0].lane, box.copies[0].nbytes) == ("vgpu:0 -> vgpu:1", 100 * 784 * 4)
assert sum(p.numel() for p in model.parameters()) == 3_800_020


# %% [markdown]
# <details><summary>Why</summary>
#
# The backward pass makes three copies. It goes through the forward copies from the last to the first, and copies a
# gradient back for each. The images need no gradient, so their copy is the exception.
#
# </details>
#
# ## Is it the same network?
#
# A split must not change what the network computes. The next cell trains the network for three steps, on one device and
# on two. All digits of the losses agree.

# %%
def losses_of(places):
    torch.manual_seed(1)
    model = ParallelMLP(*places, n_units=100)
    optimizer = torch.optim.Adam(model.parameters())
    found = []
    for _ in range(3):
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
print("one device: ", plain)
print("two devices:", split)

# %% tags=["checked"]
# checked: the losses are equal in all bits
assert split == plain

# %% [markdown]
# ## Is it faster?
#
# The **speedup** of two devices is the time on one device divided by the time on two. The next cells compute it for the
# size of Chainer's example: 1000 hidden units and a batch of 100 images. `dry=True` makes a simulated machine whose
# tensors hold no data.
#
# The host (the CPU) launches the kernels of a step one after the other. Each launch takes about 8 µs with PyTorch
# today. shi3z's post does not name the GPUs. We assume two GTX TITAN X GPUs with the peak FLOP/s and memory bandwidth
# of their data sheet, and a launch cost of 20 µs. We also assume that a kernel reaches a fixed fraction of the peak
# FLOP/s and of the bandwidth, and takes at least 3 µs.

# %%
TITAN = GPUS["GTX TITAN X (Maxwell)"]
OF_2015 = replace(TITAN, launch=20e-6)
ONE_BY_ONE = {"foreach": False}  # this Adam goes through the tensors one by one


def step_of(box, make, batch, adam):
    """Run two training steps. Return of the second: seconds, seconds of computing on each GPU, launches.

    adam: options of the optimizer. None leaves the optimizer step out.
    """
    with torch.device("vgpu:0"):  # this device holds no data, so no random weights are drawn
        model = make()
    tensors = list(model.parameters())
    if adam and "fused" in adam:
        tensors = [{"params": [p]} for p in tensors]  # in a group of its own each tensor has its own kernels
    optimizer = torch.optim.Adam(tensors, **adam) if adam else None
    images = torch.empty(batch, 784, device="vgpu:0")
    labels = torch.empty(batch, dtype=torch.long, device="vgpu:0")
    for _ in range(2):
        box.reset()
        start = box.now
        model.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        if optimizer:
            optimizer.step()
        seconds = box.synchronize() - start
    computing = [busy(box.events, str(device)) for device in box.devices]
    return seconds, computing, sum(e.kind == "enqueue" for e in box.events)


def one_and_two(units, batch, gpu=OF_2015, link="PCIe 3.0 x16", adam=ONE_BY_ONE):
    found = []
    for places in (("vgpu:0", "vgpu:0"), ("vgpu:0", "vgpu:1")):
        with virtual_gpus(2, gpu, link, dry=True) as box:
            found.append(step_of(box, partial(ParallelMLP, *places, n_units=units), batch, adam))
    return found


(one, (computing, _), launches), on_two = one_and_two(1000, 100)
print(f"one GPU: {1e3 * one:.2f} ms a step, {launches} launches, {1e3 * computing:.2f} ms of computing")

# %% [markdown]
# **Predict first.** On two GPUs, the host launches the same kernels plus seven copies. Does the step become shorter? If
# so, by how much?

# %% tags=["answer"]
# answer
two, (first, second), launches_of_two = on_two
print(f"two GPUs: {1e3 * two:.2f} ms a step, {launches_of_two} launches; speedup {one / two:.2f}")
print(f"GPU 0 computes for {1e3 * first:.2f} ms and GPU 1 for {1e3 * second:.2f} ms")
with virtual_gpus(2, OF_2015, "PCIe 3.0 x16", dry=True) as box:
    step_of(box, lambda: ParallelMLP(*devices(2)), 100, ONE_BY_ONE)
    plot.timeline(box, "1000 units, batch 100: the host launches all the time, and the GPUs wait for it")
None

# %% tags=["checked"]
# checked: two GPUs are slower, by the host's time for seven copies; one GPU computes in less than half of the time
assert 0.9 < one / two < 1.0 and launches_of_two - launches == round((two - one) / OF_2015.launch, 6) == 7
assert computing < 0.5 * one

# %% [markdown]
# <details><summary>Why</summary>
#
# The step becomes 0.14 ms longer, the time of seven launches. The host needs 244 times 20 µs, that is, 4.9 ms, to
# launch the kernels. One GPU computes for 2.2 ms, and otherwise waits for the host. The step is launch-bound (lesson
# 01). Two GPUs compute for 1.1 ms each, but save the host no work. A second GPU halves the computing time, which was
# not the bottleneck.
#
# </details>
#
# **Predict first.** The launch cost was an assumption. Above which launch cost does the second GPU no longer help?
# Compute it from the number of launches and the computing time printed above for one GPU.

# %% tags=["answer"]
# answer
costs = [4, 6, 8, 10, 12, 16, 20, 30]  # microseconds
ratios, counts = {}, {}
for name, adam in (
    ("Adam, each tensor with 7 kernels", ONE_BY_ONE),
    ("Adam, each tensor with 2", {"fused": True}),
    ("Adam, a GPU's tensors together", {"foreach": True}),
):
    ratios[name] = []
    for cost in costs:
        (a, _, counts[name]), (b, _, _) = one_and_two(1000, 100, replace(TITAN, launch=1e-6 * cost), adam=adam)
        ratios[name].append(a / b)
print(f"computing / launches: {1e3 * computing:.2f} ms / {launches} = {1e6 * computing / launches:.1f} us")
print("launches on one GPU:", counts)
title = "Two GPUs gain as long as the host launches fast enough"
plot.lines(costs, ratios, "a kernel launch (µs)", "speedup of two GPUs", title, {"no gain": 1.0}, log=False)
None

# %% tags=["checked"]
# checked: if Adam goes through the tensors one by one, the gain ends between 8 and 10 us; otherwise it does not end
*each, together = ratios.values()
assert all(row[0] > 1.3 and row[2] > 1 > max(row[3:]) > 0.9 for row in each)
assert min(together) > 1

# %% [markdown]
# <details><summary>Why</summary>
#
# The GPU computes for 2.2 ms, and the host launches 244 kernels. At 2.2 ms / 244 = 9 µs a launch, both take equally
# long. If a launch costs less, the GPU is the bottleneck, and a second GPU helps. If it costs more, the host is the
# bottleneck with one GPU and with two, and the speedup stays a little below 1.
#
# The result also depends on the optimizer. In 2015, Chainer's Adam updated the tensors one by one, with one kernel for
# each. PyTorch's default on GPUs (`foreach=True`) updates all tensors of a GPU together, with far fewer launches. With
# this default, two GPUs are faster than one at every launch cost in the figure.
#
# </details>
#
# Our two GPUs take 3 % longer than one, but Yamaoka's two took 2.8 times as long as his one. His two examples train
# different networks. The example for one GPU is the MLP of lesson 01, with 1.8 million parameters in 3 layers. The
# divided network has 3.8 million parameters in 12 layers, and needs four times as many launches ([appendix
# 02](appendix/02_closer_look.ipynb)). A comparison shows the effect of a second GPU only if nothing else changes.
#
# ## When does it pay?
#
# A split pays when the GPUs have more to do than the host. The FLOPs grow quadratically with the number of units, but
# the copied bytes grow only linearly. So wide layers gain most.

# %%
sizes = [500, 700, 1000, 1400, 2000, 2800, 4000]
speedups = {}
for batch in (100, 1000):
    pairs = [one_and_two(units, batch) for units in sizes]
    speedups[f"batch {batch}"] = [one / two for (one, *_), (two, *_) in pairs]
title = "A split pays when the layers are wide enough"
plot.lines(sizes, speedups, "units", "speedup of two GPUs", title, {"no gain": 1.0, "ideal": 2.0})
None

# %% tags=["checked"]
# checked: wider layers gain at least as much; the gain begins at 2000 and 1000 units; a batch of 100 ends higher
assert all(max(row) < 2 for row in speedups.values())
assert all(later > 0.999 * earlier for row in speedups.values() for earlier, later in zip(row, row[1:]))
from_on = {name: next(units for units, ratio in zip(sizes, row) if ratio > 1) for name, row in speedups.items()}
assert from_on == {"batch 100": 2000, "batch 1000": 1000}
assert speedups["batch 100"][-1] > speedups["batch 1000"][-1] > 1.65

# %% [markdown]
# With a batch of 100 images, the second GPU helps from 2000 units on. With a batch of 1000 images, 1000 units are
# enough. A larger batch gives the GPUs more work, so the split pays off at a smaller width.
#
# At 4000 units, however, the smaller batch has the larger speedup. The copies are not the cause, because FLOPs and
# bytes both grow in proportion to the batch. The cause is the optimizer step. Two GPUs halve its time without any
# copies, and it is a larger part of the step with the smaller batch. The next cell leaves out the optimizer step.

# %%
for batch in (100, 1000):
    (one, *_), (two, *_) = one_and_two(4000, batch)
    (one_without, *_), (two_without, *_) = one_and_two(4000, batch, adam=None)
    print(f"batch {batch:4}: the optimizer step takes {1e3 * (one - one_without):.0f} of {1e3 * one:.0f} ms on one GPU")
    print(f"            speedup {one / two:.2f}, without the optimizer step {one_without / two_without:.2f}")

# %% [markdown]
# Without the optimizer step, the larger batch has the larger speedup.
#
# **Predict first.** Go back to 1000 units and a batch of 100. Which helps more: a link that is 37 times as fast, or a
# host that launches kernels five times as fast?

# %% tags=["answer"]
# answer
for name, gpu, link in (
    ("37 times the link's bandwidth:", OF_2015, "NVLink 4"),
    ("a fifth of the cost of a launch:", replace(TITAN, launch=4e-6), "PCIe 3.0 x16"),
):
    (one, *_), (two, *_) = one_and_two(1000, 100, gpu, link)
    print(f"{name:32} speedup {one / two:.2f}")


# %% [markdown]
# <details><summary>Why</summary>
#
# The faster link changes nothing, because the GPUs were not waiting for the link. (This link is the NVLink of an H100;
# no TITAN X had it.) In a timeline, look for the row that is busy all the time. The step becomes shorter only if the
# host, GPU or link of that row becomes faster.
#
# </details>
#
# The sliders begin with 4000 units and a batch of 1000, where the host waits for the GPUs. Move them, and find the
# bottleneck in each timeline.

# %% tags=["nbval-ignore-output"]
def try_it(units=4000, batch=1000, link="PCIe 3.0 x16", microseconds_a_launch=20):
    gpu = replace(TITAN, launch=1e-6 * microseconds_a_launch)
    (one, *_), (two, *_) = one_and_two(units, batch, gpu, link)
    with virtual_gpus(2, gpu, link, dry=True) as box:
        step_of(box, lambda: ParallelMLP(*devices(2), n_units=units), batch, ONE_BY_ONE)
        return plot.timeline(box, f"{units} units, batch {batch}, {link}: speedup {one / two:.2f} on two GPUs")


plot.sliders(
    try_it,
    units=[500, 1000, 2000, 4000],
    batch=[100, 1000],
    link=["PCIe 3.0 x16", "NVLink 4"],
    microseconds_a_launch=[4, 8, 20],
)

# %% tags=["checked"]
# checked: both GPUs compute for more than 80 % of the time, and the copies of the exchange follow each other
with virtual_gpus(2, OF_2015, "PCIe 3.0 x16", dry=True) as box:
    wide, computing, _ = step_of(box, lambda: ParallelMLP(*devices(2), n_units=4000), 1000, ONE_BY_ONE)
assert min(computing) > 0.8 * wide
back, forth = [e for e in box.copies if e.phase == "forward" and e.nbytes == 4 * 1000 * 4000]
assert back.lane == "vgpu:1 -> vgpu:0" and forth.lane == "vgpu:0 -> vgpu:1" and forth.start >= back.end


# %% [markdown]
# In the timeline, the two copies of the exchange run one after the other, although the link could carry both at once.
# Here, as in PyTorch, a copy between two GPUs waits for the work that was launched before it on either GPU.
# `ParallelMLP` therefore copies the images before it computes. Otherwise GPU 1 would wait until GPU 0 had computed its
# first block.
#
# Exercise [`e02_parallel_mlp`](../exercises/e02_parallel_mlp.py): write the forward pass of this network.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e02_parallel_mlp

# %% [markdown]
# ## Two hot GPUs
#
# In 2015, shi3z also trained two complete networks, one on each GPU. Each was a Network in Network (NIN), which
# classifies images [3]. Both got the same batch, and their losses were added. Both GPUs were busy, at temperatures of
# 78 and 74 degrees Celsius. The post counts this as a success.
#
# **Predict first.** One NIN on one GPU needs 822 GFLOP for a step with 128 images. How many GFLOP does each of the two
# GPUs compute? How long does a step take, compared with one NIN on one GPU?

# %% tags=["answer"]
# answer
def nin_step(kind, batch=128):
    """Seconds of a step, FLOPs of each GPU, and the share of the step in which it computes."""
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

# %% tags=["checked"]
# checked: in ParallelNIN each GPU does the work of one network, is busy, and saves no time; HalvedNIN halves the work
nin, parallel, halved = rows["NIN"], rows["ParallelNIN"], rows["HalvedNIN"]
assert parallel[1] == [nin[1][0]] * 2 and min(parallel[2]) > 0.95 and parallel[0] > nin[0]
assert halved[1] == [nin[1][0] / 2] * 2 and round(nin[0] / halved[0], 1) == 1.8

# %% tags=["checked"]
# checked: a network of the pair gets the gradient that it would get alone
with virtual_gpus(2):
    torch.manual_seed(0)
    pair = ParallelNIN(*devices(2), 3, (4, 5, 6, 7)).eval()
    images, labels = torch.randn(4, 3, 99, 99, device="vgpu:0"), torch.randint(3, (4,), device="vgpu:0")
    pair(images, labels)[0].backward()
    together = pair.second.features[0][0].weight.grad.cpu()
    pair.zero_grad()
    F.cross_entropy(pair.second(images.to("vgpu:1")), labels.to("vgpu:1")).backward()
    assert torch.equal(together, pair.second.features[0][0].weight.grad.cpu())

# %% [markdown]
# <details><summary>Why</summary>
#
# Each GPU does **all the work of one network**. The two networks never exchange data, and each gets the same gradient
# from the sum of the losses as from its own loss alone. So the pair (`ParallelNIN`) amounts to two separate training
# runs. Both GPUs are busy for 96 % of the time, and a step takes a little longer than the step of one network on one
# GPU. High utilisation shows that a GPU is computing, not that using it saves time.
#
# </details>
#
# The last row, `HalvedNIN`, is one network. Each GPU has a copy of the network, a **replica**, and half of the batch,
# so it does half of the work. The speedup is 1.8, and the gradient is that of the whole batch. This is **data
# parallelism**, the subject of lessons 05 to 09.
#
# ## Tensor parallelism
#
# In 2019, the idea of splitting a layer returned as **tensor parallelism**, for transformers with wide layers.
# Megatron-LM [4] cuts two successive layers, H = GELU(X A) and Y = H B, where A and B are weights.
#
# - The first layer is **column parallel**. Each GPU has some columns of A, and computes some of the outputs.
# - GELU works on each element by itself. So each GPU applies it to its own outputs.
# - The second layer is **row parallel**. Each GPU has the rows of B that belong to its part of H. It computes a
#   *partial result*, which has the full shape but lacks the contributions of the other GPUs.
#
# Only the partial results must be summed over the GPUs. Such a sum is called an **all-reduce**. (PyTorch stores a
# weight as (outputs, inputs), so the columns of A are rows there.)

# %%
plot.column_row(4, "Column parallel, then row parallel: one sum for two layers")
None

# %% [markdown]
# If the first layer were cut by rows, the GPUs would have partial results of X A. GELU of a sum is not the sum of the
# GELUs, so they would need a second sum, before GELU.
#
# **Predict first.** Four GPUs run this pair of layers. X begins on GPU 0 and has n bytes, and the output, also n bytes,
# is needed on GPU 0. How many bytes does GPU 0 send in the forward and the backward pass together?

# %% tags=["answer"]
# answer
torch.manual_seed(0)
first, second = nn.Linear(512, 2048), nn.Linear(2048, 512)
x = torch.randn(8, 64, 512)
whole = second(F.gelu(first(x)))
with virtual_gpus(4, "Tesla V100-SXM2", "NVLink 2") as box:
    block = TensorParallelMLP(first, second, devices(4))
    here = x.to("vgpu:0").requires_grad_()
    box.reset()
    out = block(here)
    out.sum().backward()
    plot.sent(box, "GPU 0 sends and receives three times as much as each other GPU")
    result = out.cpu()
print(f"6 n = {6 * x.nbytes / 1e6:.1f} MB")

# %% tags=["checked"]
# checked: six copies of n bytes forward and six backward, half of them from GPU 0; the result is right to rounding
copies = box.copies[:12]  # the last one brings the result to the CPU
assert [(e.phase, e.nbytes) for e in copies] == [("forward", x.nbytes)] * 6 + [("backward", x.nbytes)] * 6
assert sum(e.lane.startswith("vgpu:0 -> ") for e in copies) == 6
assert torch.allclose(result, whole, atol=1e-5)


# %% [markdown]
# <details><summary>Why</summary>
#
# GPU 0 sends 6 n bytes. In the forward pass, it sends X to three GPUs, and receives three partial results. In the
# backward pass, it sends the gradient of the output to three GPUs, and receives three gradients of X.
#
# </details>
#
# The result agrees with the uncut layers to within 1e-5. Not all bits are equal, because the terms are added in a
# different order.
#
# The next cell computes the speedup of a transformer's MLP block, with h inputs, 4 h hidden units and h outputs, for
# 2048 tokens in float32. The GPUs are the V100s of a DGX-2, in which NVLink switches connect every GPU to every other
# GPU.

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
print("h = 8192:", ", ".join(f"{name} {row[-1]:.2f}" for name, row in blocks.items()))
title = "An MLP block over NVLink 2: the wider the block, the larger the speedup"
plot.lines(hidden, blocks, "width h", "speedup", title, {"no gain": 1.0})
None

# %% tags=["checked"]
# checked: the speedup grows with the width, and on the narrowest block eight GPUs are slower than one
assert all(row == sorted(row) for row in blocks.values()) and blocks["8 GPUs"][0] < 0.5

# %% [markdown]
# At the largest width, the speedup is 1.98 with two GPUs, but only 6.2 with eight. GPU 0 sends X to the seven other
# GPUs one by one, and receives seven partial results. At the smallest width, eight GPUs are slower than one.
#
# A good all-reduce spreads the traffic over all links. In the ring of lesson 05, each of p GPUs sends 2 (p - 1) / p
# times the bytes of the result. For eight GPUs, this is 1.75 n. Here, GPU 0 sends 7 n in the forward pass.
#
# Attention is cut by heads, which exchange nothing. So each GPU computes some heads completely, and one sum at the end
# is enough, as in the MLP block (lesson 11).
#
# Exercise [`e02_column_row`](../exercises/e02_column_row.py): cut a pair of layers, and put the results together.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e02_column_row

# %% [markdown]
# ## The same in PyTorch
#
# On two real GPUs, `x.to("cuda:1")` does what `copy` does here. In the next cell, each GPU computes half of the outputs
# of one layer. On a machine with two GPUs, write "cuda" instead of "vgpu" and delete the `with` line.

# %%
with virtual_gpus(2):
    left, right = nn.Linear(784, 500, device="vgpu:0"), nn.Linear(784, 500, device="vgpu:1")
    images = torch.randn(100, 784, device="vgpu:0")
    far = right(images.to("vgpu:1"))  # before left(images), because a copy waits for both GPUs
    y = torch.cat([left(images), far.to("vgpu:0")], dim=1)
    print(tuple(y.shape), y.device)

# %% [markdown]
# For tensor parallelism, PyTorch uses one process for each GPU. `parallelize_module` replaces the weights of a model
# with DTensors. Each process holds one part of a DTensor. `torchrun` starts two processes here. With "cpu", they
# exchange data through the gloo backend, which needs no GPUs.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/tensor_parallel.py
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cpu", (2,))  # two processes; "cuda" if each has a GPU
torch.manual_seed(0)  # the same weights and the same x on both
block = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
x = torch.randn(8, 64, requires_grad=True)
whole = block(x)

parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
with CommDebugMode() as counted:
    out = block(x)
    forward = counted.get_total_counts()
    out.sum().backward()
if dist.get_rank() == 0:
    print("the first weight:", tuple(block[0].weight.to_local().shape), "of", tuple(block[0].weight.shape))
    print("all-reduces forward:", forward, "and backward:", counted.get_total_counts() - forward)
    print("as the whole block:", torch.allclose(out, whole, atol=1e-5))
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()

# %%
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/tensor_parallel.py 2> scratch/torchrun.log

# %% [markdown]
# All processes have X from the beginning, and all get the output. In the forward pass, one all-reduce sums the partial
# results. In the backward pass, one all-reduce sums the gradients of X, because each process computes only the part
# that passes through its own hidden units. The appendix [02, a closer look](appendix/02_closer_look.ipynb) writes the
# same computation by hand with MPI.
#
# ## The reference implementation
#
# These are the library's functions, without docstrings.

# %%
from mpcourse.common.source import reference
from mpcourse.split.copy import Copy

reference(Copy, ParallelMLP.forward)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `copy(x, device)` | `Tensor.to`, through which autograd differentiates |
# | column and row parallel linear | `ColwiseParallel`, `RowwiseParallel` in `torch.distributed.tensor.parallel` |
# | the two all-reduces of a pair of layers | Megatron-LM's g (forward) and f (backward) |
# | HalvedNIN | data parallelism; in one process `nn.DataParallel` |
#
# 1. Tadao Yamaoka, *Trying several GPUs with Chainer* (in Japanese), 2018,
#    <https://tadaoyamaoka.hatenablog.com/entry/2018/02/18/124739>
# 2. shi3z, *Trying several GPUs with Chainer* (in Japanese), 2015, <https://shi3z.hateblo.jp/entry/2015/11/29/160047>
# 3. Min Lin, Qiang Chen and Shuicheng Yan, *Network In Network*, 2013, <https://arxiv.org/abs/1312.4400>
# 4. Mohammad Shoeybi and others, *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
#    Parallelism*, 2019, <https://arxiv.org/abs/1909.08053>
#
# ## Problems
#
# **1.** A step launches 1000 kernels, and each launch takes the host 8 µs. On one GPU, the kernels take 20 ms in total.
# What is the largest possible speedup with two GPUs, and with four?
#
# **2.** A transformer has 32 layers and a width h of 4096. Tensor parallelism splits the attention and the MLP block of
# each layer over 8 GPUs. A step has 8192 tokens, and its activations are bfloat16. Each sum uses the ring of lesson 05.
# How many bytes does each GPU send in the forward and the backward pass together?

# %% tags=["answer"]
# answer
host = 1000 * 8e-6
print(f"1. The host needs {1e3 * host:.0f} ms. Two GPUs: 20 / max(10, 8) = {20e-3 / max(20e-3 / 2, host):.1f}.")
print(f"   Four GPUs: 20 / max(5, 8) = {20e-3 / max(20e-3 / 4, host):.1f}.")
n = 8192 * 4096 * 2
print(f"2. One result has 8192 * 4096 * 2 bytes, n = {n / 1e6:.1f} MB. There are 32 * 2 * 2 = 128 all-reduces.")
print(f"   Each sends 2 n 7/8, so each GPU sends {128 * 2 * n * 7 / 8 / 1e9:.1f} GB.")

# %% [markdown]
# ## What you found
#
# - If a copied tensor needs a gradient, the backward pass copies the gradient back.
# - A second GPU does not help while the host's launches take longer than the computation of one GPU.
# - Two GPUs can be busy for 96 % of the time and save no time, if each does all the work of a separate network.
# - A column-parallel layer and a row-parallel layer together need one sum in the forward pass, and one in the backward
#   pass. The wider the layers, the larger the speedup.
# - In PyTorch, `x.to(device)` copies, and `parallelize_module` cuts layers by columns and rows.
#
# Next comes [lesson 03](03_split_by_layers.ipynb), which splits a network layer by layer, because it does not fit on
# one GPU.
