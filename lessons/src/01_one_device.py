# %% [markdown]
# # 01 One device
#
# **What does one training step cost, in time and memory?** About 55 minutes to read, and 30 for its exercise.
#
# Every later lesson takes one training step and splits it: over devices, over time, over machines. A split pays when
# it saves more than it costs. So we must know first what one step costs on one device.
#
# We measure on one CPU core, and then predict what a GPU would do.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("01_one_device")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import time

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.models import mlp
from mpcourse.one_device.step_memory import measure_step
from mpcourse.one_device.training import train
from mpcourse.studies.compare import difference, mean_of
from mpcourse.virtual import GPUS, busy, virtual_gpus

torch.set_num_threads(1)  # one core stands for one device

# %% [markdown]
# ## The data
#
# 1797 digits, written by hand by 13 people, scanned and shrunk to 8x8 pixels (Alpaydin and Kaynak, 1998).

# %%
data = digits()
assert len(data.train) + len(data.test) == 1797 and data.train.images.shape[1:] == (1, 8, 8)
data.train, data.test

# %% tags=["nbval-ignore-output"]
plot.contact_sheet(data.train, "Real handwriting: three of each digit, 8x8 pixels")
None

# %% [markdown]
# ## The network
#
# The multilayer perceptron of Chainer's MNIST example: two hidden layers of 1000 units. We will meet it in most
# lessons. Here its input is 64 pixels wide.

# %%
torch.manual_seed(0)
widths = [64, 1000, 1000, 10]
model = mlp(widths)
assert sum(p.numel() for p in model.parameters()) == 1_076_010
model


# %% [markdown]
# ## The step
#
# A training step has three phases. The **forward** pass computes the loss. The **backward** pass computes the gradient
# of the loss for every parameter. The **optimizer step** changes the **parameters** by a little, against their
# **gradients**.

# %%
def step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)  # forward
    loss.backward()  # backward
    optimizer.step()  # optimizer step
    return loss


optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images, labels = data.train.images[:100], data.train.labels[:100]
losses = [step(model, optimizer, images, labels).item() for _ in range(60)]
assert losses[-1] < 0.1 * losses[0], "sixty steps on one batch should bring its loss close to zero"

# %% [markdown]
# ## How much work is it?
#
# A layer from n to m units multiplies a (batch, n) matrix by an (n, m) one. Each of the batch x n x m products takes a
# multiplication and an addition: two **floating-point operations** (FLOPs).
#
# The backward pass does it twice: once for the gradient of the weights, once for the gradient of the layer's input. The
# first layer needs only the former, because the pixels are not trained. torch can count operations, which checks this.
#
# Two in the forward and four in the backward pass make a rule to remember: a step takes about **6 x parameters x
# examples** FLOPs. Here that is 2 % too high, chiefly because the first layer needs one part less. The rule holds for
# layers that use each weight once for each example. A transformer uses its weights once for each token, hence 6 x
# parameters x tokens; a convolution uses them once for each pixel.

# %%
batch = len(images)
multiplications = batch * sum(n * m for n, m in zip(widths, widths[1:]))
first_layer = batch * widths[0] * widths[1]
with FlopCounterMode(display=False) as forward:
    loss = F.cross_entropy(model(images), labels)
with FlopCounterMode(display=False) as backward:
    loss.backward()
assert forward.get_total_flops() == 2 * multiplications
assert backward.get_total_flops() == 4 * multiplications - 2 * first_layer
rule = 6 * sum(p.numel() for p in model.parameters()) * batch
assert round(rule / (forward.get_total_flops() + backward.get_total_flops()), 2) == 1.02
f"{forward.get_total_flops() / 1e6:.1f} million forward, {backward.get_total_flops() / 1e6:.1f} million backward"


# %% [markdown]
# ## How long does it take?
#
# We time each phase. `process_time` counts the time that a core works for this process, and stops while another program
# has the core. Of several steps we keep the least, for whatever else the machine does can only add to the time.
#
# Forward and backward grow with the batch. The optimizer step changes every parameter, whatever the batch. It still
# takes longer after a large one, probably because that has displaced the parameters from the cache.

# %%
def time_phases(batch, repeats=15):
    model = mlp(widths)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(batch, widths[0]), torch.randint(10, (batch,))
    rows = []
    for _ in range(repeats):
        clock = [time.process_time()]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        clock.append(time.process_time())
        loss.backward()
        clock.append(time.process_time())
        optimizer.step()
        clock.append(time.process_time())
        rows.append([after - before for before, after in zip(clock, clock[1:])])
    return dict(zip(("forward", "backward", "optimizer"), map(min, zip(*rows))))


sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
phases = {size: time_phases(size) for size in sizes}
assert phases[1024]["forward"] > 5 * phases[1]["forward"]
assert phases[1024]["optimizer"] < 5 * phases[1]["optimizer"]

# %% tags=["nbval-ignore-output"]
plot.step_cost(
    {f"batch {size}": phases[size] for size in (1, 32, 256)},
    "Forward and backward grow with the batch, the optimizer step far less",
)
None

# %% [markdown]
# ## Batch size and throughput
#
# **Throughput** is the number of examples a second. A step has a fixed cost, whatever the batch: the call of each
# operation, the reading and updating of the parameters. And it has a cost for each example. A straight line describes
# both: fixed + each x batch. At one batch size the two parts are equal: fixed / each. This is the **knee**. There a
# step takes twice its fixed cost, and throughput is half of the highest, which is 1 / each.
#
# **Predict first.** A batch of 4 has four times the work of a batch of 1. Does its step take four times as long?

# %%
seconds = [sum(phases[size].values()) for size in sizes]


def fit_line(x, y):
    """The line fixed + each * x whose relative errors are least in the sum of squares."""
    x, y = torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)
    columns = torch.stack([1 / y, x / y], dim=1)
    return torch.linalg.lstsq(columns, torch.ones(len(y), 1, dtype=torch.float64)).solution.flatten().tolist()


fixed, each = fit_line(sizes, seconds)
assert fixed > 0 and each > 0
assert seconds[2] < 3 * seconds[0], "four examples should take much less than four times as long as one"
assert 1024 / seconds[-1] > 3 * (1 / seconds[0]), "a large batch should have several times the throughput"
assert (seconds[-1] / seconds[-3]) ** 0.5 > 1.5, "twice a large batch should take nearly twice as long"

# %% tags=["nbval-ignore-output"]
plot.throughput(sizes, seconds, fixed, each, "At the knee the examples cost as much time as the fixed part of a step")
print(f"a batch of 4 takes {seconds[2] / seconds[0]:.1f} times as long as a batch of 1")
print(f"a step: {1e3 * fixed:.2f} ms + {1e6 * each:.1f} µs for each example; the knee: batch {fixed / each:.0f}")

# %% [markdown]
# Far left of the knee the fixed cost dominates: twice the batch takes little longer. Far right of it the examples do:
# twice the batch takes twice the time, and throughput stays.
#
# The line is fitted to all batch sizes at once. It may miss single ones, for a core multiplies small matrices at
# another rate than large ones.
#
# This decides what a split can gain. One device needs the time of the whole batch, two devices with half of it each the
# time of half a batch. Far right of the knee that is half the time. If half a batch is at the knee, it is two thirds.
# Far left it is hardly less, and communication is still to be added.

# %% tags=["nbval-ignore-output"]
for size in (4, 64, 1024):
    gain = seconds[sizes.index(size)] / seconds[sizes.index(size // 2)]
    print(f"two devices with a batch of {size // 2} each: {gain:.2f} times the throughput of one with {size}")


# %% [markdown]
# ## The same step on a GPU
#
# A GPU (the device) does nothing by itself. The CPU (its **host**) runs some Python, some of torch and some of the
# driver for each operation, and puts it into the GPU's queue. An operation on the GPU is a **kernel**, and this is a
# **kernel launch**. It takes some microseconds of the host's time, whatever the kernel. Then the host goes on, and does
# not wait.
#
# A virtual GPU has this clock, and assumes 8 µs a launch. `dry=True` computes shapes, bytes and times without data, as
# torch's device `meta` does with shapes. The network has 784 inputs here, for the images of 28x28 pixels that it was
# made for.

# %%
def on_gpu(batch, units=1000, gpu="A100-SXM4"):
    """The box after one step, its batch copied to the GPU first, and the seconds that it took."""
    with virtual_gpus(1, gpu, dry=True) as box:
        model = mlp([784, units, units, 10]).to("vgpu:0")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(2):  # the first step makes the optimizer's state
            images, labels = torch.randn(batch, 784), torch.randint(10, (batch,))
            box.reset()
            start = box.synchronize()
            step(model, optimizer, images.to("vgpu:0"), labels.to("vgpu:0"))
            took = box.synchronize() - start
    return box, took


gpu_sizes = [4**k for k in range(9)]
gpu_seconds = [on_gpu(size)[1] for size in gpu_sizes]
gpu_fixed, gpu_each = fit_line(gpu_sizes, gpu_seconds)
assert gpu_seconds[3] < 1.1 * gpu_seconds[0], "64 examples should take hardly longer than one"
assert gpu_seconds[-1] > 3 * gpu_seconds[-2], "4 times the batch should take nearly 4 times as long"
assert each > 10 * gpu_each and gpu_fixed / gpu_each > fixed / each
title = f"A virtual A100 has its knee at batch {gpu_fixed / gpu_each:.0f}"
plot.throughput(gpu_sizes, gpu_seconds, gpu_fixed, gpu_each, title, "predicted")
None

# %% [markdown]
# It is the same picture, with other numbers. A GPU has many times the throughput of a core, and needs a larger batch
# to reach it. Look at a step on either side of the knee.

# %%
few, few_seconds = on_gpu(64)
launching = sum(e.end - e.start for e in few.events if e.kind == "enqueue")
assert busy(few.events, "vgpu:0") < 0.6 * few_seconds < 0.7 * few_seconds < launching
plot.timeline(few, "Batch 64: the host is busy, the GPU waits for work")
None

# %% [markdown]
# The lanes are the host, the GPU and the link between them. Light bars are kernels of the forward pass, full ones of
# the backward pass, dark ones of the optimizer step. The host launches them one after the other, and the GPU has
# finished most of them before the next one arrives. This step is **launch-bound**.

# %%
many, many_seconds = on_gpu(4096)
assert busy(many.events, "vgpu:0") > 0.65 * many_seconds
copying = sum(e.seconds for e in many.copies) / many_seconds
assert round(copying, 2) == 0.33 and many.copies[0].lane == "cpu -> vgpu:0"
plot.timeline(many, "Batch 4096: the host is done early, the GPU has work to the end")
None


# %% [markdown]
# Now the host is ahead, and from the copy on the GPU has kernels queued all the time: the step is **compute-bound**.
# And the copy of the batch has become visible: 33 % of the step, in which the GPU waits. It goes over PCIe 4.0, an
# A100's link to its host, which carries 24 GB/s in one direction, and reaches 45 % of that here.
#
# A data loader can hide that copy. Ordinary memory of the host is *pageable*: the driver first copies it into a buffer
# of its own, which takes more than half of the time, and the host waits. **Pinned memory** stays where it is, so that
# the GPU can read it without the host, at the full rate of the link. With `DataLoader(pin_memory=True)` and
# `x.to(device, non_blocking=True)` the host launches the copy as it does a kernel, and goes on. On a second CUDA stream
# the copy then runs beside the kernels of the step before. (A virtual GPU has one queue: the host goes on, but the copy
# waits for the kernels.)

# %%
def host_waits(pinned, non_blocking):
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        images = torch.randn(4096, 784)
        (images.pin_memory() if pinned else images).to("vgpu:0", non_blocking=non_blocking)
        return 1e6 * sum(e.seconds for e in box.events if e.kind == "wait")


waited = {(p, n): host_waits(p, n) for p in (False, True) for n in (False, True)}
assert waited[True, True] == 0 and min(waited[False, False], waited[False, True], waited[True, False]) > 500
for (pinned, non_blocking), us in waited.items():
    memory = "pinned" if pinned else "pageable"
    print(f"{memory:8} memory, non_blocking={non_blocking!s:5}: the host waits {us:.0f} µs")


# %% [markdown]
# **Predict first.** Does a faster GPU shorten a launch-bound step? And how large must the batch be to keep the GPU busy
# with 4000 units in place of 1000? Move the sliders.

# %% tags=["nbval-ignore-output"]
def try_it(batch=64, units=1000, gpu="A100-SXM4"):
    box, took = on_gpu(batch, units, gpu)
    return plot.timeline(box, f"{gpu}, {units} units, batch {batch}: {batch / took:,.0f} examples a second")


plot.sliders(
    try_it,
    batch=[1, 16, 64, 256, 1024, 4096],
    units=[250, 1000, 4000],
    gpu=["Tesla P100-SXM2", "A100-SXM4", "H200-SXM"],
)

# %%
slower, faster = on_gpu(64)[1], on_gpu(64, gpu="H200-SXM")[1]
assert 1.0 < slower / faster < 1.15
assert GPUS["H200-SXM"].rate(torch.float32) > 3 * GPUS["A100-SXM4"].rate(torch.float32)
print(f"batch 64, an A100: {1e6 * slower:.0f} µs a step; an H200: {1e6 * faster:.0f} µs")
for units in (1000, 4000):
    box, took = on_gpu(1, units)
    print(f"batch 1, {units} units, an A100: {100 * busy(box.events, 'vgpu:0') / took:.0f} % busy")
assert busy(box.events, "vgpu:0") > 0.85 * took and round((784 * 4000 + 4000**2 + 4000 * 10) / 1e6) == 19

# %% [markdown]
# The H200 computes three times as fast, and the step is hardly shorter: the host is the bottleneck, and it is the same.
#
# With 4000 units even one example keeps an A100 busy: each step reads and changes 19 million parameters. But a busy GPU
# need not compute much.

# %% [markdown]
# ## Compute-bound or memory-bound
#
# A kernel that runs long enough has two limits: the FLOPs that the device can do in a second, and the bytes that its
# memory can deliver. Which one binds depends on the **arithmetic intensity**, the FLOPs that a kernel does for each
# byte that it reads or writes. This is the roofline model of Williams, Waterman and Patterson (2009). The roofs are
# those that kernels reach: for an A100 we take 87 % of the published FLOP/s, and 79 % of the bandwidth.
#
# A product of two matrices of 1000 x 1000 reads and writes 12 MB for 2 billion FLOPs: an intensity of 167. A ReLU reads
# 4 bytes and writes 4 bytes for one operation: 1/8. The optimizer step is of the second kind.

# %%
a100 = GPUS["A100-SXM4"]
reached, bandwidth = a100.rate(torch.float32), a100.bandwidth * a100.memory_efficiency
assert (reached / a100.flops, bandwidth / a100.bandwidth) == (0.87, 0.79)
kernels = [e for e in many.events if e.lane == "vgpu:0"]
bound_by_memory = [e for e in kernels if e.flops / e.nbytes < reached / bandwidth]
assert {e.name for e in kernels if e not in bound_by_memory} == {"addmm", "mm"}
assert all(e in bound_by_memory for e in kernels if e.phase == "optimizer")
title = f"Batch 4096 on an A100: left of {reached / bandwidth:.0f} FLOP a byte memory is the limit"
plot.roofline(many, reached, bandwidth, title)
None


# %% [markdown]
# Each mark is a kernel, and its area the share of the time that it takes. On the slope a kernel is **memory-bound**: it
# is as fast as memory, and a GPU with more FLOP/s does not help. Below the slope it is too short for either limit, and
# the fixed time of a kernel dominates. The large products reach the flat roof. Fusing several element-wise operations
# into one kernel, as fused optimizers and `torch.compile` do, saves bytes and launches.

# %% [markdown]
# ## What does a step hold in memory?
#
# Four kinds of tensors. Parameters and their gradients have the same size. **Optimizer state** may be larger:
# one element for each parameter with momentum, two with Adam. **Activations** are what the forward pass saves because
# the backward pass will need it, the input included. Only they grow with the batch.
#
# `measure_step` runs a real step and counts what torch holds. The network is the original one, for 28x28 images.

# %%
def breakdown(batch, make_optimizer, widths=(784, 1000, 1000, 10)):
    model = mlp(widths)
    images, labels = torch.randn(batch, widths[0]), torch.randint(10, (batch,))
    return measure_step(model, images, labels, make_optimizer(model.parameters())).as_dict()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def adam(parameters):
    return torch.optim.Adam(parameters)


breakdowns = {
    "SGD, batch 100": breakdown(100, sgd),
    "Adam, batch 100": breakdown(100, adam),
    "SGD, batch 2000": breakdown(2000, sgd),
    "Adam, batch 2000": breakdown(2000, adam),
}
for row in breakdowns.values():
    assert row["parameters"] == row["gradients"] == 4 * 1_796_010
assert breakdowns["Adam, batch 100"]["optimizer"] == 2 * 4 * 1_796_010 + 6 * 4  # and a step count for each of 6 tensors
assert breakdowns["SGD, batch 100"]["optimizer"] == 0
breakdowns["Adam, batch 100"]

# %%
plot.memory_breakdown(breakdowns, "Adam doubles what does not depend on the batch; activations grow with it")
None

# %% [markdown]
# Why must activations be kept? The gradient of a layer's weights is the product of the layer's input and the gradient
# of its output. The backward pass reaches the first layer last, so its input is held longest.

# %%
small, large = breakdowns["SGD, batch 100"]["activations"], breakdowns["SGD, batch 2000"]["activations"]
assert large - 4 == 20 * (small - 4)  # the 4 bytes of the loss do not depend on the batch
small, large


# %% [markdown]
# ## The peak
#
# This breakdown adds up what a step holds of each kind. Not all of it is there at once: gradients appear while
# activations are freed. A virtual GPU keeps a **memory trace** of every allocation (`box.ledger`), so it can draw the
# whole step.

# %%
def traced(batch):
    """The box after a step of Adam, its batch on the GPU already; what it holds; and the network, to keep it there."""
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        model = mlp().to("vgpu:0")
        optimizer = adam(model.parameters())
        images, labels = torch.randn(batch, 784, device="vgpu:0"), torch.randint(10, (batch,), device="vgpu:0")
        for _ in range(2):  # the first step makes the optimizer's state
            box.reset()
            step(model, optimizer, images, labels)
        held = box.ledger.kinds(0)
    return box, held, (model, optimizer, images, labels)


box, held, kept = traced(2000)
same = breakdowns["Adam, batch 2000"]
assert held["parameters"] == same["parameters"] and held["gradients"] == same["gradients"]
assert held["optimizer state"] == same["optimizer"] - 6 * 4  # torch keeps the step counts on the CPU
plot.memory(box, "Adam, batch 2000: the peak is in backward", over="operations")
None

# %% [markdown]
# Parameters and Adam's state are there all the time. Activations rise in forward and fall in backward, while gradients
# rise. **The peak is what must fit.** It is higher than the breakdown for two reasons. Backward needs room for the
# gradients of activations, the *temporaries*. And a GPU has *workspaces*, scratch memory of the library that multiplies
# matrices. Together they are more than the gradients of the parameters, which the breakdown counts, and of which hardly
# any are there yet at this peak.

# %%
peaks = {batch: traced(batch)[0].ledger.peak(0) for batch in (100, 2000)}
assert [peak.phase for peak in peaks.values()] == ["optimizer", "backward"]
at_peak = peaks[2000].kinds
assert at_peak["gradients"] < 0.01 * same["gradients"]
assert at_peak["temporaries"] + at_peak["workspaces"] > same["gradients"]
for batch, peak in peaks.items():
    print(f"batch {batch}: peak of {peak.nbytes / 2**20:.1f} MiB in {peak.phase}, at {peak.name}")
    print("   " + ", ".join(f"{kind} {nbytes / 2**20:.1f}" for kind, nbytes in peak.kinds.items()))

# %% [markdown]
# With a small batch the peak is elsewhere: in the optimizer step. Adam computes with all parameters at once, and its
# temporaries are as large as they are.

# %% [markdown]
# ## Your turn
#
# Exercise [`e01_memory`](../exercises/e01_memory.py): compute the breakdown, to the byte, for any widths, batch and
# optimizer. No network is built, it is arithmetic. The checker runs the step on a virtual GPU and reads its memory
# trace. About 30 minutes.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e01

# %% [markdown]
# ## Precision
#
# **bfloat16** is a float32 with its last 16 bits cut off: 8 bits of exponent as before, and 8 instead of 24 significant
# bits. An A100's tensor cores multiply it 16 times as fast as its other cores multiply float32, and it takes half the
# bytes.
#
# **Predict first.** What is 1 + 1/512 in bfloat16?

# %%
one = torch.tensor(1.0, dtype=torch.bfloat16)
print((one + 2**-9).item())
assert one + 2**-9 == one and one + 2**-7 > one
assert a100.rate(torch.bfloat16) == 16 * a100.rate(torch.float32)

torch.manual_seed(0)
untrained = mlp(widths)
before = [p.detach().clone() for p in untrained.parameters()]
step(untrained, torch.optim.SGD(untrained.parameters(), lr=0.05, momentum=0.9), images, labels)
lost = sum(((p - old).abs() < old.abs() / 512).sum().item() for p, old in zip(untrained.parameters(), before))
assert lost > 0.5 * 1_076_010
print(f"{100 * lost / 1_076_010:.0f} % of the parameters change by less than a 512th in their first step")


# %% [markdown]
# It is 1. A weight in bfloat16 stays what it was where its change is less than a 512th of it, as most are here.
# Therefore **mixed precision** keeps the parameters and the optimizer's state in float32, and rounds only the inputs of
# products. That is what `torch.autocast` does, which casts each weight once in a forward pass. bfloat16 has float32's
# range; float16 has not, and needs a `GradScaler`, which multiplies the loss so that small gradients do not become
# zero.

# %%
def costs(batch, dtype=torch.float32, pieces=1, tf32=False):
    """Seconds and peak bytes of Adam's step on a virtual A100, in `pieces` micro-batches, its batch there already."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        model = mlp([784, 1000, 1000, 10]).to("vgpu:0")
        optimizer = torch.optim.Adam(model.parameters())
        images, labels = torch.randn(batch, 784, device="vgpu:0"), torch.randint(10, (batch,), device="vgpu:0")
        for _ in range(2):
            box.reset()
            start = box.synchronize()
            optimizer.zero_grad()
            for x, y in zip(images.chunk(pieces), labels.chunk(pieces)):
                with torch.autocast("vgpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                    loss = F.cross_entropy(model(x), y) / pieces
                loss.backward()
            optimizer.step()
            took = box.synchronize() - start
    torch.backends.cuda.matmul.allow_tf32 = False
    return took, box.ledger.peak(0).nbytes


for batch in (64, 16384):
    full, tf32, half = costs(batch), costs(batch, tf32=True), costs(batch, torch.bfloat16)
    assert half[0] > full[0] if batch == 64 else half[0] < full[0] / 8 and half[1] < 0.75 * full[1]
    assert tf32[1] == full[1]
    for name, (took, peak) in {"float32": full, "TF32": tf32, "bfloat16, mixed": half}.items():
        print(f"batch {batch:5}, {name:15}: {1e6 * took:5.0f} µs, peak {peak / 2**20:5.0f} MiB")


# %% [markdown]
# With a large batch the step takes less than an eighth of the time, and the activations are smaller. With a small one
# it takes longer: the casts are kernels of their own, and each of them has to be launched. TF32 also uses the tensor
# cores, for float32 inputs that are rounded to 11 significant bits on the way into the product; memory stays what it
# was.

# %% [markdown]
# ## Gradient accumulation
#
# If the activations of a batch do not fit, cut the batch into **micro-batches**, and call `backward` for each: torch
# *adds* to `.grad`. With the loss divided by their number (for equal micro-batches) the sum is the gradient of the
# whole batch. One optimizer step follows. This is **gradient accumulation**.

# %%
def gradients_of(pieces):
    torch.manual_seed(0)
    model = mlp(widths).double()
    for x, y in zip(images.double().chunk(pieces), labels.chunk(pieces)):
        (F.cross_entropy(model(x), y) / pieces).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


assert all(torch.allclose(gradients_of(pieces), gradients_of(1), atol=1e-15) for pieces in (2, 4, 5))

pieces = [1, 2, 4, 8, 16]
assert a100.kernel == 3e-6  # seconds that each kernel takes beside its work
in_pieces = [costs(16384, pieces=n) for n in pieces]
assert in_pieces[-1][1] < 0.4 * in_pieces[0][1] and 1.1 < in_pieces[-1][0] / in_pieces[0][0] < 1.2
for n, (took, peak) in zip(pieces, in_pieces):
    print(f"batch 16384 in {n:2} micro-batches: {1e3 * took:5.2f} ms, peak {peak / 2**20:4.0f} MiB")


# %% [markdown]
# Memory falls with the micro-batch, until parameters, gradients, the optimizer's state, the input and the workspaces
# are what is left. The time rises with each micro-batch by what does not depend on its size: 3 µs of each kernel,
# beside its work, and the addition to `.grad`. That is little, as long as a micro-batch is right of the knee. Batch
# norm is the exception to the equality: it normalises over the micro-batch. Lesson 04 comes back to it, lesson 06 to
# both.

# %% [markdown]
# ## Does it learn?
#
# Throughput alone proves nothing: a fast step that does not learn is worth nothing. So a run is recorded as a
# **learning curve**. One run proves little, for another **seed** (of the initial weights and of the order of the
# examples) gives another curve. We take five seeds, in float32 and in mixed precision.

# %% tags=["nbval-ignore-output"]
class Mixed(torch.nn.Module):
    """A network whose products are of bfloat16, on the CPU."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(x).float()


def curves_of(wrap):
    """Of a small network: a processor without instructions for bfloat16 multiplies them a hundred times slower."""
    curves = []
    for seed in range(5):
        torch.manual_seed(seed)
        model = wrap(mlp([64, 128, 10]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        curves.append(train(model, data, optimizer, epochs=8, batch_size=32, seed=seed, record_every=15))
    return curves


curves = {"float32": curves_of(lambda model: model), "bfloat16, mixed": curves_of(Mixed)}

# %%
final = {name: [100 * curve.test_accuracy[-1] for curve in runs] for name, runs in curves.items()}
assert min(map(min, final.values())) > 93
assert curves["float32"][0].step[-1] == 8 * 45  # 1437 images in batches of 32: 45 steps an epoch
compared = difference(final["bfloat16, mixed"], final["float32"], paired=True)
assert abs(compared.mean) < 0.5 and compared.low < 0 < compared.high

# %% tags=["nbval-ignore-output"]
title = "Five seeds do not tell mixed precision from float32 (line: mean, band: least to most)"
plot.learning_curves(curves, title, accuracy_from=80)
for name, accuracies in final.items():
    print(f"test accuracy (%), {name}: mean and standard error {mean_of(accuracies)}")
print(f"bfloat16 - float32, by seed: {compared}")

# %% [markdown]
# The band shows how far single runs lie apart. It is no measure for a difference of two *means*: a mean of n runs is
# known better than one run, by the square root of n. Its **standard error** is the runs' standard deviation divided by
# that root. Where two ways share their seeds, we look at the differences seed by seed, in which the seed's own luck
# drops out. All comparisons of the course are made like that, by `mpcourse.studies.compare`: two ways *differ* if the
# 95 % confidence interval of the mean difference excludes zero, and are otherwise *not told apart with n seeds*.

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.one_device import training

reference(training.train)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | 6 x parameters x examples FLOPs a step | model FLOPs utilisation (MFU): these FLOP/s, divided by the peak |
# | fixed cost of a step | kernel launch overhead; reduced by CUDA graphs and `torch.compile` |
# | saved activations | activation memory; activation checkpointing computes them anew instead |
# | optimizer state | sharded over ranks by ZeRO and FSDP |
# | `torch.autocast`, parameters in float32 | `MixedPrecisionPolicy` of FSDP2; "master weights" in Megatron-LM |
# | several seeds, standard errors | MLPerf asks for several runs of each result |
#
# Next comes [lesson 02](02_split_with_copy.ipynb), which splits one layer's work over two devices.
