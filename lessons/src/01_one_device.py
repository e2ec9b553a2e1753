# %% [markdown]
# # 01 One device
#
# **What does one training step cost, in time and memory?** About 40 minutes, and 30 for its exercise.
#
# Every later lesson takes one training step and splits it: over devices, over time, over machines. A split pays when
# it saves more than it costs. So we must know first what one step costs on one device.
#
# The device of this lesson is one CPU core. The laws are those of a GPU; the numbers are smaller.

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
    return loss.item()


optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images, labels = data.train.images[:100], data.train.labels[:100]
losses = [step(model, optimizer, images, labels) for _ in range(60)]
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
# operations. Here it is 2 % too high, chiefly for the first layer's sake.

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
# ## Your turn
#
# Exercise `e01_memory`: compute the bill, to the byte, for any widths, batch and optimizer. No network is built, it is
# arithmetic. The checker measures a real step and compares. About 30 minutes.

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
