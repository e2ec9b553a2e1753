# %% [markdown]
# # 03 Split by layers
#
# **What if the network does not fit?** About 55 minutes to read, and 50 for its exercises.
#
# ResNet-50 has 97 MiB of parameters. One training step on ten images of 1024 x 1024 pixels needs 17.0 GiB, more than a
# Tesla P100 has. In March 2020, Takehiro Ajioka therefore trained the network on two P100 GPUs [1]. He put the first
# layers on one GPU and the rest on the other. This is **inter-layer** model parallelism. His article shows what
# nvidia-smi, NVIDIA's GPU monitor, printed during the training: 14 637 MiB on the first GPU and 6657 MiB on the second.
#
# This lesson predicts these numbers without a GPU, and asks whether the cut was a good one.
#
# After this lesson you can
#
# - predict the memory that a training step needs on each GPU, and say why nvidia-smi shows more than the tensors
#   occupy;
# - choose where to cut a chain of layers, by memory, time and the bytes that cross the cut;
# - choose between a second GPU, a larger one, checkpoints and **offload** by comparing their costs;
# - say what checkpoints change in a network with batch norm;
# - derive how many bytes of activations a transformer layer keeps;
# - split a network over two GPUs or two processes in PyTorch, and test that it computes the same losses as the whole
#   network.

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
from mpcourse.models import ResNet50
from mpcourse.models.gpt import Block, Shape
from mpcourse.split import ModelParallelResNet50, all_cuts, balance, layer_costs, split
from mpcourse.virtual import GPUS, LINKS, busy, virtual_gpus

MiB, GiB = 2**20, 2**30
P100 = GPUS["Tesla P100-SXM2"]


# %% [markdown]
# ## The network does not fit
#
# With `dry=True`, a virtual GPU holds no values. It needs hardly any of your laptop's memory, but it counts every byte
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
# from `layer3` on GPU 1. The forward pass sends one tensor to GPU 1, and the backward pass sends its gradient back.
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
# Each GPU reaches its peak at the beginning of its own backward pass, when it still holds all its activations and
# allocates its first gradients. (In the figure, `cell:4` means that line 4 of the cell began the operation.)
#
# </details>
#
# ## The published table, predicted
#
# nvidia-smi shows the memory that the driver has given to a process. This is more than the process's tensors occupy.
# PyTorch's caching allocator gets memory from the driver in large segments, and it keeps a segment when the tensors in
# it are freed. All segments together are the **reserved memory**. CUDA's libraries also need some memory, called the
# context. We assume a context of 450 MiB.

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
# The prediction is 9 % too high for GPU 0 and 4 % too low for GPU 1. The second row is the least certain, because the
# number of kept segments depends on the order of all allocations. The appendix [03, memory that nvidia-smi
# shows](appendix/03_nvidia_smi.ipynb) follows the segments, and shows that the step could run in the 14 637 MiB that
# the article reports.
#
# nvidia-smi also shows the utilisation of each GPU: the share of a sample period that the GPU spent executing kernels.
# The period lasts between a sixth of a second and one second, depending on the GPU [2].
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
# In the forward pass, GPU 1 needs what GPU 0 computes, and in the backward pass, GPU 0 needs what GPU 1 computes. So
# one GPU always waits for the other, and over a step, as over any period, the sum is at most 100 %. The published sum
# is 128 %, so the two readings cannot cover the same period. A period can be shorter than a step, so a reading may show
# only a part of a step. The published power suggests which part. Of the 300 W that each GPU may draw, GPU 0 drew 46 W
# and GPU 1 drew 241 W, so GPU 1 was computing and GPU 0 was waiting. These readings neither confirm nor refute our
# prediction.
#
# </details>
#
# Inter-layer model parallelism alone saves memory, but **no time**. Lesson 04 makes use of the GPU that waits.
#
# ## Is it a good cut?
#
# ResNet-50 is a chain of 18 layers: a stem, 16 blocks, and a head. It can be cut in 17 places. The article's cut puts 8
# layers on GPU 0. A good cut makes the two parts equal, but equal in what? `layer_costs` runs each layer forward and
# backward, and returns its time and the bytes of its activations. `balance` finds the cut that makes the more expensive
# part as cheap as possible. To run the uncut network, we raise the memory of the virtual P100 to 80 GiB.

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
# The cut for equal time puts 7 layers on GPU 0 and 11 on GPU 1. The article's cut, 8 and 10, is close.
#
# **Predict first.** Memory was scarce, not time. Is the cut for equal memory earlier or later than the article's cut?
# And is it enough to balance what the forward pass keeps, if you want the lowest peak memory over a whole step?

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
# The first layers keep the largest tensors, so the cut for equal memory comes much earlier: 4 layers and 14. Of all 17
# cuts, this one also gives the lowest peak memory over a whole step. Here, it is enough to balance what the forward
# pass keeps, because activations make up most of each peak.
#
# </details>
#
# What does the better cut cost? The two GPUs never compute at the same time, so the total computing time is the same
# for every cut. Only the copy differs. An earlier cut sends a larger activation, so it is expensive on a slow link. The
# stem is an exception: its output is small, because max pooling halves height and width and there are still few
# channels.

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
# In the next figure, choose the cut, the batch and the link.

# %% tags=["nbval-ignore-output"]
def try_it(layers_on_gpu_0=2, batch=10, link="NVLink 1"):
    n = layers_on_gpu_0
    with virtual_gpus(2, LARGE, link, dry=True) as box:
        took = train(box, split(chain(ResNet50()), [n, 18 - n], ["vgpu:0", "vgpu:1"]), "vgpu:1", batch)
        verdict = "fits" if max(box.ledger.most) <= P100.memory - P100.context else "does not fit"
        title = f"{n} + {18 - n} layers, batch {batch}, {link}: {took:.2f} s a step, {verdict} in two P100"
        return plot.memory(box, title, over="operations", gpu=P100)


plot.sliders(try_it, layers_on_gpu_0=list(found), batch=[2, 4, 10, 12, 16], link=["10 GbE", "NVLink 1"])


# %% [markdown]
# Exercise [`e03_balance`](../exercises/e03_balance.py): find the exact balance, for any number of GPUs.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e03_balance

# %% [markdown]
# ## Other remedies for a full GPU
#
# Besides a second GPU, there are four remedies for a full GPU. Each has a price.
#
# - **A larger device.** Ajioka's article names TPUs. The step that is too large for a P100 needs about a fifth of the
#   memory of an A100 with 80 GB, and is also faster there. But the larger device costs more money.
# - **Activation checkpointing** keeps only the input of each block. When the backward pass needs the other activations
#   of a block, it runs the forward pass of this block again (Tianqi Chen and others, *Training Deep Nets with Sublinear
#   Memory Cost*, 2016, <https://arxiv.org/abs/1604.06174>). The price is one more forward pass.
# - **Offload** copies activations to the host's memory in the forward pass, and back in the backward pass. PyTorch's
#   `save_on_cpu` does this. If n bytes are offloaded, the copies take 2 n / b seconds on a link of b bytes per second.
# - **Unified memory** also uses the host's memory, but the driver decides which pages move, and when. Ajioka's article
#   links to a description of unified memory in Chainer [3]. If the GPU's memory is too small by n bytes, at least n
#   bytes must leave it and return, which takes at least 2 n / b seconds. Virtual GPUs have no unified memory, so we
#   compute only this bound.

# %%
class Checkpointed(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class Offloaded(nn.Sequential):
    def forward(self, x):
        with torch.autograd.graph.save_on_cpu():
            return super().forward(x)


# %% [markdown]
# **Predict first.** The step needs 17.0 GiB, but a P100 has only 15.6 GiB for tensors. It fits if every block is
# checkpointed, or if only the stem is offloaded. Which is faster? A step takes 0.8 s without either, and the stem's 2.5
# GB of activations travel at 5.4 GB/s between the GPU and ordinary host memory (PCIe 3.0).

# %% tags=["answer"]
# answer
ways = {
    "one GPU": [(0, 18, nn.Sequential)],
    "one GPU, checkpoints": [(0, 18, Checkpointed)],
    "one GPU, stem offloaded": [(0, 1, Offloaded), (0, 17, nn.Sequential)],
    "two GPUs, 8 + 10": [(0, 8, nn.Sequential), (1, 10, nn.Sequential)],
    "two GPUs, 4 + 14": [(0, 4, nn.Sequential), (1, 14, nn.Sequential)],
}
choices = {}
for name, parts in ways.items():
    with virtual_gpus(2, LARGE, "NVLink 1", dry=True, record=False) as box, torch.device("vgpu:0"):
        layers, made, devices = chain(ResNet50()), [], [f"vgpu:{gpu}" for gpu, _, _ in parts]
        for _, size, kind in parts:
            made.append(kind(*layers[:size]))
            layers = layers[size:]
        took = train(box, split(nn.Sequential(*made), [1] * len(made), devices), devices[-1])
        choices[name] = (took, max(box.ledger.most) / GiB)
for name, (took, peak) in choices.items():
    print(f"{name:24} {peak:5.1f} GiB, {took:.2f} s a step")
with virtual_gpus(1, "A100-SXM4", dry=True) as box:
    took = train(box, ResNet50().to("vgpu:0"), "vgpu:0")
    print(f"{'one A100 with 80 GB':24} {box.ledger.most[0] / GiB:5.1f} GiB, {took:.2f} s a step")
plot.points(
    choices,
    "seconds a step",
    "peak memory of the fuller GPU (GiB)",
    "Each way out of a full P100 costs time or a second GPU",
    {"all that tensors can have on a P100": (P100.memory - P100.context) / GiB},
)
None

# %% [markdown]
# <details><summary>Why</summary>
#
# Checkpoints are faster. The forward pass is about a third of a step, so a second one makes the step about a third
# longer. The peak falls to 5.1 GiB. Offloading the stem takes 2 x 2.5 GB / 5.4 GB/s = 0.9 s, which is longer than a
# whole step without offloading. Pinned memory (12 GB/s) would make it cheaper. So would copies that run at the same
# time as the kernels, but `save_on_cpu` makes no such copies. It also copies a tensor twice if two operations save it,
# as ReLU and max pooling do in the stem.
#
# </details>
#
# The next cell compares the formulas with the virtual GPU.

# %%
(plain_time, plain_peak), (longer, small_peak), (offloaded, _), *_ = choices.values()
saved = 4 * 10 * (3 * 1024**2 + 3 * 64 * 512**2) + 8 * 10 * 64 * 256**2  # images, three times 64 channels, indices
pcie = LINKS["PCIe 3.0 x16"]
copies = 2 * saved / (pcie.pageable * pcie.bandwidth)
excess = plain_peak * GiB - (P100.memory - P100.context)
print(f"checkpoints: {plain_time * 4 / 3:.2f} s by 4/3 of a step, {longer:.2f} s on the virtual GPU")
print(f"stem offloaded: {plain_time + copies:.2f} s by 2 n / b, {offloaded:.2f} s on the virtual GPU")
least = plain_time + 2 * excess / pcie.bandwidth
print(f"unified memory: at least {least:.2f} s, if {excess / GiB:.2f} GiB move twice at 12 GB/s")

# %% tags=["checked"]
# checked: both formulas agree with the virtual GPU, and checkpoints need less than a third of the memory
assert abs(longer / (plain_time * 4 / 3) - 1) < 0.05 and small_peak < plain_peak / 3
assert abs(offloaded / (plain_time + copies) - 1) < 0.01
assert choices["one GPU, stem offloaded"][1] < (P100.memory - P100.context) / GiB < plain_peak
assert 4.5 < 80 / plain_peak < 5

# %% [markdown]
# **Predict first.** A checkpointed step computes the same gradients. Is the network after the step the same as it would
# be without checkpoints? Think of batch norm, whose running mean moves 10 % of the way to the batch's mean in each
# forward pass.

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
# Batch norm runs forward twice for each batch, so it changes its running statistics twice. The running mean moves 1 -
# 0.9² = 19 % of the way, not 10 %. Only evaluation uses the running statistics. A `momentum` of 0.0513 (1 - √0.9)
# restores the 10 %. Layer norm keeps no statistics, so checkpoints do not change it. Dropout draws the same numbers
# again, because `checkpoint` restores the state of the random number generator.
#
# </details>
#
# ## The activations of a transformer
#
# The layers of the course's small GPT (`mpcourse.models.gpt`) are built like those of GPT-2. A layer first mixes the
# tokens of a sequence with attention, and then transforms each token separately with an MLP. Let s be the number of
# tokens in a sequence, b the number of sequences, h the width (numbers per token) and a the number of attention heads.
# In bfloat16, a number has 2 bytes. The forward pass of one layer keeps
#
# | operation | keeps | bytes, divided by s b h |
# |---|---|---|
# | two layer norms | their inputs | 2 + 2 |
# | queries, keys and values | their input, and the three results | 2 + 6 |
# | the projection after attention | its input | 2 |
# | first linear layer of the MLP | its input | 2 |
# | GELU and second linear layer | their inputs, which are 4 h wide | 8 + 8 |
#
# Together, these are 32 s b h bytes. Korthikanti and others count 34 s b h, because their layer also has a dropout
# after attention and another after the MLP, and each keeps a mask of one byte per number. Their attention computes a
# matrix of s x s weights for each head. It keeps the weights (2 bytes), a mask (1) and the weights after dropout (2),
# which are 5 a s² b bytes together. Their formula for a layer is
#
# $$s b h \left(34 + \frac{5 a s}{h}\right)$$
#
# (Vijay Korthikanti and others, *Reducing Activation Recomputation in Large Transformer Models*, 2022,
# <https://arxiv.org/abs/2205.05198>). **Fused attention**, such as FlashAttention, computes the matrix piece by piece
# and does not keep it. `scaled_dot_product_attention`, which our GPT calls, is fused on a GPU.

# %%
class WithMatrix(Block):
    """The layer of the paper: attention keeps its matrix, and dropout follows the matrix, attention and the MLP."""

    def __init__(self, shape):
        super().__init__(shape)
        self.second = nn.Sequential(self.second, nn.Dropout(0.1))

    def attention(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2))
        weights = nn.functional.dropout((q @ k.transpose(2, 3) / q.shape[3] ** 0.5).softmax(3), 0.1)
        return nn.functional.dropout(self.out((weights @ v).transpose(1, 2).flatten(2)), 0.1)


def kept(layer, s, h=4096, heads=32):
    """Return the bytes that the ledger of a virtual H100 counts for one sequence of s tokens."""
    with virtual_gpus(1, "H100-SXM", dry=True), torch.device("vgpu:0"):
        made = layer(Shape(vocabulary=1, length=s, width=h, heads=heads, layers=1)).bfloat16()
        return layer_costs(nn.Sequential(made), torch.empty(1, s, h, dtype=torch.bfloat16))[0].activations


# %% [markdown]
# **Predict first.** A layer has h = 4096 and a = 32. The sequences become four times as long, 8192 tokens instead of
# 2048. By what factor do the kept bytes grow if attention keeps its matrix, and by what factor if attention is fused?

# %% tags=["answer"]
# answer
for name, layer in ("with matrix", WithMatrix), ("fused", Block):
    short, long = (kept(layer, s) for s in (2048, 8192))
    print(f"{name:12} {short / 1e9:.2f} GB, then {long / 1e9:5.2f} GB: {long / short:.1f} times as many")
for s in (2048, 8192):
    paper, fused = (s * 4096 * factor / 1e9 for factor in (34 + 5 * 32 * s / 4096, 32))
    print(f"the formulas, {s} tokens: {paper:5.2f} GB with the matrix, {fused:.2f} GB fused")

# %% tags=["checked"]
# checked: the ledger has the formulas' bytes, and two numbers a token and layer norm, and one a token and head
for s in (2048, 8192):
    assert kept(WithMatrix, s) == s * 4096 * 34 + 5 * 32 * s * s + 16 * s
    assert kept(Block, s) == s * 4096 * 32 + 16 * s + 4 * 32 * s + 16  # the seed and offset of random numbers


# %% [markdown]
# <details><summary>Why</summary>
#
# The matrix has s² weights for each head, so it becomes 16 times as large. With fused attention, every term is
# proportional to s. The ledger counts slightly more than the formula. Each layer norm keeps a mean and a scale for each
# token, and fused attention keeps one number for each token and head.
#
# </details>
#
# The paper's remedy is **selective recomputation**. It keeps the 34 s b h bytes, and recomputes only the matrix in the
# backward pass.
#
# ## Is it the same network?
#
# A split must not change what the network computes. We train a small network for three steps, once undivided on the CPU
# and once split over three virtual GPUs, and compare the losses bit by bit.

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
# If each GPU has a process of its own, autograd cannot follow the tensor. Rank 0 then sends the activation as a message
# and receives its gradient. Rank 1 receives the activation and sends back its gradient. The next program runs in two
# real processes with gloo, PyTorch's library for messages between CPUs.

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
# The losses equal the whole network's, bit for bit.
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
# | `save_on_cpu` | CPU offloading in Transformer Engine, which copies while kernels run |
# | unified memory | `cudaMallocManaged`, through a `CUDAPluggableAllocator` |
# | memory kept by the allocator | reserved memory; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` |
#
# To predict the memory of your own model, run `mpcourse predict file.py:make_model --batch 10 3 1024 1024 --gpus 2
# --cut layer2`.
#
# 1. Takehiro Ajioka, *PyTorchで大きなネットワークを複数のGPUに分散して学習する* (Training a large network across
#    several GPUs with PyTorch), 2020, <https://qiita.com/takeajioka/items/26439b848f66f43bb1d3>
# 2. NVIDIA, *NVML API Reference Guide*, `nvmlUtilization_t`, 2026,
#    <https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html>
# 3. koreyou, *Unified Memoryを使ってGPUメモリよりも大きなモデルをChainerで扱う* (Running models larger than the
#    GPU's memory in Chainer with Unified Memory), 2019, <https://qiita.com/koreyou/items/4494442eb71bea0bb5b2>
#
# ## Problems
#
# **1.** A language model has 70 billion parameters of 2 bytes. Each of two A100 GPUs with 80 GB holds half of its
# layers. For each generated token, each GPU reads its half of the parameters once, at 2 TB/s, and 8192 numbers of 2
# bytes cross the cut at 25 GB/s. What is the shortest possible time per token? Would a third GPU shorten it?
#
# **2.** GPT-3 has 96 layers, h = 12288 and a = 96. How many bytes of activations does one sequence of 2048 tokens need
# in bfloat16 (a) by the paper's formula, (b) with fused attention and without dropout, and (c) with a checkpoint at
# each layer? (Sizes: Tom Brown and others, *Language Models are Few-Shot Learners*, 2020,
# <https://arxiv.org/abs/2005.14165>.)

# %% tags=["answer"]
# answer
reading, crossing = 70e9 * 2 / 2e12, 8192 * 2 / 25e9
print(f"1. 140 GB / 2 TB/s = {1e3 * reading:.0f} ms; the cut adds {1e6 * crossing:.1f} us")
print("   Each GPU waits half of the time.")
print("   A third GPU would not help: the three would read the same 140 GB, one after the other.")
sbh = 2048 * 12288
paper, fused = (34 + 5 * 96 * 2048 / 12288) * sbh / 1e9, 32 * sbh / 1e9  # of one layer
print(f"2. 96 * {paper:.2f} GB = {96 * paper:.0f} GB; 96 * {fused:.2f} GB = {96 * fused:.0f} GB; ", end="")
print(f"checkpoints 96 * {2 * sbh / 1e9:.2f} GB + one layer = {(96 * 2 * sbh) / 1e9 + fused:.1f} GB")

# %% [markdown]
# ## What you found
#
# - Activations fill the memory in this lesson. nvidia-smi shows more memory than the tensors occupy, because the
#   allocator keeps segments and the CUDA context needs memory, too.
# - The cut for equal activations is earlier than the cut for equal time. An earlier cut sends more bytes, which is
#   cheap only on a fast link.
# - Checkpoints cost one more forward pass. Offload costs two copies of what is offloaded, and unified memory at least
#   two copies of what does not fit. Checkpoints run batch norm forward twice, so its running statistics change.
# - A layer of a transformer keeps s b h (34 + 5 a s / h) bytes. Fused attention removes the term that grows with s².
# - A split network computes the same losses as the whole network, bit for bit, in one process with `.to` and in two
#   processes with messages.
#
# The appendix [03, a U-Net on two GPUs](appendix/03_unet.ipynb) cuts a network that is not a chain.
#
# Next comes lesson 04, [Pipeline](04_pipeline.ipynb), in which both GPUs compute at the same time.
