# %% [markdown]
# # 03 Split by layers
#
# **What if the network does not fit?** About 55 minutes to read, and 50 for its exercises.
#
# ResNet-50 has 97 MiB of parameters. One training step on ten images of 1024 x 1024 pixels needs 17.0 GiB, more than a
# Tesla P100 has. In March 2020 Takehiro Ajioka therefore trained it on two of them [1]. He put the first layers on one
# GPU and the other layers on the second GPU. This is **inter-layer** model parallelism. His article shows what
# nvidia-smi, NVIDIA's tool to monitor GPUs, printed during the training: 14 637 MiB on the first GPU and 6657 MiB on
# the second.
#
# This lesson predicts these numbers without a GPU. Then it asks whether his cut was a good one.
#
# After this lesson you can
#
# - predict the memory that a training step needs on each GPU, and say why nvidia-smi shows more than the tensors have;
# - choose where to cut a chain of layers, by memory, time and the bytes that cross the cut;
# - choose between a second GPU and **activation checkpointing**, and find what checkpoints change in a network with
#   batch norm;
# - split a network over two GPUs or two processes in PyTorch, and test that it computes the same.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("03_split_by_layers")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

from mpcourse import plot
from mpcourse.data.published import TWO_P100
from mpcourse.models import ResNet50, UNet3D
from mpcourse.split import ModelParallelResNet50, all_cuts, balance, copy, layer_costs, split
from mpcourse.virtual import GPUS, busy, virtual_gpus

MiB, GiB = 2**20, 2**30
P100 = GPUS["Tesla P100-SXM2"]


# %% [markdown]
# ## The network does not fit
#
# With `dry=True` a virtual GPU holds no values. It needs hardly any memory of your laptop, but it counts every byte
# that a P100 would hold.

# %%
def train_step(model, optimizer, images, targets):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(images), targets)  # as in the article
    loss.backward()
    optimizer.step()


def train(box, model, last, batch=10, side=1024):
    """Run one step of a model whose output is on device `last`. Return its seconds. All steps take as long."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    images = torch.empty(batch, 3, side, side, device="vgpu:0")
    targets = torch.empty(batch, 1000, device=last)
    box.reset()
    start = box.synchronize()
    train_step(model, optimizer, images, targets)
    return box.synchronize() - start


with virtual_gpus(1, P100, dry=True) as box:
    model = ResNet50().to("vgpu:0")
    print(f"parameters: {sum(p.nbytes for p in model.parameters()) / MiB:.0f} MiB")
    try:
        train(box, model, "vgpu:0")
    except torch.OutOfMemoryError as error:
        print(error)

# %% [markdown]
# The five largest tensors are activations, which the forward pass keeps for the backward pass. A network with fewer
# parameters would not help. Smaller images or a smaller batch would.
#
# ## Cut in two
#
# We cut ResNet-50 where the article did. `ModelParallelResNet50` has the layers up to `layer2` on GPU 0, and the layers
# from `layer3` on GPU 1. In the forward pass one tensor crosses the cut. In the backward pass its gradient crosses in
# the other direction.
#
# **Predict first.** Each GPU has about half of the layers. Does each GPU hold about half of the activations?

# %% tags=["answer"]
# answer
with virtual_gpus(2, P100, "NVLink 1", dry=True) as pair:
    seconds = train(pair, ModelParallelResNet50("vgpu:0", "vgpu:1"), "vgpu:1")
held = [pair.ledger.peak(i).kinds["activations"] for i in (0, 1)]
print(f"GPU 0 holds {held[0] / sum(held):.0%} of the activations")
plot.memory(pair, "Two P100: the first has three quarters of the activations", over="operations")
None

# %% tags=["checked"]
# checked: one tensor of (10, 512, 128, 128) crosses the cut in each direction
crossing = [(e.lane, e.nbytes, e.phase) for e in pair.copies]
cut = 10 * 512 * 128 * 128 * 4
assert crossing == [("vgpu:0 -> vgpu:1", cut, "forward"), ("vgpu:1 -> vgpu:0", cut, "backward")]
assert 0.72 < held[0] / sum(held) < 0.78

# %% [markdown]
# <details><summary>Why</summary>
#
# The first layers have the tensors with the largest height and width, so GPU 0 holds three quarters of the activations.
# Each GPU reaches its peak at the beginning of its own backward pass. At this moment it still holds all its
# activations, and it allocates its first gradients. (`cell:4` in the figure is line 4 of the cell that began the
# operation.)
#
# </details>
#
# ## The published table, predicted
#
# nvidia-smi shows the memory that the driver has given to a process. This is more than its tensors have. The caching
# allocator of PyTorch gets memory from the driver in large segments, and it keeps a segment when the tensors in it are
# freed. All its segments together are the **reserved memory**. The libraries of CUDA need some memory, too, which is
# called the context. We assume 450 MiB.

# %%
peaks = [pair.ledger.peak(i).nbytes for i in (0, 1)]
with pair:
    reserved = [torch.vgpu.max_memory_reserved(i) for i in (0, 1)]
rows = {
    "tensors at the peak": peaks,
    "kept by the allocator besides": [r - p for r, p in zip(reserved, peaks)],
    "CUDA context (assumed)": [P100.context] * 2,
    "predicted, in all": [r + P100.context for r in reserved],
    "published": [nbytes * MiB for nbytes in TWO_P100.MiB],
}
for name, (first, second) in rows.items():
    print(f"{name:30} GPU 0 {first / MiB:6.0f} MiB   GPU 1 {second / MiB:5.0f} MiB")
off = [mine / theirs - 1 for mine, theirs in zip(rows["predicted, in all"], rows["published"])]
print(f"prediction against publication: GPU 0 {off[0]:+.1%}, GPU 1 {off[1]:+.1%}")

# %% [markdown]
# The prediction is 9 % too high for GPU 0 and 4 % too low for GPU 1. The first row is arithmetic. The second row is the
# least certain: how many segments the allocator keeps depends on the order of all allocations. The appendix
# [03, memory that nvidia-smi shows](appendix/03_nvidia_smi.ipynb) follows it segment by segment. It also shows that the
# step would run with the 14 637 MiB that the article reports.
#
# nvidia-smi also shows the utilisation of each GPU. It is the share of a sample period in which the GPU executed a
# kernel. The period is between a sixth of a second and one second, depending on the GPU [2].
#
# **Predict first.** Take a whole training step as the period. What is the largest possible sum of the two GPUs'
# utilisations?

# %% tags=["answer"]
# answer
utilisation = [busy(pair.events, name) / seconds for name in pair.names]
for gpu, (ours, percent, watts) in enumerate(zip(utilisation, TWO_P100.utilisation, TWO_P100.watts)):
    print(f"GPU {gpu} computes for {ours:.0%} of a step of {seconds:.2f} s. Published: {percent} %, {watts} W")
print(f"sum: {sum(utilisation):.0%}. Published: {sum(TWO_P100.utilisation)} %")
plot.timeline(pair, "Inter-layer model parallelism: one GPU computes, the other waits")
None

# %% tags=["checked"]
# checked: our utilisations sum to at most 100 %
assert 0.9 < sum(utilisation) <= 1 < sum(TWO_P100.utilisation) / 100

# %% [markdown]
# <details><summary>Why</summary>
#
# GPU 1 needs what GPU 0 computes, and in the backward pass GPU 0 needs what GPU 1 computes. So one GPU always waits for
# the other, and over a step the sum is at most 100 %. The published sum, 128 %, therefore cannot be a mean over whole
# steps. A step takes about as long as a sample period, so one reading shows only a part of a step. The published power
# says which part: of at most 300 W, GPU 0 took 46 W and GPU 1 took 241 W. At that moment GPU 1 computed and GPU 0
# waited. This single reading neither confirms our prediction nor refutes it.
#
# </details>
#
# Inter-layer model parallelism alone saves memory, but it saves **no time**. Lesson 04 makes use of the GPU that waits.
#
# ## Is it a good cut?
#
# ResNet-50 is a chain of 18 layers: a stem, 16 blocks, and a head. It can be cut in 17 places. The article's cut puts 8
# layers on GPU 0. A good cut makes the two parts equal, but equal in what? `layer_costs` runs each layer forward and
# backward, and returns its seconds and the bytes of its activations. `balance` finds the cut that makes the more
# expensive part as cheap as possible. To run the uncut network, we give the virtual P100 80 GiB of memory.

# %%
LARGE = replace(P100, name="P100 with 80 GiB", memory=80 * GiB)


def chain(model):
    """Return ResNet-50 as 18 layers, one after the other."""
    stem = nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
    head = nn.Sequential(model.avgpool, nn.Flatten(), model.fc)
    return nn.Sequential(stem, *model.layer1, *model.layer2, *model.layer3, *model.layer4, head)


with virtual_gpus(1, LARGE, dry=True) as box:
    layers = chain(ResNet50().to("vgpu:0"))
    costs = layer_costs(layers, torch.empty(10, 3, 1024, 1024, device="vgpu:0"))
print("equal seconds:", balance([c.seconds for c in costs], 2))

# %% [markdown]
# The cut for equal seconds has 7 and 11 layers. The article's cut, 8 and 10, comes close to it.
#
# **Predict first.** The memory was short, not the time. Is the cut for equal memory earlier or later than the
# article's? And is it enough to know what the forward pass keeps, if the peak of a whole step is to be small?

# %% tags=["answer"]
# answer
by_memory = balance([c.activations for c in costs], 2)
print("equal activations:", by_memory)
found = {}
for sizes in all_cuts(18, 2):
    with virtual_gpus(2, LARGE, "NVLink 1", dry=True, record=False) as box, torch.device("vgpu:0"):
        parts = split(chain(ResNet50()), sizes, ["vgpu:0", "vgpu:1"])
        found[sizes[0]] = (train(box, parts, "vgpu:1"), [most / GiB for most in box.ledger.most])
largest = {n: max(peak) for n, (_, peak) in found.items()}
best = min(largest, key=largest.get)
print(f"{best} layers on GPU 0: peak {largest[best]:.1f} GiB; 8 layers on GPU 0: peak {largest[8]:.1f} GiB")
plot.lines(
    list(found),
    {f"GPU {i}": [peak[i] for _, peak in found.values()] for i in (0, 1)},
    "layers on GPU 0 (the article: 8)",
    "peak memory (GiB)",
    f"The cut with the least peak has {best} layers on GPU 0",
    {"all that tensors can have on a P100": (P100.memory - P100.context) / GiB},
    log=False,
)
None

# %% tags=["checked"]
# checked: balancing activations finds the best of all 17 cuts, and the article's peak is a third higher
assert best == by_memory[0] == 4 and len(found) == 17
assert largest[8] > 1.35 * largest[best]


# %% [markdown]
# <details><summary>Why</summary>
#
# The first layers keep the largest tensors, so the cut for equal memory comes much earlier: 4 layers and 14. We trained
# with all 17 cuts, and this cut also has the smallest peak of a whole step. Here the balance of what the forward pass
# keeps is enough, because activations are most of each peak.
#
# </details>
#
# With 4 layers on GPU 0, two GPUs of 11 GB are enough. With 8 layers they are not.

# %%
def fits(n, batch=10, memory=P100.memory):
    """Return whether a step fits in two GPUs with so many bytes, with n layers on the first."""
    gpu = replace(P100, memory=memory)
    with virtual_gpus(2, gpu, "NVLink 1", dry=True, record=False) as box, torch.device("vgpu:0"):
        try:
            train(box, split(chain(ResNet50()), [n, 18 - n], ["vgpu:0", "vgpu:1"]), "vgpu:1", batch)
        except torch.OutOfMemoryError:
            return False
    return True


{f"{n} layers on GPU 0": fits(n, memory=11 * 10**9) for n in (4, 8)}

# %% [markdown]
# What does the better cut cost? The two GPUs never compute at the same time, so the time of all computing is the same
# for every cut. Only the copy differs. An earlier cut sends a larger activation, so a slow link makes it expensive. The
# stem is an exception: its max pooling halves height and width, and there are few channels yet.

# %%
slow = {}
for n in found:
    with virtual_gpus(2, LARGE, "10 GbE", dry=True, record=False) as box, torch.device("vgpu:0"):
        slow[n] = train(box, split(chain(ResNet50()), [n, 18 - n], ["vgpu:0", "vgpu:1"]), "vgpu:1")
plot.lines(
    list(found),
    {"10 GbE": list(slow.values()), "NVLink 1": [took for took, _ in found.values()]},
    "layers on GPU 0 (the article: 8)",
    "seconds a step",
    "A cut between early layers costs little on NVLink, and much on Ethernet",
    log=False,
).axes[0].set_ylim(0, 1.1 * max(slow.values()))
with_nvlink, with_ethernet = found[best][0] / found[8][0] - 1, slow[best] / slow[8] - 1
print(f"{best} layers instead of 8: {with_nvlink:+.0%} with NVLink 1, {with_ethernet:+.0%} with 10 GbE")


# %% [markdown]
# In the next figure you choose the cut, the batch and the link.

# %% tags=["nbval-ignore-output"]
def try_it(layers_on_gpu_0=2, batch=10, link="NVLink 1"):
    n = layers_on_gpu_0
    verdict = "fits" if fits(n, batch) else "does not fit"
    with virtual_gpus(2, LARGE, link, dry=True) as box:
        took = train(box, split(chain(ResNet50()), [n, 18 - n], ["vgpu:0", "vgpu:1"]), "vgpu:1", batch)
        title = f"{n} + {18 - n} layers, batch {batch}, {link}: {took:.2f} s a step, {verdict} in two P100"
        return plot.memory(box, title, over="operations", gpu=P100)


plot.sliders(try_it, layers_on_gpu_0=list(found), batch=[2, 4, 10, 12], link=["10 GbE", "NVLink 1"])

# %% [markdown]
# **Predict first.** Two P100 hold a batch of 10 with most of the cuts. Activations grow in proportion to the batch.
# With which cuts do two P100 hold a batch of 16? Read the answer from the figure of the 17 peaks.

# %% tags=["answer"]
# answer
print(f"16 / 10 of the peak must be at most 15.56 GiB, so the peak at most {15.56 / 1.6:.1f} GiB")
print("batch 16 fits with these numbers of layers on GPU 0:", [n for n in found if fits(n, 16)])
print("batch 12 fits with the article's cut:", fits(8, 12))

# %% [markdown]
# <details><summary>Why</summary>
#
# Only the balanced cut has a peak below 9.7 GiB at batch 10, so only this cut holds a batch of 16. The article's cut
# does not even hold 12.
#
# </details>
#
# Exercise [`e03_balance`](../exercises/e03_balance.py): find the exact balance, for any number of GPUs.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e03_balance

# %% [markdown]
# ## A U-Net is not a chain
#
# A month later Ajioka published a 3-D U-Net with its encoder on one GPU and its decoder on the other [3]. The encoder
# makes the image smaller, level by level, and the decoder makes it larger again. At each level a **skip connection**
# carries the encoder's activation directly to the decoder. All skip connections cross this cut. (His network has four
# levels, and ours has three.)

# %%
with virtual_gpus(2, P100, "NVLink 1", dry=True) as box:
    unet = UNet3D(devices=("vgpu:0", "vgpu:1"))
    volume = torch.empty(1, 1, 64, 128, 128, device="vgpu:0")
    box.reset()
    unet(volume).sum().backward()
    between_halves = box.ledger.most
    skips = [e.nbytes for e in box.copies if e.phase == "forward"]
plot.unet(skips[:-1], skips[-1], "All skips of a U-Net cross a cut between encoder and decoder")
None

# %% tags=["checked"]
# checked: the sizes of the three tensors that cross, and the widest is 16 times as large as the deepest
voxels = 64 * 128 * 128
assert skips == [4 * 32 * voxels, 4 * 64 * voxels // 8, 4 * 128 * voxels // 64] and skips[0] == 16 * skips[-1]

# %% [markdown]
# If the network were a chain, only the tensor of the deepest level would cross the cut. The widest skip connection is
# 16 times as large. But there are other cuts.
#
# **Predict first.** Put level 0 on GPU 0, both its encoder and its decoder, and all deeper levels on GPU 1. Which
# tensors cross the cut in the forward pass? Which GPU has the larger peak?

# %% tags=["answer"]
# answer
with virtual_gpus(2, P100, "NVLink 1", dry=True) as box:
    unet = UNet3D()
    (e0, e1, e2), pool = unet.encoder.levels, unet.encoder.pool
    (up1, up0), (d1, d0), out = unet.decoder.ups, unet.decoder.levels, unet.decoder.out
    for place, modules in {"vgpu:0": (e0, up0, d0, out), "vgpu:1": (e1, e2, up1, d1)}.items():
        for module in modules:
            module.to(place)
    volume = torch.empty(1, 1, 64, 128, 128, device="vgpu:0")
    box.reset()
    wide = e0(volume)
    skip = e1(copy(pool(wide), "vgpu:1"))
    deep = d1(torch.cat([skip, up1(e2(pool(skip)))], 1))
    out(d0(torch.cat([wide, up0(copy(deep, "vgpu:0"))], 1))).sum().backward()
    crossed = [e.nbytes for e in box.copies if e.phase == "forward"]
    between_levels = box.ledger.most
for name, nbytes, most in ("encoder | decoder", skips, between_halves), ("level 0 | below", crossed, between_levels):
    peaks = " and ".join(f"{peak / MiB:.0f}" for peak in most)
    print(f"{name:18}{sum(nbytes) / MiB:4.0f} MiB cross forward; peaks of {peaks} MiB")

# %% tags=["checked"]
# checked: less than a third of the bytes cross, and the larger peak is more than a quarter higher
assert crossed == [4 * 32 * voxels // 8, 4 * 64 * voxels // 8] and 3 * sum(crossed) < sum(skips)
assert max(between_levels) > 1.25 * max(between_halves)


# %% [markdown]
# <details><summary>Why</summary>
#
# Two tensors cross: the pooled activation of level 0 goes down, and the output of level 1 comes up. Together they have
# less than a third of the bytes. But level 0 holds most of the activations, so the peak of GPU 0 is a third higher than
# the larger peak before. The cut with the fewest bytes need not be the best balanced.
#
# </details>
#
# ## The other way to save memory
#
# Activation checkpointing keeps only the input of each block. When the backward pass needs the other activations of
# a block, it runs the forward pass of this block again (Tianqi Chen and others, *Training Deep Nets with Sublinear
# Memory Cost*, 2016, <https://arxiv.org/abs/1604.06174>).

# %%
class Checkpointed(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


# %% [markdown]
# **Predict first.** The backward pass of a layer takes about twice as long as its forward pass. By what fraction does
# checkpointing every block lengthen a step?

# %% tags=["answer"]
# answer
choices = {}
for name, sizes, wrap in (
    ("one GPU", [18], nn.Sequential),
    ("one GPU, checkpoints", [18], Checkpointed),
    ("two GPUs, 8 + 10", [8, 10], nn.Sequential),
    ("two GPUs, 4 + 14", [4, 14], nn.Sequential),
    ("two GPUs, 4 + 14, checkpoints", [4, 14], Checkpointed),
):
    names = ["vgpu:0", "vgpu:1"][: len(sizes)]
    with virtual_gpus(2, LARGE, "NVLink 1", dry=True, record=False) as box, torch.device("vgpu:0"):
        layers, parts = chain(ResNet50()), []
        for size in sizes:
            parts.append(wrap(*layers[:size]))
            layers = layers[size:]
        took = train(box, split(nn.Sequential(*parts), [1] * len(parts), names), names[-1])
        choices[name] = (took, max(box.ledger.most) / GiB)
for name, (took, peak) in choices.items():
    print(f"{name:30} {peak:5.1f} GiB, {took:.2f} s a step")
plot.points(
    choices,
    "seconds a step",
    "peak memory of the fuller GPU (GiB)",
    "Checkpoints save more memory than a second GPU, but take more time",
    {"all that tensors can have on a P100": (P100.memory - P100.context) / GiB},
)
None

# %% tags=["checked"]
# checked: checkpoints need less than a third of the memory, and 30 to 40 % more time
(plain_time, plain_peak), (longer, small_peak), *_ = choices.values()
assert small_peak < plain_peak / 3 and 1.3 < longer / plain_time < 1.4

# %% [markdown]
# <details><summary>Why</summary>
#
# The forward pass is about a third of a step, and it runs twice. So a step takes about a third longer. On one GPU the
# peak falls from 17.0 GiB to 5.1 GiB, and the network fits on one P100. A second GPU is not the only answer to a
# network that does not fit, and it is not the cheapest.
#
# </details>
#
# **Predict first.** A checkpointed step computes the same gradients. Is the network the same after the step? Think of
# batch norm, which changes its running mean by 10 % in each forward pass.

# %% tags=["answer"]
# answer
torch.manual_seed(0)
x = torch.randn(8, 3, 6, 6)
plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
twice = deepcopy(plain)
plain(x).square().sum().backward()
checkpoint(twice, x, use_reentrant=False).square().sum().backward()
print("equal gradients:", all(torch.equal(p.grad, q.grad) for p, q in zip(plain.parameters(), twice.parameters())))
print("batches that batch norm counts:", *(block[1].num_batches_tracked.item() for block in (plain, twice)))
print(f"running mean with checkpoint / without: {(twice[1].running_mean / plain[1].running_mean).mean():.2f}")


# %% [markdown]
# <details><summary>Why</summary>
#
# Batch norm runs forward twice for each batch, so it changes its running statistics twice. The running mean moves by
# 1 - 0.9² = 19 % toward the batch's mean, and not by 10 %. Training does not use the running statistics, but evaluation
# does. A `momentum` of 1 - √0.9 = 0.0513 restores the 10 %. Layer norm keeps no statistics, so checkpoints do not
# change it. Dropout draws the same numbers again, because `checkpoint` restores the state of the random numbers.
#
# </details>
#
# ## Is it the same network?
#
# A split, in contrast, must change nothing. We train a small network for three steps, whole on the CPU and split over
# three virtual GPUs, and compare all bits of the losses.

# %%
def small_network():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    return layers, [(torch.randn(5, 8), torch.randn(5, 4)) for _ in range(3)]


def losses_of(model, data, first, last):
    optimizer = torch.optim.Adam(model.parameters())
    found = []
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.to(first)), y.to(last))
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


model, data = small_network()
wanted = losses_of(model, data, "cpu", "cpu")
with virtual_gpus(3):
    model, data = small_network()
    got = losses_of(split(model, [1, 2, 2], ["vgpu:0", "vgpu:1", "vgpu:2"]), data, "vgpu:0", "vgpu:2")
assert got == wanted
got


# %% [markdown]
# Exercise [`e03_split_model`](../exercises/e03_split_model.py): write `split`.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e03_split_model

# %% [markdown]
# ## The same in PyTorch
#
# In one process, `.to` is all that you need. Autograd copies the gradient back. On a machine with two GPUs, write
# "cuda:0" and "cuda:1" in the cell below.

# %%
class TwoParts(nn.Module):
    def __init__(self, layers, n, devices=("vgpu:0", "vgpu:1")):  # or ("cuda:0", "cuda:1")
        super().__init__()
        self.devices = devices
        self.first, self.second = layers[:n].to(devices[0]), layers[n:].to(devices[1])

    def forward(self, x):
        h = self.first(x.to(self.devices[0]))
        return self.second(h.to(self.devices[1]))


with virtual_gpus(2):
    model, data = small_network()
    print(losses_of(TwoParts(model, 3), data, "vgpu:0", "vgpu:1") == wanted)

# %% [markdown]
# If each GPU has a process of its own, perhaps on another machine, autograd cannot follow the tensor. Rank 0 then sends
# the activation as a message and receives its gradient. Rank 1 does the opposite. Here two real processes run the
# program with gloo, PyTorch's library for messages between CPUs.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/two_parts.py
import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo")  # or "nccl", with each part and its tensors on the GPU of its rank
rank = dist.get_rank()
torch.manual_seed(0)  # both ranks draw the same network and data, and each keeps its part
layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
part = layers[:3] if rank == 0 else layers[3:]
optimizer, losses = torch.optim.Adam(part.parameters()), []
for x, y in [(torch.randn(5, 8), torch.randn(5, 4)) for _ in range(3)]:
    optimizer.zero_grad()
    if rank == 0:
        h = part(x)
        dist.send(h.detach(), dst=1)
        gradient = torch.empty_like(h)
        dist.recv(gradient, src=1)
        h.backward(gradient)
    else:
        h = torch.empty(5, 16)
        dist.recv(h, src=0)
        loss = nn.functional.mse_loss(part(h.requires_grad_()), y)
        loss.backward()
        dist.send(h.grad, dst=0)
        losses.append(loss.item())
    optimizer.step()
if rank == 1:
    print(losses)
dist.destroy_process_group()

# %%
# said = !torchrun --local-addr localhost --nproc-per-node 2 scratch/two_parts.py 2> scratch/torchrun.log
assert said == [str(wanted)]
said

# %% [markdown]
# The two processes print the same losses as the whole network, bit for bit.
#
# ## The reference implementation
#
# This is the library's class, without its docstrings. The link opens the file.

# %%
from mpcourse.common.source import reference

reference(ModelParallelResNet50)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | inter-layer model parallelism | naive model parallelism; `device_map="auto"` in Hugging Face accelerate |
# | `split(model, sizes, devices)` | `torch.distributed.pipelining.SplitPoint`, `pipe_split` |
# | `balance` | [torchgpipe](https://arxiv.org/abs/2004.09910)'s `balance_by_time` and `balance_by_size` |
# | checkpointing | activation checkpointing, `torch.utils.checkpoint`; "recompute" in Megatron-LM |
# | memory kept by the allocator | reserved memory; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` |
#
# To predict the memory of a model of your own, run
# `mpcourse predict file.py:make_model --batch 10 3 1024 1024 --gpus 2 --cut layer2`.
#
# 1. Takehiro Ajioka, *PyTorchで大きなネットワークを複数のGPUに分散して学習する* (How to train a large network in
#    parts on several GPUs with PyTorch), 2020, <https://qiita.com/takeajioka/items/26439b848f66f43bb1d3>
# 2. NVIDIA, *NVML API Reference Guide*, `nvmlUtilization_t`, 2026,
#    <https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html>
# 3. Takehiro Ajioka, *3D-U-Net-pytorch-model-parallel*, 2020,
#    <https://github.com/atakehiro/3D-U-Net-pytorch-model-parallel>
#
# ## Problems
#
# **1.** A network has 100 equal blocks. The input of each block has 10 MB. A block keeps 200 MB for its backward pass.
# How much memory do the activations need without checkpoints, with a checkpoint at each block, and with a checkpoint at
# every second block?
#
# **2.** A language model has 70 billion parameters of 2 bytes, and is cut in two on two A100 with 80 GB each. For each
# token that it generates, each GPU reads all its parameters once, at 2 TB/s, and 8192 numbers of 2 bytes cross the cut
# at 25 GB/s. How long does a token take at least? Would a third GPU make it faster?

# %% tags=["answer"]
# answer
for blocks in (1, 2):  # from one checkpoint to the next
    held = f"{100 // blocks} * 10 MB + {blocks} * 200 MB = {(100 // blocks * 10 + blocks * 200) / 1e3} GB"
    print(f"1. {blocks} block(s) a checkpoint: {held}; without: {100 * 200 / 1e3:.0f} GB")
reading, crossing = 70e9 * 2 / 2e12, 8192 * 2 / 25e9
print(f"2. 140 GB / 2 TB/s = {1e3 * reading:.0f} ms; the cut adds {1e6 * crossing:.1f} us")
print("   Each GPU waits half of the time.")
print("   A third GPU would not help: the three would read the same 140 GB, one after the other.")

# %% [markdown]
# ## What you found
#
# - Activations, not parameters, fill the memory in this lesson. nvidia-smi shows more than the tensors have, because
#   the allocator keeps segments and the CUDA context needs memory, too.
# - The cut for equal activations differs from the cut for equal time. The first half of ResNet-50 holds three quarters
#   of the activations. An earlier cut sends more bytes, which only a fast link makes cheap.
# - Checkpoints need about a third more time and less than a third of the memory. They run batch norm forward twice, so
#   its running statistics change.
# - A split computes the same losses, bit for bit, in one process by `.to` and in two processes by messages.
#
# The appendix [03, memory that nvidia-smi shows](appendix/03_nvidia_smi.ipynb) explains the memory that the allocator
# keeps.
#
# Next comes lesson 04, [Pipeline](04_pipeline.ipynb), in which both GPUs compute at the same time.
