# %% [markdown]
# # 04 Pipeline
#
# **Why is one GPU always waiting?** About 60 minutes, and 85 for its exercises.
#
# A tutorial of PyTorch trains ResNet-50 for three batches: 3.75 seconds on one GPU. Cut in two, on two GPUs: 4.02
# seconds. Twice the hardware, and slower. Then the batch is cut too, into splits of 12 images: 2.43 seconds.
#
# This lesson replays the three numbers, and tells where ours are off. On the way we meet the schedules that the field
# uses.

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
from mpcourse.pipeline.tables import replayed_rates, slowed_to_the_tutorial, tutorial_seconds
from mpcourse.published import PIPELINE_TUTORIAL, TORCHGPIPE_RESNET101, TORCHGPIPE_UNET
from mpcourse.split import split
from mpcourse.virtual import GPUS, virtual_gpus

MiB = 2**20

# %% [markdown]
# ## Three waits while one works
#
# Eight large layers, two on each of four GPUs. The batch comes in 8 pieces, one after the other: forward, backward,
# next. That is all that a split by layers gives.

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
plot.schedule(waiting, f"One after the other: {100 * waiting.bubble:.0f} % of the time is bubble", "seconds")
None

# %% [markdown]
# 75 % of what was paid for waits. It is called the **bubble**. No piece depends on another one, so nothing but the
# order is to blame.

# %% [markdown]
# ## A schedule is a list
#
# For each stage, what it does and in which order. F is a forward, B a backward, the number is the micro-batch. Waiting
# is not written down: a stage waits by itself until its input is there.
#
# GPipe (2019) fills the pipeline with all forwards, and drains it with all backwards.

# %%
for stage, actions in enumerate(gpipe(2, 3)):
    print(f"stage {stage}: {' '.join(map(str, actions))}")

# %% [markdown]
# `replay` runs such lists with nothing but their rules: an F needs the F of the stage before, a B its own F and the B
# of the stage after. Here a forward takes 1, a backward 2.

# %%
plot.schedule(gpipe(4, 8))
None

# %% [markdown]
# Each stage computes for 8 turns, and the first result needs 3 more turns to get through the others. So with p stages
# and m micro-batches
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
# A replay knows no GPU. Do GPUs agree? The same layers as above, on the box's clock.

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
# Nothing is let go before the first backward. So each GPU holds the activations of all 8 micro-batches, and a larger m
# makes a smaller bubble and a larger memory.
#
# Suppose that there is memory for 4 micro-batches on each GPU. Stage 0 has run four forwards, and must not run a fifth
# before a backward. Make the rest of the schedule by hand: each stage has a button for its next forward and one for
# its next backward, green if that can run now. Any other tells why it cannot. Can you get down to GPipe's makespan of
# 33, with half of its memory?

# %% tags=["nbval-ignore-output"]
plot.place_schedule(stages=4, microbatches=8, cap=4)

# %% [markdown]
# What people arrive at has a name. **1F1B** (2020) alternates as soon as it can: one forward, one backward.

# %%
plot.schedule({"GPipe": gpipe(4, 8), "1F1B": one_f_one_b(4, 8)})
assert replay(one_f_one_b(4, 8), cap=4).makespan == replay(gpipe(4, 8)).makespan == 33

# %% [markdown]
# The bubble is the same, to the last digit. On the right stands how many micro-batches each stage has in flight at
# most: 8 everywhere, against 4, 3, 2 and 1. In general stage s of p has min(m, p - s) of them: a larger m costs no
# memory.
#
# How many activations is that? A stage here is a layer and a tanh. Decide what the second GPU holds with 1F1B, before
# you read the line that the next cell prints for it.
#
# Bytes, from the ledger of the virtual GPUs. A stage is one layer and a tanh, which keep two activations for each
# micro-batch: what arrives, and what leaves the tanh. (On the first GPU the batch arrives, which is no activation.)

# %%
UNIT = ROWS * 64 * 4  # one activation of one micro-batch


def held_at_most(schedule):
    with virtual_gpus(4, "A100-SXM4", "NVLink 4", dry=True) as box:
        layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])
        parts = split(layers, [1, 1, 1, 1], [f"vgpu:{i}" for i in range(4)])
        x = torch.empty(8 * ROWS, 64)
        pipeline_step(parts, schedule, x, x, lambda output, target: output.sum())
        return [round(box.ledger.peak(i).kinds["activations"] / UNIT) for i in range(4)]


memory = {name: held_at_most(SCHEDULES[name](4, 8)) for name in ("gpipe", "1f1b")}
for name, held in memory.items():
    print(f"{name:6}" + "".join(f"{n:4}" for n in held) + "   activations at the peak")
    assert replay(SCHEDULES[name](4, 8)).peak == ([8] * 4 if name == "gpipe" else [4, 3, 2, 1])
assert memory["1f1b"][1:] == [2 * 3, 2 * 2, 2 * 1] and memory["gpipe"][1:] == [2 * 8 - 1] * 3

# %% [markdown]
# 6, 4 and 2: two for each micro-batch in flight. The first GPU keeps one for each, 4, and peaks in a forward, when the
# linear layer's result, of which the last one is made, is there as well: 5. GPipe's stages keep 16, and peak in the
# first backward, when one of them is let go already: 15.

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
# **Interleaved 1F1B** (Megatron-LM): each GPU gets two thin chunks of the network instead of a thick one. A turn is
# half as long, so is the bubble. In the picture the chunks are a and b.
#
# **Zero bubble** (ZB-H1): a backward is two things. The gradient of the input, for which the stage before waits, and
# the gradients of the weights, for which nobody waits. Do the first at once, and the second when there is nothing else
# to do.

# %%
schedules = {
    "1F1B": one_f_one_b(4, 8),
    "interleaved, 2 chunks a GPU": interleaved_one_f_one_b(4, 8, 2),
    "ZB-H1": zero_bubble_h1(4, 8),
}
plot.schedule(schedules)
None

# %% [markdown]
# Published forms: the interleaved bubble is (p - 1) / (v m) of the computing time, for v chunks. ZB-H1 idles
# (p - 1)(F + B - 2W), W being the weights' part of B. The first is 3/16 = 0.1875 here; of the whole time that is
# 0.1875 / 1.1875 = 0.158, which is what the replay prints.

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
# Neither is free. Interleaving sends more: 8 chunks have 7 cuts between them, where 4 stages have 3. And its first
# stage has 5.5 micro-batches in flight where 1F1B's has 4 (a micro-batch on one chunk of two counts half). ZB-H1 has 4
# on every stage, for a weight part needs what its forward kept; 1F1B has 4, 3, 2 and 1.

# %%
assert max(interleaved.peak) == 5.5 and zero.peak == [4, 4, 4, 4]
assert replay(one_f_one_b(p, m)).peak == [4, 3, 2, 1]

# %% [markdown]
# And on virtual GPUs, where backward really is run in two parts:

# %%
for name, chunks in (("1F1B", 1), ("interleaved, 2 chunks a GPU", 2), ("ZB-H1", 1)):
    ran = run(schedules[name], chunks=chunks)
    assert abs(ran.bubble / replay(schedules[name]).bubble - 1) < 0.02
    print(f"{name:28} bubble {ran.bubble:.3f} on virtual GPUs, {replay(schedules[name]).bubble:.3f} replayed")


# %% [markdown]
# Try it. How many micro-batches does a pipeline of 8 stages need for a bubble below 10 %? When does a slow transfer
# turn the order of schedules round?

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
    transfer=[0.0, 0.25, 0.5, 1.0],
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
assert "all wait in a circle" in message
print(message)

# %% [markdown]
# ## Is it still the same training?
#
# 8 examples, cut into micro-batches of 3, 3 and 2, on three stages. Each micro-batch counts by its number of examples,
# gradients are added up, and the step is the whole batch's.

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
# Batch norm takes mean and variance over what it is given. In a pipeline it is given a micro-batch.

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
# The true variances are 1, 4 and 9. The running ones begin at 1 and move a tenth of the way at each forward, so 16
# forwards bring them nearer than one. Nearer is not the point: unsplit training moves once a batch, and this is another
# training. `defer_batch_norm` collects the statistics over the batch and moves once, as torchgpipe does.
#
# The other thing remains. Each example is normalised with 3 others instead of 63: a network with batch norm learns a
# little differently in a pipeline. Layer norm does not.

# %% [markdown]
# ## The tutorial, replayed
#
# Now the three numbers of the beginning. The tutorial does not name its GPUs. So we take two P100 and slow them down by
# **one factor**, such that one GPU takes 3.75 s. Everything else is predicted.

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
# The optimum comes out: 10 and 12 are level within 1 % here and within 3 % in the tutorial. Large splits: the second
# GPU waits for the first one to be filled. Small splits: each one reads all weights again, and adds to all gradients.
#
# Three things do not come out.
#
# - **Cut in two**: ours is 0.2 % slower than one GPU, the tutorial's 7 %. It puts that down to copying tensors back and
#   forth. But in a run of three batches 377 MB cross the cut, and 7 % of 3.75 s would make that 1.4 GB/s, a ninth of
#   what PCIe 3.0 moves. The tutorial also makes a new model for each run, and reads the clock without waiting for the
#   GPUs.
# - **From 10 images on** ours is 8 % to 11 % too fast, with 8 images 15 %. (Most of the tutorial's values are read off
#   its figure.)
# - **Below 8 images** ours is far too fast. The virtual GPU thinks a kernel for 5 images takes half of one for 10. A
#   real one is not filled by so little work. And our host enqueues an operation in 8 microseconds: the tutorial needs
#   8.25 s for 360 splits of 1 image, 23 ms each, and there little but the host counts. `mpcourse bench tables` runs
#   the smallest, too: splits of 3 take 2.55 s (3.75 published), of 1 4.00 s (8.25).

# %% [markdown]
# ## Up to eight GPUs: torchgpipe's table
#
# torchgpipe (2020) published how much faster 1, 2, 4 and 8 partitions are than one GPU without a pipeline. With one
# partition it is slower: GPipe keeps only the inputs of partitions, and computes forward again before backward.
#
# Ours: each partition's forward and backward of one micro-batch on virtual P40s, then a replay with their numbers of
# micro-batches. Nothing is fitted.

# %%
for name, make, table in (("ResNet-101", flat_resnet101, TORCHGPIPE_RESNET101), ("U-Net", flat_unet, TORCHGPIPE_UNET)):
    ours = replayed_rates(make, table, "Tesla P40", "PCIe 3.0 x16")
    print(f"{name}: alone {ours[0]:.0f} examples/s, published {table.alone.rate:.0f}")
    for rate, row in zip(ours[1:], table.rows):
        mine, theirs = rate / ours[0], row.rate / table.alone.rate
        parts = f"{len(row.balance)} partition{'s' * (len(row.balance) > 1)}"
        print(f"  {parts:12} {mine:.2f} times, published {theirs:.2f}  ({mine / theirs - 1:+.0%})")
        assert abs(mine / theirs - 1) < (0.21 if len(row.balance) == 4 else 0.1)

# %% [markdown]
# Seven of eight are within 6 %. The U-Net with 4 partitions comes out 17 % too slow. Its authors cut the network where
# each partition took equally long **on their GPUs**. On ours the second partition is the slowest by far. It is full of
# 3x3 convolutions, which cuDNN can do with fewer multiplications than the definition has (Winograd).
# We count all of them.
#
# Also: batch sizes differ from row to row in their table, and in ours. And our skips travel through all partitions
# between, where torchgpipe sends them straight.
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
# !mpirun -np 2 python -m mpcourse.pipeline.ranks --schedule 1f1b --microbatches 8 --epochs 6 --width 768 {files}

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
# The pipeline divides micro-batches among ranks, so that is what its speedup is measured against. One process that takes
# the whole batch at once is a stronger competitor, for matrix products of 512 rows use a core better than those of 64.
#
# `mpcourse bench pipeline --np 2` measures it beside torch.distributed.pipelining, step by step in the same run.

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `gpipe`, `one_f_one_b` | `ScheduleGPipe`, `Schedule1F1B` in torch.distributed.pipelining; 1F1B is PipeDream-Flush |
# | `interleaved_one_f_one_b` | `ScheduleInterleaved1F1B`; Megatron-LM's virtual pipeline stages |
# | `zero_bubble_h1` | `ScheduleInterleavedZeroBubble` and `ScheduleZBVZeroBubble` are its relatives |
# | I and W | `dgrad` and `wgrad`; `INPUT` and `WEIGHT` in torch's own schedule files |
# | `pipeline_step(..., checkpoint=True)`: keep inputs, run forward again | torchgpipe's `checkpoint='always'` |
# | `PipelineRank`, which the command runs | DeepSpeed's `PipelineEngine`, Megatron's `forward_backward_...` |
#
# What is missing here: overlapping pipelines with other kinds of parallelism, and pipelines that never drain
# (PipeDream), in which stages train with weights of different age. That is a question for lesson 07.
#
# Next comes lesson 05: ranks that agree on a sum.
