# %% [markdown]
# # 04 Pipeline
#
# **Why is one GPU always waiting?** About 50 minutes to read, and 85 for its exercises.
#
# A tutorial of PyTorch trains ResNet-50 for three batches, which takes 3.75 seconds on one GPU. Cut in two, on two
# GPUs, the network takes 4.02 seconds: twice the hardware, and slower. Then each batch is cut, too, into splits of 12
# images, and the same two GPUs take 2.43 seconds. That is **pipeline parallelism**.
#
# This lesson replays the tutorial on virtual GPUs, and says where our seconds differ from its own. On the way it
# introduces the **schedules** that are in use.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("04_pipeline")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import json
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.data.published import PIPELINE_TUTORIAL, TORCHGPIPE_RESNET101, TORCHGPIPE_UNET
from mpcourse.models.flat import flat_resnet101, flat_unet
from mpcourse.pipeline import (
    SCHEDULES,
    Costs,
    Execution,
    IllegalAction,
    defer_batch_norm,
    gpipe,
    interleaved_one_f_one_b,
    naive,
    one_f_one_b,
    pipeline_step,
    replay,
    zero_bubble_h1,
)
from mpcourse.pipeline.tables import partition_costs, replayed_rates, slowed_to_the_tutorial, tutorial_seconds
from mpcourse.split import split
from mpcourse.virtual import GPUS, virtual_gpus

MiB = 2**20

# %% [markdown]
# ## One GPU computes, three wait
#
# A network of eight large layers has two on each of four GPUs. What a GPU has of the network is a **stage**. The batch
# is cut into 8 micro-batches. At first each of them goes forward and backward through all stages before the next one
# begins, as the whole batch did in lesson 03.
#
# **Predict first.** What share of the time is each of the four GPUs idle?

# %%
WIDTH, ROWS = 8192, 2048


def run(schedule, stages=4, chunks=1):
    """One step on virtual GPUs, by a schedule; when each action ran."""
    pieces = 1 + max(a.microbatch for a in schedule[0])
    with virtual_gpus(stages, "A100-SXM4", "NVLink 4", dry=True, overlap=True):
        names = [f"vgpu:{i}" for i in range(stages)]
        with torch.device("vgpu:0"):
            layers = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)])
        parts = split(layers, [8 // (stages * chunks)] * (stages * chunks), names * chunks)
        x = torch.empty(pieces * ROWS, WIDTH, device="vgpu:0").requires_grad_()
        target = torch.empty(pieces * ROWS, WIDTH, device=names[-1])
        return pipeline_step(parts, schedule, x, target, lambda output, target: output.sum()).execution


waiting = run(naive(4, 8))
assert abs(waiting.bubble - 0.75) < 0.02
plot.schedule(waiting, f"One micro-batch at a time: {100 * waiting.bubble:.0f} % of the time is bubble", "seconds")
None

# %% [markdown]
# The GPUs are idle for 75 % of the time. That share is called the **bubble**. No micro-batch depends on another one, so
# only the order of the work causes it.

# %% [markdown]
# ## A schedule is a list
#
# A **schedule** says for each stage what it does and in which order. F is a forward pass, B a backward pass, and the
# number behind it is the micro-batch. Waiting is not written down: a stage waits until its input has arrived.
#
# **GPipe** (Huang et al., 2019) runs all forward passes first, and then all backward passes.

# %%
for stage, actions in enumerate(gpipe(2, 3)):
    print(f"stage {stage}: {' '.join(map(str, actions))}")

# %% [markdown]
# `replay` computes when each action of such a list can run. An F needs that micro-batch's F on the stage before. A B
# needs its F on the same stage, and its B on the stage after. Here a forward takes 1 unit of time, a backward 2. The
# time until the last action ends is the **makespan**.

# %%
done = replay(gpipe(4, 8))
assert done.makespan == 33
plot.schedule(done, f"GPipe, 4 stages, 8 micro-batches: {100 * done.bubble:.1f} % of the time is bubble")
None

# %% [markdown]
# Each stage computes for 8 micro-batches. The last stage gets its first input after 3 forwards of other stages, and
# when it has finished, 3 backwards of other stages follow: together that is the time of 3 more micro-batches. So with p
# stages and m micro-batches
#
# $$\text{bubble} = \frac{p - 1}{m + p - 1}$$
#
# This is the idle share of the whole time. It holds if all stages take equally long, all micro-batches do, and what
# goes from stage to stage takes no time. What a forward and a backward cost does not appear in it. With more
# micro-batches the bubble is smaller, with more stages it is larger. (Papers often divide by the computing time instead
# of the whole: (p - 1) / m. For p = 4 and m = 8 that is 3/8, where the share of the whole is 3/11.)

# %%
print("stages \\ micro-batches    4     8    16    32")
for p in (2, 4, 8):
    row = [replay(gpipe(p, m)).bubble for m in (4, 8, 16, 32)]
    formula = [(p - 1) / (m + p - 1) for m in (4, 8, 16, 32)]
    assert all(abs(a - b) < 1e-9 for a, b in zip(row, formula))
    print(f"{p:6}                " + " ".join(f"{b:.3f}" for b in row))

# %% [markdown]
# The replay knows nothing of GPUs. Do virtual GPUs agree? The next cell runs the eight layers by this schedule, and
# reads the GPUs' clock.

# %%
ran = run(gpipe(4, 8))
assert abs(ran.bubble / replay(gpipe(4, 8)).bubble - 1) < 0.02
print(f"formula {3 / 11:.3f}, virtual GPUs {ran.bubble:.3f}")

# %% [markdown]
# Exercise [`e04_gpipe`](../exercises/e04_gpipe.py): write the list.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e04_gpipe

# %% [markdown]
# ## The price of GPipe, and 1F1B
#
# No activation is freed before the first backward pass. So each GPU holds the activations of all 8 micro-batches. A
# micro-batch whose forward has run on a stage, and whose backward has not, is **in flight** there: here 8 are. More
# micro-batches of the same size make the bubble smaller, and need more memory. (To cut the same batch into more
# micro-batches needs no more memory, but each is then smaller and uses a GPU less well, as in lesson 01.)
#
# Suppose that there is memory for 4 micro-batches on each GPU. Stage 0 has run four forwards, and must not run a fifth
# before a backward. Make the rest of the schedule by hand: each stage has a button for its next forward and one for
# its next backward, green if that action can run now. A button that is not green says, when pressed, why its action
# cannot run. Can you get down to GPipe's makespan of 33 with half as many micro-batches in flight?

# %% tags=["nbval-ignore-output"]
plot.place_schedule(stages=4, microbatches=8, cap=4)

# %% [markdown]
# A schedule that does it is **1F1B** (one forward, one backward; PipeDream-Flush, Narayanan et al., 2020): each stage
# alternates between forward and backward as soon as it can.

# %%
plot.schedule({"GPipe": gpipe(4, 8), "1F1B": one_f_one_b(4, 8)}, "1F1B: GPipe's bubble, at most half as many in flight")
assert replay(one_f_one_b(4, 8), cap=4).makespan == replay(gpipe(4, 8)).makespan == 33
for p in (2, 4, 8):
    for m in (1, 3, 8, 16):
        assert replay(one_f_one_b(p, m)).peak == [min(m, p - s) for s in range(p)]

# %% [markdown]
# The bubble is the same. On the right of each row stands how many micro-batches that stage has in flight at most: with
# GPipe 8 on every stage, with 1F1B 4, 3, 2 and 1. In general stage s of p has min(m, p - s) of them with 1F1B, so more
# than p micro-batches of the same size need no more memory than p.
#
# How many activations is that? The memory trace of the virtual GPUs counts them. A stage here is a linear layer and a
# tanh, which keep two activations for each micro-batch: the input of the stage, and the output of the tanh. (The input
# of the first stage is the batch, which is counted separately.)
#
# **Predict first.** How many activations does the second GPU hold at the peak of its memory, with 1F1B and with GPipe?

# %%
UNIT = ROWS * 64 * 4  # one activation of one micro-batch


def at_the_peak(schedule):
    """Of each GPU the activations that it holds when its memory has its peak, and in which pass that is."""
    with virtual_gpus(4, "A100-SXM4", "NVLink 4", dry=True) as box:
        layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])
        parts = split(layers, [1, 1, 1, 1], [f"vgpu:{i}" for i in range(4)])
        x = torch.empty(8 * ROWS, 64)
        pipeline_step(parts, schedule, x, x, lambda output, target: output.sum())
        peaks = [box.ledger.peak(i) for i in range(4)]
    return [round(peak.kinds["activations"] / UNIT) for peak in peaks], [peak.phase for peak in peaks]


memory = {name: at_the_peak(SCHEDULES[name](4, 8)) for name in ("gpipe", "1f1b")}
for name, (held, passes) in memory.items():
    print(f"{name:6}" + ", ".join(f"{n:2} ({phase})" for n, phase in zip(held, passes)))
    assert replay(SCHEDULES[name](4, 8)).peak == ([8] * 4 if name == "gpipe" else [4, 3, 2, 1])
assert memory["1f1b"] == ([4 + 1, 2 * 3, 2 * 2, 2 * 1], ["forward"] + ["backward"] * 3)
assert memory["gpipe"] == ([8 - 1] + [2 * 8 - 1] * 3, ["backward"] * 4)

# %% [markdown]
# The peak counts memory of all kinds. A backward pass needs gradients and temporaries beside the activations, so most
# stages have their peak in one. With 1F1B the last three GPUs hold 6, 4 and 2 activations then: two for each
# micro-batch in flight. The first GPU keeps one for each, 4, and has its peak in a forward pass, when the output of the
# linear layer is there as well: 5. With GPipe the last three keep 16 and the first one 8. At their peak, in the first
# backward pass, one of these is freed already, so 15 are left, and 7.

# %% [markdown]
# Exercise [`e04_one_f_one_b`](../exercises/e04_one_f_one_b.py): write the list of 1F1B. The checker names an action
# that cannot run, and why, and the bubble of a schedule that is slow.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e04_one_f_one_b

# %% [markdown]
# ## A smaller bubble
#
# Two ideas make it smaller.
#
# **Interleaved 1F1B** (Narayanan et al., 2021): each GPU has two small parts of the network instead of one large one.
# An action of a part takes half as long, and so each GPU is idle half as long. In the picture the parts, or chunks, are
# a and b, and blocks of b have a dark strip at their foot.
#
# **Zero bubble** (ZB-H1; Qi et al., 2023): a backward pass computes two things, the gradient of the input, for which
# the stage before waits, and the gradients of the weights, which no other stage needs. So the first is computed at
# once, and the second when the stage would otherwise be idle. In the list of such a schedule I and W stand for the two,
# in place of B.

# %%
schedules = {
    "1F1B": one_f_one_b(4, 8),
    "interleaved, 2 chunks a GPU": interleaved_one_f_one_b(4, 8, 2),
    "ZB-H1": zero_bubble_h1(4, 8),
}
plot.schedule(schedules, "Two ways to a smaller bubble: smaller parts, and a backward pass in two")
None

# %% [markdown]
# The papers give formulas. With v chunks, and an m that is a multiple of p, the interleaved schedule is idle for
# (p - 1) / (v m) of the computing time. Here that is 3/16 = 0.1875; of the whole time it is 0.1875 / 1.1875 = 0.158,
# which is what the replay prints. With ZB-H1 a stage is idle for (p - 1)(F + B - 2W), where F and B are the times of a
# forward and of a whole backward, and W that of the part for the weights.

# %%
p, m = 4, 8
interleaved, zero = (replay(schedules[name]) for name in list(schedules)[1:])
forward, backward, weight = 1, 2, 1
assert abs(max(interleaved.idle) / min(interleaved.busy) - (p - 1) / (2 * m)) < 1e-9
assert round(0.1875 / 1.1875, 3) == round(interleaved.bubble, 3) == 0.158
assert max(interleaved.idle) == max(replay(schedules["1F1B"]).idle) / 2
assert abs(max(zero.idle) - (p - 1) * (forward + backward - 2 * weight)) < 1e-9
for name, schedule in {"naive": naive(p, m), "GPipe": gpipe(p, m), **schedules}.items():
    done = replay(schedule)
    print(f"{name:28} makespan {done.makespan:4.1f}, bubble {done.bubble:.3f}, {max(done.peak):g} in flight at most")

# %% [markdown]
# Both have a price. Interleaving sends more: 8 parts have 7 cuts between them, where 4 stages have 3. And its first
# stage has 5.5 micro-batches in flight where that of 1F1B has 4 (a micro-batch on one of two parts counts as half a
# one). ZB-H1 has 4 on every stage, because the gradients of the weights need the activations of their forward pass,
# where 1F1B has 4, 3, 2 and 1.

# %%
assert max(interleaved.peak) == 5.5 and zero.peak == [4, 4, 4, 4]
assert replay(one_f_one_b(p, m)).peak == [4, 3, 2, 1]

# %% [markdown]
# Virtual GPUs agree with the replay. For ZB-H1 they run each backward pass in its two parts.

# %%
for name, chunks in (("1F1B", 1), ("interleaved, 2 chunks a GPU", 2), ("ZB-H1", 1)):
    ran = run(schedules[name], chunks=chunks)
    assert abs(ran.bubble / replay(schedules[name]).bubble - 1) < 0.02
    print(f"{name:28} bubble {ran.bubble:.3f} on virtual GPUs, {replay(schedules[name]).bubble:.3f} replayed")


# %% [markdown]
# How many micro-batches does a pipeline of 8 stages need for a bubble below 10 %, with 1F1B and interleaved? With 4
# stages and 8 micro-batches, how long must a transfer from stage to stage take for interleaving to have the longer
# makespan? Move the sliders.

# %% tags=["nbval-ignore-output"]
def try_it(schedule="1f1b", stages=4, micro_batches=8, transfer=0.0):
    made = SCHEDULES[schedule](stages, micro_batches, *([2] if schedule == "interleaved-1f1b" else []))
    done = replay(made, Costs(transfer=transfer))
    return plot.schedule(done, f"{schedule}: makespan {done.makespan:g}, {100 * done.bubble:.1f} % bubble")


plot.sliders(
    try_it,
    schedule=list(SCHEDULES),
    stages=[1, 2, 4, 8],
    micro_batches=[1, 2, 4, 8, 16, 32, 64],
    transfer=[0.0, 0.25, 0.5, 1.0, 1.5, 2.0],
)

# %%
for make, enough in ((lambda m: one_f_one_b(8, m), 64), (lambda m: interleaved_one_f_one_b(8, m, 2), 32)):
    assert replay(make(enough)).bubble < 0.1 < replay(make(enough // 2)).bubble
for transfer, shorter in ((1.0, True), (1.5, False)):
    plain, interleaved = (replay(schedules[name], Costs(transfer=transfer)) for name in list(schedules)[:2])
    assert (interleaved.makespan < plain.makespan) == shorter
print("64 micro-batches with 1F1B, 32 interleaved; a transfer between 1 and 1.5 times as long as a forward")

# %% [markdown]
# On the command line `mpcourse schedule 1f1b --stages 4 --microbatches 8 --save out.svg` draws a schedule, and
# `mpcourse schedule mine.py:my_schedule --stages 4 --microbatches 8` replays that of a function of your own.
#
# A schedule of your own may be impossible. The replay names the first action that cannot run, and says why.

# %%
try:
    replay([[("F", 0), ("B", 0), ("F", 1), ("B", 1)], [("F", 1), ("F", 0), ("B", 0), ("B", 1)]])
except IllegalAction as error:
    message = str(error)
assert "circular wait" in message
print(message)

# %% [markdown]
# ## Is it still the same training?
#
# The next cell cuts 8 examples into micro-batches of 3, 3 and 2, and runs them on three stages. The loss of each
# micro-batch counts in proportion to its examples, and gradients are summed. So loss and gradients are those of the
# whole batch.

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
layers = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(6)]).double()
x, target = torch.randn(8, 6).double(), torch.randn(8, 6).double()
loss = F.mse_loss(layers(x), target)
loss.backward()
wanted = [p.grad.clone() for p in layers.parameters()]
with virtual_gpus(3):
    parts = split(layers, [2, 2, 2], ["vgpu:0", "vgpu:1", "vgpu:2"])
    for name in ("naive", "gpipe", "1f1b", "zb-h1"):
        parts.zero_grad()
        step = pipeline_step(parts, SCHEDULES[name](3, 3), x, target, F.mse_loss)
        off = max(float((p.grad.cpu() - g).abs().max()) for p, g in zip(parts.parameters(), wanted))
        assert abs(float(step.loss) - loss.item()) < 1e-12 and off < 1e-12
        print(f"{name:6} loss {float(step.loss):.12f}, gradients differ by {off:.0e}")

# %% [markdown]
# Exercise [`e04_pipeline_step`](../exercises/e04_pipeline_step.py): run a schedule yourself. It is the longest one so
# far.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e04_pipeline_step

# %% [markdown]
# ## What does change: batch norm
#
# Batch norm takes mean and variance over its input. In a pipeline that is a micro-batch, which changes two things: the
# running mean and variance are updated for each micro-batch, and each example is normalised with others of its
# micro-batch only.

# %%
torch.manual_seed(1)
batch = torch.randn(64, 3) * torch.tensor([1.0, 2.0, 3.0]) + 5
whole, pieces = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
deferred = defer_batch_norm(nn.Sequential(nn.BatchNorm1d(3)))
whole(batch)
for piece in batch.split(4):
    pieces(piece)
with virtual_gpus(1):
    on_gpu = split(deferred, [1], ["vgpu:0"])
    pipeline_step(on_gpu, gpipe(1, 16), batch, torch.zeros(64, 3), F.mse_loss)
    later = deferred[0].running_var.cpu()
print("running variance, whole batch:       ", *(f"{v:.2f}" for v in whole.running_var))
print("running variance, 16 micro-batches:  ", *(f"{v:.2f}" for v in pieces.running_var))
print("running variance, deferred to the end:", *(f"{v:.2f}" for v in later))
torch.testing.assert_close(later, whole.running_var, rtol=1e-4, atol=1e-4)
outputs = (whole(batch)[:4] - pieces(batch[:4])).abs().max()
assert outputs > 0.1 and float((pieces.running_var / whole.running_var)[2]) > 2
layer_norm = nn.LayerNorm(3)
torch.testing.assert_close(layer_norm(batch)[:4], layer_norm(batch[:4]))

# %% [markdown]
# The true variances are 1, 4 and 9. The running variances begin at 1 and move a tenth of the way at each forward pass,
# so 16 forward passes bring them nearer to the true ones than one does. But a pipeline is to compute what training
# without it computes, and that updates them once a batch. `defer_batch_norm` collects the statistics over the batch and
# updates them once, as torchgpipe does.
#
# The second change remains. Each example is normalised with 3 others instead of 63, so a network with batch norm learns
# something else in a pipeline. Layer norm normalises each example by itself, and so it is not affected.

# %% [markdown]
# ## The tutorial, replayed
#
# Now the three times of the beginning. The tutorial does not name its GPUs. So we take two P100, joined by NVLink, and
# slow them down by one factor, such that one GPU takes 3.75 s. All other times are predicted.

# %%
pair = slowed_to_the_tutorial(GPUS["Tesla P100-SXM2"], "NVLink 1")
published = PIPELINE_TUTORIAL.pipelined
sizes = [size for size in sorted(published) if size > 1]  # splits of 1 image would take 10 s here
found = tutorial_seconds(pair, "NVLink 1", ["single", "model parallel", *sizes])
print("                    ours   published")
print(f"one GPU            {found['single']:5.2f}   {PIPELINE_TUTORIAL.single:5.2f}   (fitted)")
off = found["model parallel"] / PIPELINE_TUTORIAL.model_parallel - 1
print(f"cut in two         {found['model parallel']:5.2f}   {PIPELINE_TUTORIAL.model_parallel:5.2f}   {off:+.0%}")
for size in sizes:
    off = found[size] / published[size] - 1
    print(f"splits of {size:2}       {found[size]:5.2f}   {published[size]:5.2f}   {off:+.0%}")
crossed = 3 * 2 * 120 * 512 * 16 * 16 * 4  # bytes: of batches, there and back, images, channels, places, float32
implied = crossed / (PIPELINE_TUTORIAL.model_parallel - PIPELINE_TUTORIAL.single)
print(f"{crossed / 1e6:.0f} MB cross the cut; in the tutorial's additional time that is {implied / 1e9:.1f} GB/s")
assert implied < 12e9 / 8 and 0.001 < found["model parallel"] / found["single"] - 1 < 0.003
best = min(sizes, key=found.get)
assert best in (10, 12) and min(sizes, key=published.get) == 12
assert abs(found[10] / found[12] - 1) < 0.01 and abs(published[10] / published[12] - 1) < 0.03
assert found["model parallel"] > found["single"] > found[20] > found[best]
assert all(0.075 < 1 - found[size] / published[size] < 0.115 for size in sizes if size >= 10)
assert 0.145 < 1 - found[8] / published[8] < 0.155 and 1 - found[3] / published[3] > 0.3
assert found[5] < 1.1 * found[10]
for mine, theirs in ((found["model parallel"], 4.02), (found[20], 2.51), (found[12], 2.43)):
    assert abs((mine / found["single"]) / (theirs / 3.75) - 1) < 0.15

# %%
plot.lines(
    sizes,
    {"published": [published[s] for s in sizes], "virtual GPUs": [found[s] for s in sizes]},
    "images a split (of 120)",
    "seconds for 3 batches",
    "Splits of 10 to 12 images are best, in the tutorial and on virtual GPUs",
    {"one GPU": PIPELINE_TUTORIAL.single},
).axes[0].set_ylim(0, 4.2)
None

# %% [markdown]
# The optimum agrees: splits of 10 and of 12 images differ by less than 1 % here and by less than 3 % in the tutorial.
# With large splits the second GPU waits longer for its first input. With small ones there are more splits, and each
# reads all weights and adds to all gradients.
#
# Three things do not agree.
#
# - The network cut in two, without splits, is 0.2 % slower than one GPU here, and 7 % slower in the tutorial. The
#   tutorial's explanation is that tensors are copied back and forth. But in three batches 377 MB cross the cut. In the
#   additional 0.27 s that would be 1.4 GB/s, less than an eighth of what PCIe 3.0 moves. The tutorial also makes a new
#   model for each run, and reads the clock without waiting for the GPUs.
# - With splits of 10 images or more our pipeline is 8 % to 11 % too fast, with splits of 8 it is 15 % too fast. (Most
#   of the tutorial's times are read off its figure.)
# - With splits of 5 and of 3 images it is 21 % and 32 % too fast. Our two GPUs take hardly longer with splits of 5 than
#   of 10, for a virtual GPU computes 5 images in about half the time of 10. So few images do not occupy all units of a
#   real GPU. And our host launches a kernel in 8 µs. The tutorial's run with splits of 1 image takes 8.25 s: 23 ms for
#   each of 360 splits, which we suppose to be mostly the host's time. (`python -m tests.validation pipelines`,
#   in a clone of the course, prints our time for it.)

# %% [markdown]
# ## Up to eight GPUs: torchgpipe's table
#
# torchgpipe (Kim et al., 2020) published the speedup of 1, 2, 4 and 8 partitions, as it calls stages, over one GPU
# without a pipeline. With one partition the speedup is below 1, because torchgpipe uses activation checkpointing: of
# all micro-batches but the last it keeps only the inputs of partitions, and computes the forward pass again before the
# backward pass. With one partition there are two micro-batches. If a backward takes twice as long as a forward, these
# take the time of 6 forwards, and with one forward more that of 7: the speedup is 6/7 = 0.86.
#
# We run each partition's forward and backward of one micro-batch on virtual P40s, and replay GPipe's schedule with
# these times and with torchgpipe's numbers of micro-batches. Nothing is fitted.

# %%
for name, make, table in (("ResNet-101", flat_resnet101, TORCHGPIPE_RESNET101), ("U-Net", flat_unet, TORCHGPIPE_UNET)):
    ours = replayed_rates(make, table, "Tesla P40", "PCIe 3.0 x16")
    off = ours[0] / table.alone.rate - 1
    print(f"{name}: alone {ours[0]:.0f} examples/s, published {table.alone.rate:.0f}  ({off:+.0%})")
    assert abs(off) < (0.29 if name == "ResNet-101" else 0.04)
    for rate, row in zip(ours[1:], table.rows):
        mine, theirs = rate / ours[0], row.rate / table.alone.rate
        parts = f"{len(row.balance)} partition{'s' * (len(row.balance) > 1)}"
        print(f"  {parts:12} {mine:.2f} times, published {theirs:.2f}  ({mine / theirs - 1:+.0%})")
        assert abs(mine / theirs - 1) < (0.17 if (name, len(row.balance)) == ("U-Net", 4) else 0.06)
costs = partition_costs(flat_unet, TORCHGPIPE_UNET, TORCHGPIPE_UNET.rows[2], "Tesla P40", "PCIe 3.0 x16")
took = [f + b for f, b in zip(costs.forward, costs.backward)]
print("a micro-batch on each of the U-Net's 4 partitions:", ", ".join(f"{1000 * t:.0f}" for t in took), "ms")
assert max(took) == took[1] and took[1] > 1.3 * sum(took) / 4

# %% [markdown]
# Seven of eight speedups are within 6 %. (The rates themselves are less exact: ResNet-101 alone is 28 % faster here.)
# The speedup of the U-Net with 4 partitions is 17 % too low. torchgpipe's authors cut the network where each partition
# took equally long on their GPUs. On ours the second partition takes a third longer than the mean. A possible reason:
# almost all layers are 3x3 convolutions, which cuDNN can compute with fewer multiplications than the definition has
# (Winograd), and how many fewer depends on the layer's shape. We count all multiplications.
#
# Batch sizes differ from row to row in their table, and so in ours. And our skip connections pass through all
# partitions between, where torchgpipe copies them directly.
#
# In a clone of the course `python -m tests.validation pipelines` prints both tables in full.

# %% [markdown]
# ## Two real ranks
#
# The same schedules run over MPI. Each rank has one stage, and tensors are sent as messages. No GPU is needed for that,
# only two processes. They learn real digits, and record when they compute.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)
files = "--save scratch/ranks.svg --json scratch/ranks.json"
program = "mpcourse.course.examples.pipeline"
# !mpirun -np 2 python -m {program} --schedule 1f1b --microbatches 8 --epochs 6 --width 768 {files}

# %% tags=["nbval-ignore-output"]
told = json.loads(Path("scratch/ranks.json").read_text())
measured = Execution.from_dict(told["measured"])
assert [[t.action for t in row] for row in measured.stages] == one_f_one_b(2, 8)
assert told["difference"] < 1e-2 and told["losses"][-1] < told["losses"][0]
in_turn, at_once, together = told["alone"]["in_turn"], told["alone"]["at_once"], sum(measured.busy)
forward = in_turn / (2 * 8) / 3  # of one micro-batch on one of two equal stages; its backward takes twice as long
alone = replay(one_f_one_b(2, 8), Costs(forward, 2 * forward))
panels = {"predicted from one process alone": alone, "two real ranks, measured": measured}
plot.schedule(panels, "A step of 1F1B on two real ranks, and as predicted from one process", "milliseconds")

print(f"computed, 8 micro-batches one after the other: {in_turn:.0f} ms by one process, ", end="")
print(f"{together:.0f} ms by both ranks together ({together / in_turn:.2f} times)")
print(f"step: {in_turn:.0f} ms by one process, {measured.makespan:.0f} ms by two ranks: ", end="")
print(f"speedup {in_turn / measured.makespan:.2f}, predicted {in_turn / alone.makespan:.2f}")
print(f"the whole batch at once, by one process: {at_once:.0f} ms")
computing, waiting = together / in_turn, (1 - alone.bubble) / (1 - measured.bubble)
assert abs(computing * waiting - measured.makespan / alone.makespan) < 1e-9
print(f"measured / predicted: {computing:.2f} (computing) x {waiting:.2f} (bubble) = {computing * waiting:.2f}")

# %% [markdown]
# The prediction uses nothing of the run with two ranks: only what one process needs for the same micro-batches, divided
# into equal stages, and the schedule. The measured step is longer by two factors, which the last line shows. One is how
# much longer both ranks together compute than one process does: they share memory bandwidth and the last-level cache,
# which may be why. The other is the larger bubble: micro-batches do not all take equally long on a CPU, and a delay on
# one stage propagates to the other. If a factor is far above 1, then something else is using the cores: close it, and
# run the cells again.
#
# The pipeline's speedup is over one process that computes the same micro-batches. One process that takes the whole
# batch at once is faster than that, for matrix products of 512 rows use a core better than those of 64.
#
# `mpcourse bench pipeline --np 2` measures our pipeline beside torch.distributed.pipelining; their steps take turns.

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.pipeline.schedule import alternate, one_f_one_b

reference(one_f_one_b, alternate)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `gpipe`, `one_f_one_b` | `ScheduleGPipe`, `Schedule1F1B` in torch.distributed.pipelining; 1F1B is PipeDream-Flush |
# | `interleaved_one_f_one_b` | `ScheduleInterleaved1F1B`; Megatron-LM's virtual pipeline stages |
# | `zero_bubble_h1` | `ScheduleInterleavedZeroBubble` and `ScheduleZBVZeroBubble` are its relatives |
# | I and W: the two parts of a backward pass | `dgrad` and `wgrad`; `BACKWARD_INPUT`, `BACKWARD_WEIGHT` in torch |
# | `pipeline_step(..., checkpoint=True)`: keep inputs, run forward again | torchgpipe's `checkpoint='always'` |
# | `PipelineRank`, which the command runs | DeepSpeed's `PipelineEngine`, Megatron's `forward_backward_...` |
#
# What is missing here: pipelines combined with other kinds of parallelism (lesson 12 has them), and pipelines that do
# not empty before the optimizer step (PipeDream), in which stages train with weights of different age. Lesson 07
# studies what old weights cost.
#
# Next comes lesson 05: how ranks compute a sum together.
