# %% [markdown]
# # 01 One device
#
# **What does one training step cost, in time and memory?** About 55 minutes to read, and 30 for its exercise.
#
# Later lessons split a training step over several devices. A split pays only if it saves more than it costs, so you
# must first know what the step costs on one device. On an NVIDIA A100, a step of the smallest GPT-2 takes 444 ms in
# float32 and 56 ms in bfloat16. But a step of a GPT with 216 thousand parameters takes 1.3 ms in float32 and 2.1 ms in
# bfloat16.
#
# This lesson measures steps on one CPU core, and then predicts how steps would run on GPUs. It uses two networks: a
# multilayer perceptron (MLP) from 2015, and a small GPT.
#
# After this lesson you can
#
# - estimate the arithmetic of a training step, and compute its memory byte by byte;
# - find out what limits a step: the CPU that issues the work, the GPU's arithmetic, or the GPU's memory;
# - copy a batch to a GPU while the CPU goes on;
# - train with a batch that does not fit in memory;
# - compare two ways of training by several runs of each.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("01_one_device")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from mpcourse import plot
from mpcourse.data import course_text, digits, draw_batch
from mpcourse.models import mlp
from mpcourse.models.gpt import GPT2, SMALL, gpt, token_loss
from mpcourse.models.step_memory import measure_step
from mpcourse.models.training import train
from mpcourse.studies.compare import difference, mean_of
from mpcourse.virtual import GPUS, busy, virtual_gpus

torch.set_num_threads(1)  # one core stands for one device
MiB = 2**20


# %% [markdown]
# ## Two networks and one step
#
# The MLP is the network in the MNIST example of Chainer, an early deep-learning framework. It has two hidden layers of
# 1000 units [1]. Here it reads 1797 handwritten digits of 8x8 pixels [2]. The GPT reads this course's own text, and
# predicts its next character. It has four layers of width 64, built as in GPT-2 [3].
#
# A step has three phases. The forward pass computes the loss, the backward pass computes the gradients of the
# parameters, and the optimizer step changes the parameters.

# %%
def step(model, optimizer, inputs, targets, loss_of=F.cross_entropy):
    optimizer.zero_grad()
    loss = loss_of(model(inputs), targets)  # forward
    loss.backward()  # backward
    optimizer.step()  # optimizer step
    return loss


torch.manual_seed(0)
data, text = digits(), course_text()
widths = [64, 1000, 1000, 10]
model, small = mlp(widths), gpt(SMALL)
images, labels = data.train.images[:100], data.train.labels[:100]
tokens, following = draw_batch(text.train, 8, SMALL.length, torch.Generator().manual_seed(0))
for name, network in (("MLP", model), ("GPT", small)):
    print(f"{name}: {sum(p.numel() for p in network.parameters()):,} parameters")

# %% [markdown]
# The loss of the GPT begins near ln 96 = 4.6, the loss of a random guess among 96 characters. Training lowers it.

# %% tags=["nbval-ignore-output"]
adam = torch.optim.AdamW(small.parameters(), lr=3e-3)
losses = [step(small, adam, tokens, following, token_loss).item() for _ in range(40)]
print(f"the loss falls from {losses[0]:.1f} to {losses[-1]:.1f} in 40 steps on one batch")

# %% tags=["checked"]
# checked: the loss begins near that of a guess, and falls by a quarter
assert 4.4 < losses[0] < 4.9 and losses[-1] < 0.75 * losses[0]

# %% [markdown]
# ## How much work is a step?
#
# A linear layer from n to m units multiplies a (batch, n) matrix by an (n, m) matrix. This takes batch x n x m
# multiplications and as many additions; both are **floating-point operations** (FLOPs). So a forward pass takes 2 N D
# FLOPs, where N is the number of parameters and D is the number of times that each parameter is used. The backward pass
# does this much work twice, once for the gradient of the weights and once for the gradient of the layer's input. A
# training step therefore takes about **6 N D** FLOPs.
#
# In an MLP, each weight is used once for each example, so D is the batch size. In a transformer, each weight is used
# once for each token. A forward pass takes **2 N FLOPs a token**, and generating a token takes as many. The embeddings
# are not counted in N, because they are looked up rather than multiplied [4]. PyTorch can count the FLOPs of matrix
# products:

# %%
n_mlp = sum(p.numel() for p in model.parameters())
n_gpt = sum(p.numel() for p in small[1:].parameters())  # without layer 0, the embeddings
for name, network, x, y, loss_of, used in (
    ("MLP", model, images, labels, F.cross_entropy, n_mlp * len(images)),
    ("GPT", small, tokens, following, token_loss, n_gpt * tokens.numel()),
):
    with FlopCounterMode(display=False) as counter:
        loss_of(network(x), y).backward()
    print(f"{name}: 6 N D = {6 * used / 1e6:.0f} million, counted {counter.get_total_flops() / 1e6:.0f} million")
attention = 2 * (SMALL.length + 1) * SMALL.width * SMALL.layers
print(f"GPT, a token forward: 2 N = {2 * n_gpt} FLOPs, and attention {attention}")

# %% tags=["checked"]
# checked: the rule is 2 % too high for both networks
for n, d, want in (
    (n_mlp, 100, 2 * 3 * 100 * (64_000 + 10**6 + 10_000) - 2 * 100 * 64_000),
    (n_gpt, 512, 6 * 512 * (4 * 12 * 64**2 + 64 * 96)),
):
    assert round(6 * n * d / want, 2) == 1.02


# %% [markdown]
# The rule is 2 % too high for both networks. The first layer of the MLP needs no gradient of its input. In the GPT, N
# includes the biases and the parameters of layer norms, which take no part in matrix products. PyTorch does not count
# attention on a CPU. Attention's work for a token grows with the number of earlier tokens, and adds 8 % to a forward
# pass here.
#
# ## Batch size and examples a second
#
# A step has a fixed cost, whatever the batch size, for calling the operations and updating the parameters. Each example
# adds a further cost. A simple model of the step's time is
#
# $$\text{seconds} = \text{fixed} + \text{each} \times \text{batch}$$
#
# The two parts are equal at the **knee**, a batch of `fixed / each` examples. There a step takes twice its fixed cost,
# and the device processes examples at half its maximum rate.
#
# The next cell measures steps of the MLP. We keep the fastest of several steps, because everything else that the
# machine does can only add time.
#
# **Predict first.** A batch of 4 is four times the work of a batch of 1. Does its step take four times as long?

# %% tags=["answer", "nbval-ignore-output"]
# answer
def seconds_of_step(batch, repeats=5):
    model = mlp(widths)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(batch, widths[0]), torch.randint(10, (batch,))
    took = []
    for _ in range(repeats):
        start = time.process_time()
        step(model, optimizer, images, labels)
        took.append(time.process_time() - start)
    return min(took)


def fit_line(x, y):
    """Return fixed and each of the line fixed + each * x whose relative errors are smallest."""
    each, fixed = np.polyfit(x, y, 1, w=1 / np.array(y))
    return fixed, each


sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
seconds = [seconds_of_step(size) for size in sizes]
fixed, each = fit_line(sizes, seconds)
print(f"a batch of 4 takes {seconds[2] / seconds[0]:.1f} times as long as a batch of 1")
print(f"a step: {1e3 * fixed:.2f} ms + {1e6 * each:.1f} µs for each example; the knee: batch {fixed / each:.0f}")
plot.throughput(sizes, seconds, fixed, each, "At the knee the examples cost as much time as the fixed part of a step")
None

# %% tags=["checked"]
# checked: four examples take much less than four times as long as one, and twice a large batch nearly twice as long
assert fixed > 0 and each > 0 and seconds[2] < 3 * seconds[0]
assert 1024 / seconds[-1] > 3 / seconds[0] and (seconds[-1] / seconds[-3]) ** 0.5 > 1.5


# %% [markdown]
# <details><summary>Why</summary>
#
# Left of the knee, the fixed cost dominates, so a larger batch takes hardly any longer. Right of the knee, the examples
# dominate: twice the batch takes twice the time, and the number of examples a second stays the same. (The model's line
# appears as a curve because both axes are logarithmic.)
#
# </details>
#
# The knee decides what a split can gain. Give each of two devices half of the batch. If half of the batch lies far
# right of the knee, the step takes half the time. If it lies at the knee, the step takes two thirds of the time. If it
# lies far to the left, the step takes almost as long as before, and the devices must still communicate.
#
# ## The same step on a GPU
#
# For each operation, the CPU, called the GPU's **host**, runs code in Python, PyTorch and the driver, and puts the
# operation into the GPU's queue. This is a launch. The operation that then runs on the GPU is a **kernel**. A launch
# takes a few microseconds of the host's time, whatever the kernel does, and the host goes on without waiting for the
# kernel.
#
# A virtual GPU has a clock that follows these rules. We assume 8 µs for a launch. With `dry=True`, the virtual GPU
# computes shapes, bytes and times, but no values. From here on, the MLP has 784 inputs, one for each pixel of MNIST's
# images.

# %%
def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def on_gpu(batch, units=1000, gpu="A100-SXM4", make_optimizer=momentum):
    """Copy a batch to a GPU and run one step. Return the box and the seconds of both."""
    with virtual_gpus(1, gpu, dry=True) as box:
        model = mlp([784, units, units, 10]).to("vgpu:0")
        optimizer = make_optimizer(model.parameters())
        for _ in range(2):  # the first step creates the optimizer's state
            images, labels = torch.randn(batch, 784), torch.randint(10, (batch,))
            box.reset()
            start = box.synchronize()
            step(model, optimizer, images.to("vgpu:0"), labels.to("vgpu:0"))
            took = box.synchronize() - start
    return box, took


gpu_sizes = [4**k for k in range(9)]
gpu_seconds = [on_gpu(size)[1] for size in gpu_sizes]
gpu_fixed, gpu_each = fit_line(gpu_sizes, gpu_seconds)
print(f"an A100: {1e6 * gpu_fixed:.0f} µs + {1e6 * gpu_each:.2f} µs for each example", end="; ")
print(f"the knee: batch {gpu_fixed / gpu_each:.0f}, at most {1 / gpu_each:,.0f} examples a second")

# %% tags=["checked"]
# checked: a GPU has more than ten times the rate of a core, and a larger knee
assert gpu_seconds[3] < 1.1 * gpu_seconds[0] and gpu_seconds[-1] > 3 * gpu_seconds[-2]
assert each > 10 * gpu_each and gpu_fixed / gpu_each > fixed / each

# %% [markdown]
# A GPU processes far more examples per second than a CPU core, but needs a larger batch to do so. The next two figures
# show a step on either side of the knee.

# %%
few, few_seconds = on_gpu(64)
plot.timeline(few, "Batch 64: the host is busy, the GPU waits for work")
None

# %% [markdown]
# The rows are the host, the GPU, and the link between them. A kernel's colour is light in the forward pass, full in the
# backward pass, and dark in the optimizer step. The GPU finishes most kernels before the host has launched the next
# one. Such a step is **launch-bound**.

# %%
many, many_seconds = on_gpu(4096)
copying = sum(e.seconds for e in many.copies) / many_seconds
print(f"copies take {copying:.0%} of the step")
plot.timeline(many, "Batch 4096: the host is done early, the GPU has work to the end")
None

# %% tags=["checked"]
# checked: with 64 images the GPU computes for less than 60 % of the step and the host launches for over 70 %
launching = sum(e.end - e.start for e in few.events if e.kind == "enqueue")
assert busy(few.events, "vgpu:0") < 0.6 * few_seconds < 0.7 * few_seconds < launching
assert busy(many.events, "vgpu:0") > 0.65 * many_seconds and round(copying, 2) == 0.33

# %% [markdown]
# With 4096 images, the host is ahead. Once the copy of the batch is done, the GPU always has another kernel queued, and
# its large matrix products run as fast as its arithmetic allows. Such a step is **compute-bound**.
#
# **Predict first.** Does a faster GPU shorten the launch-bound step? And does a single example keep an A100 busy if the
# layers have 4000 units instead of 1000?

# %% tags=["answer"]
# answer
slower, faster = few_seconds, on_gpu(64, gpu="H200-SXM")[1]
print(f"batch 64, an A100: {1e6 * slower:.0f} µs a step; an H200: {1e6 * faster:.0f} µs")
rates = [GPUS[gpu].rate(torch.float32) for gpu in ("H200-SXM", "A100-SXM4")]
print(f"an H200 multiplies float32 {rates[0] / rates[1]:.1f} times as fast as an A100")
for units in (1000, 4000):
    box, took = on_gpu(1, units)
    print(f"batch 1, {units} units, an A100: busy for {busy(box.events, 'vgpu:0') / took:.0%} of the step")

# %% tags=["checked"]
# checked: the H200 saves less than 15 %, and 4000 units keep an A100 busy
assert 1.0 < slower / faster < 1.15 and rates[0] > 3 * rates[1] and busy(box.events, "vgpu:0") > 0.85 * took
assert round((784 * 4000 + 4000**2 + 4000 * 10) / 1e6) == 19


# %% [markdown]
# <details><summary>Why</summary>
#
# A faster GPU hardly helps, because the host is the bottleneck and stays the same. With 4000 units, even one example
# keeps an A100 busy: each step reads and changes 19 million parameters. But a GPU can be busy without computing much,
# as the section on the roofline model shows.
#
# </details>
#
# Try other values.

# %% tags=["nbval-ignore-output"]
def try_it(batch=256, units=4000, gpu="H200-SXM"):
    box, took = on_gpu(batch, units, gpu)
    return plot.timeline(box, f"{gpu}, {units} units, batch {batch}: {batch / took:,.0f} examples a second")


plot.sliders(
    try_it,
    batch=[1, 16, 64, 256, 1024, 4096],
    units=[250, 1000, 4000],
    gpu=["Tesla P100-SXM2", "A100-SXM4", "H200-SXM"],
)


# %% [markdown]
# ## The copy of the batch
#
# With 4096 images, the copy takes a third of the step. The batch crosses PCIe 4.0, the link between an A100 and its
# host. A copy reaches 24 GB/s on this link if the host's memory is **pinned**, that is, if the operating system never
# moves it. The GPU can read **pinned memory** by itself. Ordinary memory is pageable. The driver first copies it into a
# pinned buffer of its own, and the host waits for this staging. Such copies reach 39 % to 55 % of the rate of copies
# from pinned memory [5]; virtual GPUs assume 45 %.
#
# `images.pin_memory()` returns a copy in pinned memory, and `x.to(device, non_blocking=True)` lets the host go on while
# the GPU copies.
#
# **Predict first.** Which kind of memory, pageable or pinned, and which value of `non_blocking` let the host go on
# without waiting?

# %% tags=["answer"]
# answer
def copy_seconds(pinned, non_blocking):
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        images = torch.randn(4096, 784)
        (images.pin_memory() if pinned else images).to("vgpu:0", non_blocking=non_blocking)
        return sum(e.seconds for e in box.copies), sum(e.seconds for e in box.events if e.kind == "wait")


for pinned in (False, True):
    for non_blocking in (False, True):
        copied, waited = copy_seconds(pinned, non_blocking)
        memory = f"{'pinned' if pinned else 'pageable'} memory, non_blocking={non_blocking}"
        print(f"{memory:36} the copy takes {1e6 * copied:4.0f} µs, and the host waits for {1e6 * waited:4.0f} µs")

# %% tags=["checked"]
# checked: a pageable copy takes more than twice as long, and only the last combination does not wait
assert copy_seconds(False, True)[0] > 2 * copy_seconds(True, True)[0] and copy_seconds(True, True)[1] == 0
assert all(copy_seconds(*way)[1] > 500e-6 for way in ((False, False), (False, True), (True, False)))

# %% [markdown]
# <details><summary>Why</summary>
#
# Only pinned memory together with `non_blocking=True` frees the host. If the memory is pageable, the host must wait for
# the driver's staging, whatever `non_blocking` says. Pinned memory alone makes the copy twice as fast, but the host
# waits because the call blocks. Do not pin a batch in the training loop: `pin_memory()` is itself a copy on the host.
# Let `DataLoader(..., pin_memory=True)` do it in a thread of its own.
#
# </details>
#
# On a second CUDA stream (a second queue of the GPU), the copy of the next batch can run during the kernels of the
# current step.
#
# ## Compute-bound or memory-bound
#
# A kernel that runs long enough has two limits: the FLOPs that the device computes in a second, and the bytes that its
# memory delivers in a second. The kernel's **arithmetic intensity**, its FLOPs for each byte that it reads or writes,
# decides which limit it reaches. This is the roofline model [6]. We assume that kernels on an A100 reach 87 % of the
# published FLOP/s and 79 % of the published bandwidth [7].
#
# A product of two float32 matrices of 1000 x 1000 has an intensity of 2 billion FLOPs / 12 MB = 167. For each element,
# a ReLU reads 4 bytes, performs one operation and writes 4 bytes, so its intensity is 1/8.

# %%
a100 = GPUS["A100-SXM4"]
reached, bandwidth = a100.rate(torch.float32), a100.bandwidth * a100.memory_efficiency
title = f"Batch 4096 on an A100: left of {reached / bandwidth:.0f} FLOP a byte, memory is the limit"
plot.roofline(many, reached, bandwidth, title)
None

# %% tags=["checked"]
# checked: only matrix products are compute-bound, and every kernel of the optimizer is memory-bound
assert (reached / a100.flops, bandwidth / a100.bandwidth) == (0.87, 0.79)
kernels = [e for e in many.events if e.lane == "vgpu:0"]
bound_by_memory = [e for e in kernels if e.flops / e.nbytes < reached / bandwidth]
assert {e.name for e in kernels if e not in bound_by_memory} == {"addmm", "mm"}
assert all(e in bound_by_memory for e in kernels if e.phase == "optimizer")


# %% [markdown]
# Each mark is a kernel, and the mark's area is the kernel's share of the time. A kernel on the slope is
# **memory-bound**: the memory sets its speed, so a GPU with more FLOP/s does not help. All kernels of the optimizer
# step are on the slope. A kernel below the slope is too short to reach either limit. The large matrix products reach
# the flat roof. `torch.compile` and fused optimizers combine several element-wise operations into one kernel, which
# saves bytes and launches.
#
# ## What does a step hold in memory?
#
# A step holds four kinds of tensors. Parameters and gradients are equally large. The **optimizer state** depends on the
# optimizer: SGD with momentum keeps one number for each parameter, and Adam keeps two. **Activations** are the tensors
# that the forward pass saves for the backward pass, including the input. The gradient of a layer's weights is the
# product of the layer's input and the gradient of its output. The backward pass reaches the first layer last, so the
# first layer's input is kept longest.
#
# `measure_step` runs a real step and counts what PyTorch holds.

# %%
def breakdown(batch, make_optimizer):
    model = mlp([784, 1000, 1000, 10])
    images, labels = torch.randn(batch, 784), torch.randint(10, (batch,))
    return measure_step(model, images, labels, make_optimizer(model.parameters())).as_dict()


small = gpt(SMALL)
breakdowns = {
    "MLP, SGD, 100 images": breakdown(100, torch.optim.SGD),
    "MLP, Adam, 100 images": breakdown(100, torch.optim.Adam),
    "MLP, Adam, 2000 images": breakdown(2000, torch.optim.Adam),
    "GPT, Adam, 512 tokens": measure_step(
        small, tokens, following, torch.optim.Adam(small.parameters()), token_loss
    ).as_dict(),
}
by_formula = SMALL.layers * 16 * tokens.numel() * SMALL.width * 4
print(f"16 tensors a layer: {by_formula / MiB:.1f} MiB of activations in the GPT")
plot.memory_breakdown(breakdowns, "Adam doubles what does not depend on the batch; activations grow with it")
None

# %% tags=["checked"]
# checked: gradients are as large as parameters, Adam keeps twice as much, and activations grow with the batch
for row in breakdowns.values():
    assert row["parameters"] == row["gradients"]
hundred, thousands = breakdowns["MLP, Adam, 100 images"], breakdowns["MLP, Adam, 2000 images"]
assert hundred["parameters"] == 4 * 1_796_010 and breakdowns["MLP, SGD, 100 images"]["optimizer"] == 0
assert hundred["optimizer"] == 2 * 4 * 1_796_010 + 6 * 4  # and a step count for each of 6 tensors
assert thousands["activations"] - 4 == 20 * (hundred["activations"] - 4)  # 4 bytes of the loss do not grow
language = breakdowns["GPT, Adam, 512 tokens"]
assert language["activations"] > 2 * (sum(language.values()) - language["activations"])
assert 0.9 < by_formula / language["activations"] < 1

# %% [markdown]
# In the MLP, parameters, gradients and optimizer state take up most of the memory, even with 2000 images. In the GPT,
# the activations are more than twice as large as everything else. Each layer saves the equivalent of 16 tensors of
# tokens x width float32 numbers: the inputs and outputs of its two layer norms (4), the queries, keys, values and
# result of attention (4), and the inputs of GELU and of the last linear layer, which are four times as wide (8). These
# are nine tenths of all activations. The rest belongs to the head.
#
# Not all of this is in memory at the same time, because gradients appear while activations are freed. A virtual GPU
# records each allocation and can draw the whole step.

# %%
boxes = {batch: on_gpu(batch, make_optimizer=torch.optim.Adam)[0] for batch in (100, 2000)}
peaks = {batch: box.ledger.peak(0) for batch, box in boxes.items()}
for batch, peak in peaks.items():
    print(f"batch {batch}: peak of {peak.nbytes / MiB:.1f} MiB in {peak.phase}, at {peak.name}")
    print("   " + ", ".join(f"{kind} {nbytes / MiB:.1f}" for kind, nbytes in peak.kinds.items()))
plot.memory(boxes[2000], "Adam, batch 2000: the peak is in backward", over="operations")
None

# %% tags=["checked"]
# checked: at the peak of batch 2000 hardly any gradient exists, and temporaries and workspaces outweigh them
assert [peak.phase for peak in peaks.values()] == ["optimizer", "backward"]
at_peak = peaks[2000].kinds
assert at_peak["gradients"] < 0.01 * thousands["gradients"]
assert at_peak["temporaries"] + at_peak["workspaces"] > thousands["gradients"]

# %% [markdown]
# **The peak must fit in memory.** It is higher than the sum of the four kinds. With batch 2000, hardly any gradient
# exists yet at the peak, but the *temporaries* and *workspaces* take more memory than all the gradients will take
# later. Temporaries are tensors such as the gradients of activations. A workspace is scratch memory of the library that
# multiplies matrices. With batch 100, the peak is in the optimizer step, where Adam computes with all parameters at
# once and its temporaries are as large as the parameters. (At the figure's right edge, the program ends and frees its
# tensors.)
#
# Exercise [`e01_memory`](../exercises/e01_memory.py): compute the four kinds to the byte, for any widths, batch and
# optimizer.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e01

# %% [markdown]
# ## Precision
#
# bfloat16 is a float32 without its last 16 bits. It keeps the exponent, and 8 of 24 significant bits. An A100
# multiplies bfloat16 on its tensor cores, 16 times as fast as float32 on its other cores.
#
# **Predict first.** What is 1 + 1/512 in bfloat16? What happens to a bfloat16 weight when an optimizer step changes it
# by a thousandth?

# %% tags=["answer"]
# answer
one = torch.tensor(1.0, dtype=torch.bfloat16)
print(f"1 + 1/512 = {(one + 2**-9).item()}, 1 + 1/128 = {(one + 2**-7).item()}")
torch.manual_seed(0)
untrained = mlp(widths)
before = [p.detach().clone() for p in untrained.parameters()]
step(untrained, torch.optim.SGD(untrained.parameters(), lr=0.05, momentum=0.9), images, labels)
pairs = [(p.detach(), old) for p, old in zip(untrained.parameters(), before)]
changed = sum((p != old).sum().item() for p, old in pairs)
lost = sum(((p != old) & ((p - old).abs() < old.abs() / 512)).sum().item() for p, old in pairs)
print(f"{lost / changed:.0%} of the parameters that change in their first step change by less than a 512th")


# %% [markdown]
# <details><summary>Why</summary>
#
# 1 + 1/512 is rounded to 1. A bfloat16 weight does not change if its update is smaller than 1/512 of it, which is the
# case for most of the MLP's weights in the first step.
#
# </details>
#
# Therefore **mixed precision** keeps the parameters and the optimizer's state in float32, and rounds only the inputs of
# matrix products [8]. In PyTorch, `torch.autocast` does so. bfloat16 has the range of float32. float16 does not, so it
# needs a `GradScaler`, which multiplies the loss so that small gradients do not become zero. TF32 is float32 in memory,
# rounded to 11 significant bits for the tensor cores. An appendix covers [float8](appendix/01_float8.ipynb).
#
# The next cell predicts steps of the small GPT and the smallest GPT-2. The last column, model FLOPs utilisation (MFU),
# is 6 N D divided by the step's time and by the FLOP/s of the data sheet [9].

# %%
def costs(shape, batch, gpu="A100-SXM4", precision="bfloat16", pieces=1):
    """Return seconds, peak bytes and MFU of Adam's step with a batch that is on the GPU, in `pieces` parts."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "TF32"
    with virtual_gpus(1, gpu, dry=True, record=False) as box, torch.device("vgpu:0"):
        model = gpt(shape)
        optimizer = torch.optim.Adam(model.parameters())
        tokens = torch.zeros(batch, shape.length, dtype=torch.int64)
        for inputs in (tokens[:1], tokens):  # the first step creates the optimizer's state
            box.reset()
            start = box.synchronize()
            optimizer.zero_grad()
            for part in inputs.chunk(pieces):
                with torch.autocast("vgpu", torch.bfloat16, enabled=precision == "bfloat16"):
                    loss = token_loss(model(part), part) / pieces
                loss.backward()
            optimizer.step()
            took = box.synchronize() - start
        work = 6 * sum(p.numel() for p in model[1:].parameters()) * tokens.numel()
    torch.backends.cuda.matmul.allow_tf32 = False
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    return took, max(box.ledger.most), work / took / GPUS[gpu].peak(dtype, tf32=precision == "TF32")[0]


found = {}
print("network    batch  GPU         precision   ms a step  peak GiB  MFU")
for name, shape, batch in (("small GPT", SMALL, 8), ("GPT-2", GPT2, 8)):
    for gpu in ("A100-SXM4", "H100-SXM"):
        for precision in ("float32", "TF32", "bfloat16"):
            took, peak, mfu = found[name, gpu, precision] = costs(shape, batch, gpu, precision)
            print(f"{name:10} {batch:5}  {gpu:11} {precision:9} {1e3 * took:11.2f} {peak / 2**30:9.2f} {mfu:5.0%}")

# %% tags=["checked"]
# checked: bfloat16 makes the small GPT slower and GPT-2 several times as fast, and TF32 leaves the memory as it was
for gpu in ("A100-SXM4", "H100-SXM"):
    assert found["small GPT", gpu, "bfloat16"][0] > found["small GPT", gpu, "float32"][0]
    assert found["GPT-2", gpu, "bfloat16"][0] < found["GPT-2", gpu, "float32"][0] / 3
    assert found["GPT-2", gpu, "TF32"][1] == found["GPT-2", gpu, "float32"][1] > found["GPT-2", gpu, "bfloat16"][1]


# %% [markdown]
# bfloat16 makes the step of GPT-2 several times as fast, and its activations smaller. The small GPT becomes slower,
# because it is launch-bound and the casts are additional kernels. The MFU is lower on an H100 than on an A100: the
# H100's arithmetic is three times as fast as the A100's, but its memory is not.
#
# ## Gradient accumulation
#
# If the activations of a batch do not fit, use **gradient accumulation**: cut the batch into **micro-batches**, call
# `backward` for each of them, and then run one optimizer step. PyTorch *adds* to `.grad`. Divide each loss by the
# number of micro-batches, and the sum is the gradient of the whole batch.

# %%
def gradients_of(pieces):
    torch.manual_seed(0)
    model = mlp(widths).double()
    for x, y in zip(images.double().chunk(pieces), labels.chunk(pieces)):
        (F.cross_entropy(model(x), y) / pieces).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


assert all(torch.allclose(gradients_of(pieces), gradients_of(1), atol=1e-15) for pieces in (2, 4, 5))
in_pieces = {pieces: costs(GPT2, 16, pieces=pieces) for pieces in (1, 2, 8)}
for pieces, (took, peak, _) in in_pieces.items():
    print(f"GPT-2, batch 16 in {pieces} micro-batches: {1e3 * took:5.1f} ms, peak {peak / 2**30:4.1f} GiB")

# %% tags=["checked"]
# checked: eight micro-batches need less than a third of the memory, and take at most half as long again
assert in_pieces[8][1] < in_pieces[1][1] / 3 and 1 < in_pieces[8][0] / in_pieces[1][0] < 1.5


# %% [markdown]
# Smaller micro-batches need less memory, but never less than the parameters, gradients, optimizer state and workspaces
# take. They take more time, because each micro-batch has a fixed cost and adds to `.grad`. This is cheap as long as a
# micro-batch lies right of the knee. Batch norm breaks the equality of the gradients, because it normalises over the
# micro-batch (lessons 04 and 06).
#
# ## Does it learn?
#
# A fast step is worth nothing if the network does not learn. One run proves little, because another seed gives another
# curve. We train with five seeds, in float32 and in mixed precision.

# %% tags=["nbval-ignore-output"]
class Mixed(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(x).float()


def curves_of(wrap):
    curves = []
    for seed in range(5):
        torch.manual_seed(seed)
        model = wrap(mlp([64, 128, 10]))  # small, because many CPUs emulate bfloat16 slowly
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        curves.append(train(model, data, optimizer, epochs=5, batch_size=32, seed=seed, record_every=45))
    return curves


curves = {"float32": curves_of(lambda model: model), "bfloat16, mixed": curves_of(Mixed)}
final = {name: [100 * curve.test_accuracy[-1] for curve in runs] for name, runs in curves.items()}
compared = difference(final["bfloat16, mixed"], final["float32"], paired=True)
for name, accuracies in final.items():
    print(f"test accuracy (%), {name}: mean and standard error {mean_of(accuracies)}")
print(f"bfloat16 - float32, by seed: {compared}")
title = "Float32 and mixed precision, five seeds each (line: mean, band: two standard errors)"
plot.learning_curves(curves, title, accuracy_from=80)
None

# %% tags=["checked"]
# checked: all runs learn, and the confidence interval of the mean difference contains zero
assert min(map(min, final.values())) > 93 and curves["float32"][0].step[-1] == 5 * 45
assert abs(compared.mean) < 0.5 and compared.low < 0 < compared.high

# %% [markdown]
# The mean of n runs is a more precise estimate than one run. Its **standard error** is the standard deviation of the
# runs divided by the square root of n; the band extends two standard errors to each side of the mean. If two ways of
# training use the same seeds, we compute their difference seed by seed, so that the luck of each seed cancels out. The
# course says that two ways *differ* if the 95 % confidence interval of the mean difference excludes zero. Otherwise, n
# seeds show no difference (*not told apart with n seeds*), as for float32 and mixed precision here.
#
# ## The same in PyTorch
#
# The next cell is a training loop as you would write it for a GPU. We measure the time on the GPU with
# `torch.cuda.Event`, because Python's clock would measure only the launches. `torch.cuda.synchronize()` makes the host
# wait until the GPU has finished. On a machine with a GPU, delete the `with` line: the rest stays the same.

# %%
with virtual_gpus(1, "A100-SXM4", as_cuda=True):
    torch.manual_seed(0)
    network = mlp(widths).to("cuda")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, fused=True)
    pairs = TensorDataset(data.train.images[:256], data.train.labels[:256])
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for images, labels in DataLoader(pairs, batch_size=64, pin_memory=True):
        images, labels = (x.to("cuda", non_blocking=True) for x in (images, labels))
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    end.record()
    torch.cuda.synchronize()
    print(f"4 steps: {start.elapsed_time(end):.1f} ms, peak {torch.cuda.max_memory_allocated() / MiB:.0f} MiB")

# %% [markdown]
# Do not call `.item()` or print a loss in each step, because both make the host wait for the GPU.
#
# ## The reference implementation
#
# This is the library's training loop, without its docstring. The link opens the file.

# %%
from mpcourse.common.source import reference
from mpcourse.models import training

reference(training.train)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | 6 N D | model FLOPs; divided by time and peak FLOP/s, model FLOPs utilisation (MFU) |
# | fixed cost of a step | kernel launch overhead; CUDA graphs and `torch.compile` reduce it |
# | `torch.autocast`, parameters in float32 | `MixedPrecisionPolicy` of FSDP2; "master weights" in Megatron-LM |
#
# 1. Preferred Networks, *Chainer*, `examples/mnist`, 2015, <https://github.com/chainer/chainer>
# 2. Ethem Alpaydin and Cenk Kaynak, *Optical Recognition of Handwritten Digits*, 1998,
#    <https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits>
# 3. Alec Radford and others, *Language Models are Unsupervised Multitask Learners*, 2019,
#    <https://github.com/openai/gpt-2>
# 4. Jared Kaplan and others, *Scaling Laws for Neural Language Models*, 2020, <https://arxiv.org/abs/2001.08361>
# 5. *dask-cuda*, pull request 98, <https://github.com/rapidsai/dask-cuda/pull/98>, and *cuda-oxide*, pull request 976,
#    <https://github.com/NVlabs/cuda-oxide/pull/976>. Mark Harris, *How to Optimize Data Transfers in CUDA C/C++*, 2012,
#    explains the staging, <https://developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc/>
# 6. Samuel Williams, Andrew Waterman and David Patterson, *Roofline: An Insightful Visual Performance Model for
#    Multicore Architectures*, 2009, <https://doi.org/10.1145/1498765.1498785>
# 7. FLOP/s: Stas Bekman, *Machine Learning Engineering*, <https://github.com/stas00/ml-engineering>. Bandwidth: Mu Li,
#    *transformers-benchmarks*, 2022, <https://github.com/mli/transformers-benchmarks>
# 8. Paulius Micikevicius and others, *Mixed Precision Training*, 2017, <https://arxiv.org/abs/1710.03740>
# 9. Aakanksha Chowdhery and others, *PaLM: Scaling Language Modeling with Pathways*, 2022,
#    <https://arxiv.org/abs/2204.02311>
#
# ## Problems
#
# **1.** You train a GPT with 7 billion parameters on 140 billion tokens. How many days does one A100 take with an MFU
# of 50 %? Its data sheet says 312 TFLOP/s in bfloat16. How many days do 64 of them take, if communication costs
# nothing?
#
# **2.** The same GPU reads 2 TB/s. It generates one token at a time, and reads each parameter in bfloat16 once for each
# token. Is the GPU compute-bound or memory-bound? How many sequences must it generate at once to change that?

# %% tags=["answer"]
# answer
work = 6 * 7e9 * 140e9
days = work / (0.5 * 312e12) / 86400
print(f"1. 6 N D = {work:.1e} FLOPs, {days:.0f} days on one A100 and {days / 64:.1f} days on 64")
computing, reading = 2 * 7e9 / 312e12, 2 * 7e9 / 2e12
print(f"2. 2 N FLOPs take {1e6 * computing:.0f} µs, reading 2 N bytes takes {1e3 * reading:.0f} ms: memory-bound")
print(f"   up to {reading / computing:.0f} sequences, which share each read")

# %% [markdown]
# ## What you found
#
# - A training step takes 6 N D FLOPs, and a forward pass takes 2 N FLOPs a token. Parameters, gradients, optimizer
#   state and activations fill the memory, and the peak is higher than their sum.
# - A small step is launch-bound, and a faster GPU does not shorten it. Large matrix products are compute-bound.
#   Element-wise kernels and the optimizer step are memory-bound.
# - The host goes on during a copy only with pinned memory and `non_blocking=True`. A pageable copy takes more than
#   twice as long.
# - Gradient accumulation computes the gradient of the whole batch, but holds the activations of only one micro-batch at
#   a time.
# - Five seeds show no difference between mixed precision and float32. To compare two means, use the standard error of
#   their difference.
#
# Next comes [lesson 02](02_split_with_copy.ipynb), which splits the work of one layer over two devices.
