# %% [markdown]
# # 03 Split by layers
#
# **What if the network does not fit?** About 50 minutes to read, and 50 for its exercises.
#
# In March 2020 an article trained ResNet-50 on random images of 1024x1024 pixels, ten at a time, on two Tesla P100 with
# 16 GB each. On one, we shall see, it would not have fitted. The first half of the layers went to one GPU, the second
# half to the other: **inter-layer** model parallelism. The article's result is a table of nvidia-smi.
#
# We predict that table, without a GPU. Then we ask whether the cut was a good one.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("03_split_by_layers")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from dataclasses import replace

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
# ## It does not fit
#
# A virtual GPU without data (`dry=True`) needs no memory of the laptop, and counts that of the P100 to the byte.

# %%
def train_step(model, optimizer, images, targets):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(images), targets)  # as in the article
    loss.backward()
    optimizer.step()


def train(box, model, last, batch=10, side=1024):
    """One step of a model whose output is on device `last`; its seconds. All steps are alike: SGD keeps nothing."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    images = torch.empty(batch, 3, side, side, device="vgpu:0")
    targets = torch.empty(batch, 1000, device=last)
    box.reset()
    start = box.synchronize()
    train_step(model, optimizer, images, targets)
    return box.synchronize() - start


with virtual_gpus(1, P100, dry=True) as box:
    model = ResNet50().to("vgpu:0")
    assert round(sum(p.nbytes for p in model.parameters()) / MiB) == 97
    try:
        train(box, model, "vgpu:0")
    except torch.OutOfMemoryError as error:
        message = str(error)
assert "vgpu:0 is out of memory" in message and "activations" in message
print(message)

# %% [markdown]
# The five largest tensors are activations, which the forward pass keeps for the backward pass. All parameters together
# have 97 MiB. A model with fewer parameters would not help, smaller images would.

# %% [markdown]
# ## Cut in two
#
# `ModelParallelResNet50` has the layers up to layer2 on one GPU, and those from layer3 on the other. One tensor crosses
# the cut in the forward pass, and its gradient in the backward pass.
#
# **Predict first.** Each GPU has about half of the layers. Does each have about half of the activations?

# %%
with virtual_gpus(2, P100, "NVLink 1", dry=True) as pair:
    seconds = train(pair, ModelParallelResNet50("vgpu:0", "vgpu:1"), "vgpu:1")
held = [pair.ledger.peak(i).kinds["activations"] for i in (0, 1)]
assert 0.72 < held[0] / sum(held) < 0.78
crossing = [(e.lane, e.nbytes, e.phase) for e in pair.copies]
cut = 10 * 512 * 128 * 128 * 4
assert crossing == [("vgpu:0 -> vgpu:1", cut, "forward"), ("vgpu:1 -> vgpu:0", cut, "backward")]
plot.memory(pair, "Two P100: the first has three quarters of the activations", over="operations")
None

# %% [markdown]
# GPU 0 has three quarters of them, for the tensors of the first layers are the largest in height and width. The peak of
# each GPU is at the beginning of its backward pass: all its activations are still held when it allocates its first
# gradients.

# %% [markdown]
# ## The published table, predicted
#
# nvidia-smi shows what the driver has allocated to a process. That is more than tensors use: torch's caching allocator
# asks the driver for segments and keeps them (**reserved memory**), and CUDA itself takes some for its context.

# %%
published = list(TWO_P100.MiB)
peaks = [pair.ledger.peak(i) for i in (0, 1)]
with pair:
    reserved = [torch.vgpu.max_memory_reserved(i) for i in (0, 1)]
workspaces = [p.kinds.get("workspaces", 0) for p in peaks]
rows = {
    "tensors at the peak": [p.nbytes - w for p, w in zip(peaks, workspaces)],
    "workspaces of cuBLAS": workspaces,
    "kept by the allocator besides": [r - p.nbytes for r, p in zip(reserved, peaks)],
    "CUDA context (assumed)": [P100.context] * 2,
}
predicted = [sum(column) / MiB for column in zip(*rows.values())]
print("MiB                            GPU 0   GPU 1")
for name, values in rows.items():
    print(f"{name:30}" + "".join(f"{v / MiB:6.0f}  " for v in values))
print("predicted, in all             {:6.0f}  {:6.0f}".format(*predicted))
print("published                     {:6.0f}  {:6.0f}".format(*published))
print("left unexplained              {:+6.0f}  {:+6.0f}".format(*(p - q for p, q in zip(published, predicted))))

# %%
off = [mine / theirs - 1 for mine, theirs in zip(predicted, published)]
assert 0.08 < off[0] < 0.10 and -0.05 < off[1] < -0.03
print(f"GPU 0 {off[0]:+.1%}, GPU 1 {off[1]:+.1%}")

# %% [markdown]
# GPU 0 is predicted 9 % too high, GPU 1 4 % too low. The first row is arithmetic. The third is the least certain, and
# on GPU 0 it has a simple structure: three segments of 640 MiB, the size of the largest tensors, and 6 MiB. When the
# backward pass reaches layer1, it needs new tensors of 640 MiB. Those of layer2 are freed, but their segments have 320
# MiB each, and segments do not merge.
#
# What is left unexplained on GPU 0 is two of these segments, and 25 MiB. They are optional: where the driver has no
# more memory to give, the allocator first returns its unused segments. So the step also runs on a GPU that has no more
# than the published 14 637 MiB.

# %%
assert round((reserved[0] - peaks[0].nbytes) / MiB) == 3 * 640 + 6
with virtual_gpus(2, replace(P100, memory=TWO_P100.MiB[0] * MiB), "NVLink 1", dry=True) as small:
    train(small, ModelParallelResNet50("vgpu:0", "vgpu:1"), "vgpu:1")
    needed = torch.vgpu.max_memory_reserved(0)
print(f"GPU 0, if it had {TWO_P100.MiB[0]} MiB: {(needed + P100.context) / MiB:.0f} MiB")
assert needed + P100.context < published[0] * MiB < reserved[0] + P100.context

# %% [markdown]
# The published figure lies between the two, where the allocator would be that kept one of the three. What the real one
# kept also depends on the workspaces of cuDNN, which are not in our table: they are requested from the same allocator,
# in both halves.
#
# nvidia-smi also shows a utilisation, the share of a short time in which a GPU computed, and the power that it took.
#
# **Predict first.** How busy can the two GPUs be at most, the one and the other added up?

# %%
utilisation = [busy(pair.events, name) / seconds for name in pair.names]
assert 0.9 < sum(utilisation) <= 1 < sum(TWO_P100.utilisation) / 100
assert 10 * 3 * 1024 * 1024 * 4 == 120 * MiB  # the images of a step, of which more below
print(f"published by nvidia-smi{'predicted':>40}")
print(f"GPU     memory  utilisation  power, of {TWO_P100.watts_allowed} W      memory  busy in {seconds:.2f} s, a step")
columns = zip(TWO_P100.MiB, TWO_P100.utilisation, TWO_P100.watts, predicted, utilisation)
for gpu, (nbytes, percent, watts, ours, part) in enumerate(columns):
    print(f"{gpu:3}  {nbytes:5} MiB  {percent:9} %  {watts:13} W   {ours:5.0f} MiB  {100 * part:20.0f} %")

# %% [markdown]
# While one GPU computes the other waits, so over a step the two add up to 100 % at most. Published are 128 %. That is
# no mean over a step: nvidia-smi's utilisation is that of the last sixth of a second to a second, and a step takes
# about one second. The power tells which part of a step it was. Of the 300 W allowed, GPU 0 took 46 W and GPU 1 took
# 241 W: GPU 1 computed, and GPU 0 waited. This one reading neither confirms the prediction of a mean nor refutes it.
#
# Our step also differs from theirs. In each step the article draws its images on the CPU and copies them to GPU 0, 120
# MiB. Ours begins when they are there.

# %%
plot.timeline(pair, "Inter-layer model parallelism: one GPU computes, the other waits")
None

# %% [markdown]
# So inter-layer model parallelism alone saves memory and **no time**. Lesson 04 makes use of the waiting GPU.

# %% [markdown]
# ## Is it a good cut?
#
# ResNet-50 is a chain: a stem, 16 blocks, a head. There are 17 places to cut it. First we ask `balance`, which needs
# the cost of each layer: `layer_costs` runs them one by one, forward and backward. The whole network has to fit for
# that, so the virtual GPU is a P100 with 80 GiB.

# %%
LARGE = replace(P100, name="a P100 with 80 GiB", memory=80 * GiB)


def chain(model):
    """ResNet-50 as 18 layers, one after the other."""
    stem = nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
    head = nn.Sequential(model.avgpool, nn.Flatten(), model.fc)
    return nn.Sequential(stem, *model.layer1, *model.layer2, *model.layer3, *model.layer4, head)


with virtual_gpus(1, LARGE, dry=True) as box:
    layers = chain(ResNet50().to("vgpu:0"))
    costs = layer_costs(layers, torch.empty(10, 3, 1024, 1024, device="vgpu:0"))
by_time = balance([c.seconds for c in costs], 2)
by_memory = balance([c.activations for c in costs], 2)
assert by_time == [7, 11] and by_memory == [4, 14]
print(f"equal time: {by_time}; equal memory: {by_memory}")

# %% [markdown]
# The cut for equal time is nearly the article's, which had 8 layers and 10. The cut for equal memory comes much
# earlier, because the first layers keep the largest tensors. And it was memory that was short.
#
# `balance` knows only what the forward pass keeps. Is it right about the peak of a whole step? We train with all 17
# cuts.

# %%
cuts = list(all_cuts(18, 2))
found = {}
for sizes in cuts:
    with virtual_gpus(2, LARGE, "NVLink 1", dry=True, record=False) as box, torch.device("vgpu:0"):
        parts = split(chain(ResNet50()), sizes, ["vgpu:0", "vgpu:1"])
        found[sizes[0]] = (train(box, parts, "vgpu:1"), [most / GiB for most in box.ledger.most])
largest = {n: max(peak) for n, (_, peak) in found.items()}
best = min(largest, key=largest.get)
assert best == by_memory[0] == 4, "to balance what forward keeps is to find the best cut"
assert largest[8] > 1.35 * largest[best]
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


# %% [markdown]
# It is right. With 4 layers on the first GPU, two GPUs of 11 GB are enough: the step runs.

# %%
def fits(n, batch=10, memory=P100.memory):
    """Whether a step fits in two GPUs with so many bytes, with n layers on the first."""
    gpu = replace(P100, memory=memory)
    with virtual_gpus(2, gpu, "NVLink 1", dry=True, record=False) as box, torch.device("vgpu:0"):
        try:
            train(box, split(chain(ResNet50()), [n, 18 - n], ["vgpu:0", "vgpu:1"]), "vgpu:1", batch)
        except torch.OutOfMemoryError:
            return False
    return True


assert fits(4, memory=11 * 10**9) and not fits(8, memory=11 * 10**9)

# %% [markdown]
# And the time? Nothing runs side by side, so equal times gain nothing yet. The sum of the work is the same for every
# cut. Only the copy differs: the earlier the cut, the larger the activation that crosses it. So the link decides
# whether the cut matters. The stem is the exception: max pooling has halved height and width, and there are few
# channels yet.

# %%
slow = {}
for n in found:
    with virtual_gpus(2, LARGE, "10 GbE", dry=True, record=False) as box, torch.device("vgpu:0"):
        slow[n] = train(box, split(chain(ResNet50()), [n, 18 - n], ["vgpu:0", "vgpu:1"]), "vgpu:1")
assert found[best][0] / found[8][0] < 1.05 < 1.3 < slow[best] / slow[8]
assert len(slow) == len(found) == 17
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
# **Predict first.** Two P100 hold a batch of 10 with most of the cuts. With how many of the 17 do they hold 16? Move
# the sliders: memory and time change together.

# %% tags=["nbval-ignore-output"]
def try_it(layers_on_gpu_0=4, batch=10, link="NVLink 1"):
    n = layers_on_gpu_0
    told = "fits" if fits(n, batch) else "does not fit"
    with virtual_gpus(2, LARGE, link, dry=True) as box:
        took = train(box, split(chain(ResNet50()), [n, 18 - n], ["vgpu:0", "vgpu:1"]), "vgpu:1", batch)
        title = f"{n} + {18 - n} layers, batch {batch}, {link}: {took:.2f} s a step, {told} in two P100"
        return plot.memory(box, title, over="operations")


plot.sliders(
    try_it, layers_on_gpu_0=list(found), batch=[2, 4, 10, 16], link=["10 GbE", "PCIe 3.0 x16", "NVLink 1"]
)

# %%
hold_16 = [n for n in found if fits(n, 16)]
assert hold_16 == [best] and fits(8, 10) and not fits(8, 12)
hold_16

# %% [markdown]
# With one, the balanced one. With the article's cut they do not even hold 12.
#
# Exercise [`e03_balance`](../exercises/e03_balance.py) asks for the exact balance, for any number of GPUs.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e03_balance

# %% [markdown]
# ## A U-Net is no chain
#
# The article's author then published a 3-D U-Net, with its encoder on one GPU and its decoder on the other. Its **skip
# connections** carry each level of the encoder directly to the decoder. All of them cross the cut. (The author's
# network has four levels, ours three.)

# %%
with virtual_gpus(2, P100, "NVLink 1", dry=True) as box:
    unet = UNet3D(devices=("vgpu:0", "vgpu:1"))
    volume = torch.empty(1, 1, 64, 128, 128, device="vgpu:0")
    box.reset()
    unet(volume).sum().backward()
    between_halves = box.ledger.most
    skips = [e.nbytes for e in box.copies if e.phase == "forward"]
voxels = 64 * 128 * 128
assert skips == [4 * 32 * voxels, 4 * 64 * voxels // 8, 4 * 128 * voxels // 64]
plot.unet(skips[:-1], skips[-1], "All skips of a U-Net cross a cut between encoder and decoder")
None

# %% [markdown]
# The widest skip is 16 times as large as the deepest level, the one tensor that a chain would have sent. The cut
# between encoder and decoder is the easiest one to program. But the network need not be cut there.
#
# **Predict first.** Put level 0 on GPU 0, its encoder and its decoder, and all below it on GPU 1. Which tensors cross
# now, and what does it cost?

# %%
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
assert crossed == [4 * 32 * voxels // 8, 4 * 64 * voxels // 8] and 3 * sum(crossed) < sum(skips)
assert max(between_levels) > 1.25 * max(between_halves)
for name, nbytes, most in ("encoder | decoder", skips, between_halves), ("level 0 | below", crossed, between_levels):
    peaks = " and ".join(f"{peak / MiB:.0f}" for peak in most)
    print(f"{name:18}{sum(nbytes) / MiB:4.0f} MiB cross forward; peaks of {peaks} MiB")


# %% [markdown]
# Less than a third of the bytes cross. But level 0 holds most of the activations, so the fuller GPU needs a third more
# memory. In a chain a cut has one tensor to send; in any other graph, bytes and balance are two wishes.

# %% [markdown]
# ## The other way to save memory
#
# Activations need not be kept. **Activation checkpointing** (Chen et al., 2016) keeps the input of each block only, and
# computes the rest again when the backward pass needs it. It costs one more forward pass.

# %%
class Checkpointed(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


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
(plain_time, plain_peak), (longer, small_peak), *_ = choices.values()
assert small_peak < plain_peak / 3 and 1.3 < longer / plain_time < 1.4
plot.points(
    choices,
    "seconds a step",
    "peak memory of the fuller GPU (GiB)",
    "Checkpoints save more memory than a second GPU, and cost time instead",
    {"all that tensors can have on a P100": (P100.memory - P100.context) / GiB},
)
None

# %% [markdown]
# Less than a third of the memory, for about a third more time: the forward pass is about a third of a step. So the
# network fits on one P100. A second GPU is not the only answer to a network that does not fit, and not the cheapest.

# %% [markdown]
# ## Is it the same network?
#
# A split must change nothing. Three steps of training, compared with the whole model to the last bit.

# %%
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
start = {name: value.clone() for name, value in plain.state_dict().items()}
data = [(torch.randn(5, 8), torch.randn(5, 4)) for _ in range(3)]


def losses_of(model, first, last):
    optimizer = torch.optim.Adam(model.parameters())
    found = []
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(copy(x, first)), copy(y, last))
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


wanted = losses_of(plain, "cpu", "cpu")
plain.load_state_dict(start)
with virtual_gpus(3):
    got = losses_of(split(plain, [1, 2, 2], ["vgpu:0", "vgpu:1", "vgpu:2"]), "vgpu:0", "vgpu:2")
assert got == wanted
got

# %% [markdown]
# The same with two ranks, each a process with a part of its own. What `copy` did is now a message: the activation goes
# to the next rank in the forward pass, and its gradient comes back in the backward pass.

# %% tags=["nbval-ignore-output"]
from pathlib import Path

Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/two_parts.py
import torch
import torch.nn as nn
from mpi4py import MPI

comm = MPI.COMM_WORLD
torch.manual_seed(0)  # the whole network and its data are drawn alike on both ranks; each keeps its part
whole = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
part = whole[:3] if comm.rank == 0 else whole[3:]
data = [(torch.randn(5, 8), torch.randn(5, 4)) for _ in range(3)]

optimizer = torch.optim.Adam(part.parameters())
losses = []
for x, y in data:
    optimizer.zero_grad()
    if comm.rank == 0:
        activation = part(x)
        comm.Send(activation.detach().numpy(), dest=1)
        gradient = torch.empty_like(activation)
        comm.Recv(gradient.numpy(), source=1)
        activation.backward(gradient)
    else:
        activation = torch.empty(5, 16)
        comm.Recv(activation.numpy(), source=0)
        loss = nn.functional.mse_loss(part(activation.requires_grad_()), y)
        loss.backward()
        comm.Send(activation.grad.numpy(), dest=0)
        losses.append(loss.item())
    optimizer.step()
if comm.rank == 1:
    print(losses)

# %%
# said = !mpirun -np 2 python scratch/two_parts.py
assert said == [str(wanted)]
said

# %% [markdown]
# Exercise [`e03_split_model`](../exercises/e03_split_model.py): write `split`.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e03_split_model

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.split import ModelParallelResNet50

reference(ModelParallelResNet50)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | inter-layer model parallelism | also naive model parallelism; `device_map="auto"` in Hugging Face accelerate |
# | `split(model, sizes, devices)` | `torch.distributed.pipelining.SplitPoint`, `pipe_split` |
# | `balance` | torchgpipe's `balance_by_time` and `balance_by_size` |
# | checkpointing | activation checkpointing, `torch.utils.checkpoint`; "recompute" in Megatron-LM |
# | memory kept by the allocator | reserved memory; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` |
#
# In a clone of the course `python -m tests.validation truth` prints our prediction of the published table, too. On a
# machine with a GPU, `--device cuda` compares ten models' memory and time, predicted and measured.
#
# For a model of your own: `mpcourse predict file.py:make_model --batch 10 3 1024 1024 --gpus 2 --cut layer2`.
#
# Next: [04 Pipeline](04_pipeline.ipynb), in which the GPUs compute at the same time.
