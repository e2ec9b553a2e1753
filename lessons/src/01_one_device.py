# %% [markdown]
# # 01 One device
#
# **What does one training step cost, in time and memory?** About 40 minutes, and 30 for its exercise.
#
# Every later lesson takes one training step and splits it: over devices, over time, over machines. A split pays when
# it saves more than it costs. So we must know first what one step costs on one device.
#
# We measure on one CPU core. Then we ask what a GPU would do. The laws are the same.

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import time

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.memory import measure_step
from mpcourse.models import mlp
from mpcourse.training import train
from mpcourse.virtual import busy, virtual_gpus

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
# A training step has three phases. **Forward** computes the loss. **Backward** computes the gradient of the loss for
# every parameter. **Update** moves the parameters a little against their gradients.

# %%
def step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)  # forward
    loss.backward()  # backward
    optimizer.step()  # update
    return loss


optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images, labels = data.train.images[:100], data.train.labels[:100]
losses = [step(model, optimizer, images, labels).item() for _ in range(60)]
assert losses[-1] < 0.1 * losses[0], "sixty steps on one batch should all but learn it by heart"

# %% [markdown]
# ## How much work is it?
#
# A layer from n to m units multiplies a (batch, n) matrix by an (n, m) one. Each of the batch x n x m products takes a
# multiplication and an addition: two floating-point operations.
#
# Backward does it twice: once for the gradient of the weights, once for the gradient of the layer's input. The first
# layer needs only the former, for nobody trains the pixels. torch can count, so we need not believe it.
#
# Two for forward and four for backward make a rule to remember: a step takes about **6 x parameters x examples**
# operations. Here it is 2 % too high, chiefly because the first layer needs one part less. And it holds for layers that
# use each weight once for each example. A convolution uses its weights once for each pixel.

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
# We time each phase, and keep the least of several steps: what else the machine does can only add. Forward and backward
# grow with the batch. The update touches every parameter once, whatever the batch. It still takes a little longer after
# a large one, whose activations have pushed the parameters out of the cache.

# %%
def time_phases(batch, repeats=15):
    model = mlp(widths)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(batch, widths[0]), torch.randint(10, (batch,))
    rows = []
    for _ in range(repeats):
        clock = [time.perf_counter()]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        clock.append(time.perf_counter())
        loss.backward()
        clock.append(time.perf_counter())
        optimizer.step()
        clock.append(time.perf_counter())
        rows.append([after - before for before, after in zip(clock, clock[1:])])
    return dict(zip(("forward", "backward", "update"), map(min, zip(*rows))))


sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
phases = {size: time_phases(size) for size in sizes}
assert phases[1024]["forward"] > 5 * phases[1]["forward"]
assert phases[1024]["update"] < 5 * phases[1]["update"]

# %% tags=["nbval-ignore-output"]
plot.step_cost(
    {f"batch {size}": phases[size] for size in (1, 32, 256)},
    "Forward and backward grow with the batch, the update far less",
)
None

# %% [markdown]
# ## Batch size and throughput
#
# A step costs something fixed, whatever the batch: starting each operation, reading and updating the parameters. And
# it costs something for each example. A straight line describes it: fixed + each x batch.
#
# At one batch size the two parts are equal: fixed / each. This is the **knee**.

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

# %% tags=["nbval-ignore-output"]
plot.throughput(sizes, seconds, fixed, each, "Below the knee a larger batch costs little more time")
print(f"a step: {1e3 * fixed:.2f} ms + {1e6 * each:.1f} µs for each example; the knee: batch {fixed / each:.0f}")


# %% [markdown]
# Left of the knee the step is **bound by its fixed cost**: on a GPU one says launch-bound. Twice the batch takes little
# longer. Right of it the step is **compute-bound**: twice the batch takes twice the time, and throughput stays.
#
# The line is fitted to all batch sizes at once, and misses single ones. A batch of one may take even less than the
# line's fixed part.
#
# Keep this in mind when a batch is split over devices. Two devices with half the batch each are twice as fast only if
# half the batch is still right of the knee.

# %% [markdown]
# ## The same step on a GPU
#
# A GPU does nothing by itself. For each operation the host runs some Python, some of torch and some of the driver, and
# puts the operation into the GPU's queue. That takes a few microseconds, whatever the operation. Then the host goes
# on, and does not wait.
#
# A virtual GPU has this clock. `dry=True` leaves out the numbers: shapes, bytes and time need none.

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
title = f"A virtual A100 has its knee at batch {gpu_fixed / gpu_each:.0f}"
plot.throughput(gpu_sizes, gpu_seconds, gpu_fixed, gpu_each, title, "predicted")
None

# %% [markdown]
# It is the same picture, with other numbers. A GPU has many times the throughput of a core, and needs a larger batch
# to have it. Why? Look at the two sides of the knee.

# %%
few, few_seconds = on_gpu(64)
launching = sum(e.end - e.start for e in few.events if e.kind == "enqueue")
assert busy(few.events, "vgpu:0") < 0.6 * few_seconds < 0.7 * few_seconds < launching
plot.timeline(few, "Batch 64: the host is busy, the GPU waits for work")
None

# %% [markdown]
# The lanes are the host, the GPU and the link between them. Each light bar is an operation of forward, each dark one of
# backward. The host starts operations one after the other. The GPU is done with most of them before the next one comes.
# This step is **launch-bound**.

# %%
many, many_seconds = on_gpu(4096)
assert busy(many.events, "vgpu:0") > 0.7 * many_seconds
copying = sum(e.seconds for e in many.copies) / many_seconds
assert round(copying, 2) == 0.18 and many.copies[0].lane == "cpu -> vgpu:0"
plot.timeline(many, "Batch 4096: the host is done early, the GPU has work to the end")
None


# %% [markdown]
# Now the host runs ahead, and the queue is full: **compute-bound**. And the copy of the batch has become visible: 18 %
# of the step, in which the GPU waits. It goes over PCIe 4.0, an A100's link to its host, 24 GB/s in one direction. A
# good data loader copies the next batch meanwhile.
#
# Try it. How large must the batch be with 4000 units? And does a faster GPU help a launch-bound step?

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
print(f"batch 64, an A100: {1e6 * slower:.0f} µs a step; an H200: {1e6 * faster:.0f} µs")

# %% [markdown]
# The H200 computes three times as fast, and the step is hardly shorter: the host is the bottleneck, and it is the same.

# %% [markdown]
# ## Does it learn?
#
# Throughput alone proves nothing: a fast step that does not learn is worth nothing. So a run is recorded as a
# **learning curve**. And one run proves little: we take three seeds, and show the spread, from
# the least of the three to the most.

# %% tags=["nbval-ignore-output"]
curves = []
for seed in range(3):
    torch.manual_seed(seed)
    model = mlp(widths)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    curves.append(train(model, data, optimizer, epochs=8, batch_size=32, seed=seed, record_every=15))

# %%
final = [curve.test_accuracy[-1] for curve in curves]
assert min(final) > 0.93, final
assert max(final) - min(final) < 0.05, final
assert curves[0].step[-1] == 8 * 45  # 1437 images in batches of 32: 45 steps an epoch

# %% tags=["nbval-ignore-output"]
title = "Real digits: the line is the mean of three seeds, the band goes from least to most"
plot.learning_curves({"3 seeds": curves}, title, accuracy_from=80)
print("test accuracy: " + ", ".join(f"{100 * accuracy:.1f} %" for accuracy in final))


# %% [markdown]
# The band is the yardstick for every comparison to come. A difference smaller than it is no difference.

# %% [markdown]
# ## What does a step hold in memory?
#
# Four kinds of things. **Parameters** and their **gradients** are of one size. The **optimizer** may keep more:
# momentum one number for each parameter, Adam two. **Activations** are what forward saves because backward will need
# it. Only they grow with the batch.
#
# `measure_step` runs a real step and counts what torch holds. The network is the original one, for 28x28 images.

# %%
def bill(batch, make_optimizer, widths=(784, 1000, 1000, 10)):
    model = mlp(widths)
    images, labels = torch.randn(batch, widths[0]), torch.randint(10, (batch,))
    return measure_step(model, images, labels, make_optimizer(model.parameters())).as_dict()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def adam(parameters):
    return torch.optim.Adam(parameters)


bills = {
    "SGD, batch 100": bill(100, sgd),
    "Adam, batch 100": bill(100, adam),
    "SGD, batch 2000": bill(2000, sgd),
    "Adam, batch 2000": bill(2000, adam),
}
for row in bills.values():
    assert row["parameters"] == row["gradients"] == 4 * 1_796_010
assert bills["Adam, batch 100"]["optimizer"] == 2 * 4 * 1_796_010 + 6 * 4  # and a step count for each of 6 tensors
assert bills["SGD, batch 100"]["optimizer"] == 0
bills["Adam, batch 100"]

# %%
plot.memory_bill(bills, "Adam holds as much again as the parameters and gradients; activations grow with the batch")
None

# %% [markdown]
# Why must activations be kept? The gradient of a layer's weights is the product of the layer's input and the gradient
# of its output. Backward comes to the first layer last, so its input is held longest.

# %%
small, large = bills["SGD, batch 100"]["activations"], bills["SGD, batch 2000"]["activations"]
assert large - 4 == 20 * (small - 4)  # one 4-byte number of the loss does not depend on the batch
small, large


# %% [markdown]
# ## When is there most of it?
#
# The bill adds up what a step holds of each kind. Not all of it is there at once: gradients come while activations go.
# A virtual GPU keeps a **ledger** of every allocation, so it can draw the whole step.

# %%
def ledger_of(batch):
    """The box after a step of Adam, its batch on the GPU already."""
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        model = mlp().to("vgpu:0")
        optimizer = adam(model.parameters())
        images, labels = torch.randn(batch, 784, device="vgpu:0"), torch.randint(10, (batch,), device="vgpu:0")
        for _ in range(2):  # the first step makes the optimizer's state
            box.reset()
            step(model, optimizer, images, labels)
        held = box.ledger.kinds(0)
    return box, held


box, held = ledger_of(2000)
same = bills["Adam, batch 2000"]
assert held["parameters"] == same["parameters"] and held["gradients"] == same["gradients"]
assert held["optimizer state"] == same["optimizer"] - 6 * 4  # torch keeps the step counts on the CPU
plot.memory(box, "Adam, batch 2000: the peak is in backward", over="operations")
None

# %% [markdown]
# Parameters and Adam's state are there all the time. Activations rise in forward and fall in backward, while gradients
# rise. **The peak is what must fit.** It is higher than the bill for two reasons. Backward needs room for gradients
# that pass by, the *temporaries*. And a GPU has *workspaces*, scratch memory of the library that multiplies matrices.

# %%
peaks = {batch: ledger_of(batch)[0].ledger.peak(0) for batch in (100, 2000)}
assert [peak.phase for peak in peaks.values()] == ["optimizer", "backward"]
for batch, peak in peaks.items():
    print(f"batch {batch}: peak of {peak.nbytes / 2**20:.1f} MiB in {peak.phase}, at {peak.name}")
    print("   " + ", ".join(f"{kind} {nbytes / 2**20:.1f}" for kind, nbytes in peak.kinds.items()))

# %% [markdown]
# With a small batch the peak is elsewhere: in the update. Adam computes with all parameters at once, and its scratch
# copies are as large as they are.

# %% [markdown]
# ## Your turn
#
# Exercise `e01_memory`: compute the bill, to the byte, for any widths, batch and optimizer. No network is built, it is
# arithmetic. The checker runs the step on a virtual GPU and reads the ledger. About 30 minutes.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e01

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | work of a step, 6 x parameters x examples | FLOPs a step; its share of the peak is MFU |
# | fixed cost of a step | kernel launch overhead; cured by CUDA graphs and `torch.compile` |
# | saved activations | activation memory; activation checkpointing computes them anew instead |
# | optimizer state | sharded over ranks by ZeRO and FSDP |
# | three seeds and their spread | error bars; MLPerf asks for several runs of each result |
#
# Next comes [lesson 02](02_split_with_copy.ipynb), which splits one layer's work over two devices.
