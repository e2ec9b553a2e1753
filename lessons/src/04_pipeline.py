# %% [markdown]
# # 04 Pipeline
#
# **Why is one GPU always waiting?** About 30 minutes to read, and 85 for its exercises.
#
# A tutorial of PyTorch trains ResNet-50 for three batches: 3.75 seconds on one GPU. Cut in two, on two GPUs: 4.02
# seconds. Twice the hardware, and slower. Then the batch is cut too, into splits of 12 images: 2.43 seconds. That is
# **pipeline parallelism**.
#
# This lesson reproduces the three numbers, and says where ours differ. On the way it introduces the **schedules** that
# are in use.

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import json
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse import plot
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
from mpcourse.published import PIPELINE_TUTORIAL, TORCHGPIPE_RESNET101, TORCHGPIPE_UNET
from mpcourse.split import split
from mpcourse.virtual import GPUS, virtual_gpus

MiB = 2**20

# %% [markdown]
# ## One GPU computes, three wait
#
# Eight large layers, two on each of four GPUs. What a GPU has of the network is a **stage**. The batch is cut into 8
# **micro-batches**. At first each goes through forward and backward before the next one begins, as in lesson 03.
#
# **Predict first.** Which part of the time is each of the four GPUs idle?

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
# 75 % of the GPUs' time is idle. That share is called the **bubble**. No micro-batch depends on another one, so only
# the order causes it.

# %% [markdown]
# ## A schedule is a list
#
# A **schedule** says for each stage what it does and in which order. F is a forward pass, B a backward pass, and the
# number is the micro-batch. Waiting is not written down: a stage waits until its input has arrived.
#
# **GPipe** (Huang et al., 2019) runs all forward passes first, and then all backward passes.

# %%
for stage, actions in enumerate(gpipe(2, 3)):
    print(f"stage {stage}: {' '.join(map(str, actions))}")

# %% [markdown]
# `replay` computes when each action of such a list can run: an F needs the F of the stage before, a B its own F and the
# B of the stage after. Here a forward takes 1, a backward 2. The time until the last action ends is the **makespan**.

# %%
plot.schedule(gpipe(4, 8))
None

# %% [markdown]
# Each stage computes for 8 micro-batches. The last one gets its first input after 3 forwards of others, and when it has
# finished, 3 backwards of others follow: together the time of 3 more micro-batches. So with p stages and m
# micro-batches
#
# $$\text{bubble} = \frac{p - 1}{m + p - 1}$$
#
# This is the idle share of the whole time. It holds if all stages take equally long, all micro-batches do, and what
# goes from stage to stage takes no time. What a forward and a backward cost does not appear in it. More micro-batches
# help, more stages hurt. (Papers often divide by the computing time instead of the whole: (p - 1) / m. For p = 4 and
# m = 8 that is 3/8, where the share of the whole is 3/11.)

# %%
print("stages \\ micro-batches    4     8    16    32")
for p in (2, 4, 8):
    row = [replay(gpipe(p, m)).bubble for m in (4, 8, 16, 32)]
    formula = [(p - 1) / (m + p - 1) for m in (4, 8, 16, 32)]
    assert all(abs(a - b) < 1e-9 for a, b in zip(row, formula))
    print(f"{p:6}                " + " ".join(f"{b:.3f}" for b in row))

# %% [markdown]
# The replay knows nothing of GPUs. Do virtual GPUs agree? The same layers as above, by their clock.

# %%
ran = run(gpipe(4, 8))
assert abs(ran.bubble / replay(gpipe(4, 8)).bubble - 1) < 0.02
print(f"formula {3 / 11:.3f}, virtual GPUs {ran.bubble:.3f}")

# %% [markdown]
# Exercise `e04_gpipe`: write the list.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e04_gpipe

# %% [markdown]
# ## The price of GPipe, and 1F1B
#
# No activation is freed before the first backward pass. So each GPU holds those of all 8 micro-batches: 8 are **in
# flight**. More micro-batches of the same size make the bubble smaller, and need more memory. (To cut the same batch
# into more of them needs none, but each is then smaller and uses a GPU less well, as in lesson 01.)
#
# Suppose that there is memory for 4 micro-batches on each GPU. Stage 0 has run four forwards, and must not run a fifth
# before a backward. Make the rest of the schedule by hand: each stage has a button for its next forward and one for
# its next backward, green if that can run now. A button that is not green tells, when pressed, why it cannot. Can you
# get down to GPipe's makespan of 33, with half of its memory?

# %% tags=["nbval-ignore-output"]
plot.place_schedule(stages=4, microbatches=8, cap=4)

# %% [markdown]
# What people arrive at is known as **1F1B** (one forward, one backward; PipeDream-Flush, Narayanan et al., 2020): each
# stage alternates as soon as it can.

# %%
plot.schedule({"GPipe": gpipe(4, 8), "1F1B": one_f_one_b(4, 8)}, "1F1B: GPipe's bubble, at most half as many in flight")
assert replay(one_f_one_b(4, 8), cap=4).makespan == replay(gpipe(4, 8)).makespan == 33

# %% [markdown]
# The bubble is the same, to the last digit. On the right stands how many micro-batches each stage has in flight at
# most: 8 everywhere, against 4, 3, 2 and 1. In general stage s of p has min(m, p - s) of them. More than p
# micro-batches of the same size cost no more memory.
#
# The memory trace of the virtual GPUs says how many activations that is. A stage here is a linear layer and a tanh,
# which keep two for each micro-batch: the input of the stage, and the output of the tanh. (The input of the first stage
# is the batch, which is counted separately.)
#
# **Predict first.** How many activations does the second GPU hold when its memory has its peak, with 1F1B and with
# GPipe?

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
# The peak counts memory of all kinds. A backward pass needs gradients and temporaries beside the activations, so it has
# the peak on most stages. With 1F1B they hold 6, 4 and 2 then: two for each micro-batch in flight. The first GPU keeps
# one for each, 4, and has its peak in a forward pass, when the output of the linear layer is there as well: 5. GPipe's
# stages keep 16, the first one 8; at the peak, in the first backward pass, one of them is freed already: 15, and 7.

# %% [markdown]
# Exercise `e04_one_f_one_b`: write that list. The checker tells an illegal action with its reason, and a slow schedule
# with its bubble.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e04_one_f_one_b

# %% [markdown]
# ## A smaller bubble
#
# Two ideas, of 2021 and of 2023.
#
# **Interleaved 1F1B** (Narayanan et al., 2021): each GPU has two small parts of the network instead of one large one. A
# forward pass of a part takes half as long, and so does the bubble. In the picture the parts, or chunks, are a and b.
#
# **Zero bubble** (ZB-H1; Qi et al., 2023): a backward pass computes two things, the gradient of the input, for which
# the stage before waits, and the gradients of the weights, which no other stage needs. So the first is computed at
# once, and the second when the stage would otherwise be idle. In the list these are I and W, in place of B.

# %%
schedules = {
    "1F1B": one_f_one_b(4, 8),
    "interleaved, 2 chunks a GPU": interleaved_one_f_one_b(4, 8, 2),
    "ZB-H1": zero_bubble_h1(4, 8),
}
plot.schedule(schedules, "Two ways to a smaller bubble: smaller parts, and a backward pass in two")
None

# %% [markdown]
# Published forms: the interleaved bubble is (p - 1) / (v m) of the computing time, for v chunks and an m that is a
# multiple of p. ZB-H1 idles for (p - 1)(F + B - 2W), W being the weights' part of B. The first is 3/16 = 0.1875 here;
# of the whole time that is 0.1875 / 1.1875 = 0.158, which is what the replay prints.

# %%
p, m = 4, 8
interleaved, zero = (replay(schedules[name]) for name in list(schedules)[1:])
forward, backward, weight = 1, 2, 1
assert abs(max(interleaved.idle) / min(interleaved.busy) - (p - 1) / (2 * m)) < 1e-9
assert round(0.1875 / 1.1875, 3) == round(interleaved.bubble, 3) == 0.158
assert abs(max(zero.idle) - (p - 1) * (forward + backward - 2 * weight)) < 1e-9
for name, schedule in {"naive": naive(p, m), "GPipe": gpipe(p, m), **schedules}.items():
    done = replay(schedule)
    print(f"{name:28} makespan {done.makespan:4.1f}, bubble {done.bubble:.3f}, {max(done.peak):g} in flight at most")

# %% [markdown]
# Both have a price. Interleaving sends more: 8 parts have 7 cuts between them, where 4 stages have 3. And its first
# stage has 5.5 micro-batches in flight where 1F1B's has 4 (a micro-batch on one part of two counts half). ZB-H1 has 4
# on every stage, because the gradients of the weights need the activations of their forward pass; 1F1B has 4, 3, 2 and
# 1.

# %%
assert max(interleaved.peak) == 5.5 and zero.peak == [4, 4, 4, 4]
assert replay(one_f_one_b(p, m)).peak == [4, 3, 2, 1]

# %% [markdown]
# And on virtual GPUs, which run the backward pass in these two parts:

# %%
for name, chunks in (("1F1B", 1), ("interleaved, 2 chunks a GPU", 2), ("ZB-H1", 1)):
    ran = run(schedules[name], chunks=chunks)
    assert abs(ran.bubble / replay(schedules[name]).bubble - 1) < 0.02
    print(f"{name:28} bubble {ran.bubble:.3f} on virtual GPUs, {replay(schedules[name]).bubble:.3f} replayed")


# %% [markdown]
# How many micro-batches does a pipeline of 8 stages need for a bubble below 10 %, with 1F1B and interleaved? With 4
# stages and 8 micro-batches, from which time of a transfer on has interleaving the longer makespan? Move the sliders.

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

# %% [markdown]
# On the command line: `mpcourse schedule 1f1b --stages 4 --microbatches 8 --save out.svg`. It takes a function of your
# own, too: `mpcourse schedule mine.py:my_schedule --stages 4 --microbatches 8`.
#
# A schedule of your own may be impossible. The replay names the first action that cannot run, and why.

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
# 8 examples, cut into micro-batches of 3, 3 and 2, on three stages. Each micro-batch counts by its number of examples,
# gradients are summed, and the step is that of the whole batch.

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
# Exercise `e04_pipeline_step`: run a schedule yourself. It is the longest one so far.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e04_pipeline_step

# %% [markdown]
# ## What does change: batch norm
#
# Batch norm takes mean and variance over its input. In a pipeline that is a micro-batch.

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

# %% [markdown]
# The true variances are 1, 4 and 9. The running ones begin at 1 and move a tenth of the way at each forward pass, so 16
# of them bring them nearer than one does. But the aim is equality: unsplit training updates them once a batch.
# `defer_batch_norm` collects the statistics over the batch and updates them once, as torchgpipe does.
#
# The second difference remains. Each example is normalised with 3 others instead of 63, so a network with batch norm
# learns a little differently in a pipeline. Layer norm is not affected.

# %% [markdown]
# ## The tutorial, replayed
#
# Now the three numbers of the beginning. The tutorial does not name its GPUs. So we take two P100 and slow them down by
# one factor, such that one GPU takes 3.75 s. Everything else is predicted.

# %%
pair = slowed_to_the_tutorial(GPUS["Tesla P100-SXM2"], "NVLink 1")
published = PIPELINE_TUTORIAL.pipelined
sizes = [size for size in sorted(published) if size > 3]  # splits of 3 and of 1 would take 30 s here
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
# The optimum agrees: 10 and 12 differ by less than 1 % here and by less than 3 % in the tutorial. With large splits the
# second GPU waits longer for its first input. With small splits the weights are read, and the gradients added to, once
# more for each.
#
# Three things do not agree.
#
# - Cut in two: ours is 0.2 % slower than one GPU, the tutorial's 7 %. It puts that down to copying tensors back and
#   forth. But in a run of three batches 377 MB cross the cut. In 0.27 s that would be 1.4 GB/s, less than an eighth of
#   what PCIe 3.0 moves. The tutorial also makes a new model for each run, and reads the clock without waiting for the
#   GPUs.
# - From 10 images on ours is 8 % to 11 % too fast, with 8 images 15 %. (Most of the tutorial's values are read off
#   its figure.)
# - Below 8 images ours is far too fast. On the virtual GPU a kernel for 5 images takes half as long as one for 10. On a
#   real one so few images do not occupy all its units. And our host launches a kernel in 8 µs: the tutorial needs
#   8.25 s for 360 splits of 1 image, 23 ms each, which is mostly the host's time. `mpcourse bench tables` runs
#   the smallest, too: splits of 3 take 2.56 s (3.75 published), of 1 4.16 s (8.25).

# %% [markdown]
# ## Up to eight GPUs: torchgpipe's table
#
# torchgpipe (Kim et al., 2020) published the speedup of 1, 2, 4 and 8 partitions over one GPU without a pipeline. With
# one partition it is below 1: of all micro-batches but the last, torchgpipe keeps only the inputs of partitions, and
# computes the forward pass again before the backward pass. That row has two micro-batches. If a backward takes twice as
# long as a forward, one forward more makes 6/7 = 0.86.
#
# Ours: each partition's forward and backward of one micro-batch on virtual P40s, then a replay with their numbers of
# micro-batches. Nothing is fitted.

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
# The U-Net with 4 partitions is 17 % too slow. Its authors cut the network where each partition took equally long on
# their GPUs. On ours the second one takes a third longer than the mean. A possible reason: almost all layers are 3x3
# convolutions, which cuDNN can compute with fewer multiplications than the definition has (Winograd), and how many
# fewer depends on their shape. We count all of them.
#
# Batch sizes differ from row to row in their table, and so in ours. And our skip connections pass through all
# partitions between, where torchgpipe copies them directly.
#
# Both tables in full: `mpcourse bench tables`.

# %% [markdown]
# ## Two real ranks
#
# The same schedules run over MPI: one stage a rank, tensors as messages. No GPU is needed for that, only two processes.
# They learn real digits, and note when they worked.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)
files = "--save scratch/ranks.svg --json scratch/ranks.json"
# !mpirun -np 2 python -m mpcourse.examples.pipeline --schedule 1f1b --microbatches 8 --epochs 6 --width 768 {files}

# %% tags=["nbval-ignore-output"]
told = json.loads(Path("scratch/ranks.json").read_text())
measured = Execution.from_dict(told["measured"])
assert [[t.action for t in row] for row in measured.stages] == one_f_one_b(2, 8)
assert told["difference"] < 1e-2 and told["losses"][-1] < told["losses"][0]
in_turn, at_once, together = told["alone"]["in_turn"], told["alone"]["at_once"], told["computed"]
forward = in_turn / (2 * 8) / 3  # of one micro-batch on one of two equal stages; its backward takes twice as long
alone = replay(one_f_one_b(2, 8), Costs(forward, 2 * forward))
panels = {"predicted from one process alone": alone, "two real ranks, measured": measured}
plot.schedule(panels, "1F1B, 8 micro-batches, 2 stages", "milliseconds")

print(f"computed, 8 micro-batches one after the other: {in_turn:.0f} ms by one process, ", end="")
print(f"{together:.0f} ms by both ranks together ({together / in_turn:.2f} times)")
print(f"step: {in_turn:.0f} ms by one process, {measured.makespan:.0f} ms by two ranks: ", end="")
print(f"speedup {in_turn / measured.makespan:.2f}, predicted {in_turn / alone.makespan:.2f}")
print(f"the whole batch at once, by one process: {at_once:.0f} ms")

# %% [markdown]
# The prediction uses nothing of the run with two ranks: only what one process needs for the same micro-batches, divided
# into equal stages, and the schedule. What is lost beyond it has two causes. Micro-batches do not all take equally
# long on a CPU, and a delay on one stage propagates to the other, so that the measured bubble is the larger one. And
# two processes share memory bandwidth and the last-level cache, so that both compute a little longer than one alone.
# If your two ranks together compute much longer than one process, then something else is using the cores: close it, and
# run the cell again.
#
# The pipeline divides micro-batches among ranks, so that is what its speedup is measured against. One process that
# takes the whole batch at once is a stronger competitor, for matrix products of 512 rows use a core better than those
# of 64.
#
# `mpcourse bench pipeline --np 2` measures it beside torch.distributed.pipelining, step by step in the same run.

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.pipeline.schedule import alternate, one_f_one_b
from mpcourse.source import reference

reference(one_f_one_b, alternate)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `gpipe`, `one_f_one_b` | `ScheduleGPipe`, `Schedule1F1B` in torch.distributed.pipelining; 1F1B is PipeDream-Flush |
# | `interleaved_one_f_one_b` | `ScheduleInterleaved1F1B`; Megatron-LM's virtual pipeline stages |
# | `zero_bubble_h1` | `ScheduleInterleavedZeroBubble` and `ScheduleZBVZeroBubble` are its relatives |
# | I and W: a backward pass in two parts | `dgrad` and `wgrad`; `BACKWARD_INPUT` and `BACKWARD_WEIGHT` in torch |
# | `pipeline_step(..., checkpoint=True)`: keep inputs, run forward again | torchgpipe's `checkpoint='always'` |
# | `PipelineRank`, which the command runs | DeepSpeed's `PipelineEngine`, Megatron's `forward_backward_...` |
#
# What is missing here: pipelines combined with other kinds of parallelism, and pipelines without a flush (PipeDream),
# in which stages train with weights of different age. Lesson 07 studies what that costs.
#
# Next comes lesson 05: how ranks compute a sum together.
