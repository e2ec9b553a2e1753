# %% [markdown]
# # 04 Pipeline
#
# **Why is one GPU always waiting?** About 50 minutes to read, and 85 for its exercises.
#
# A PyTorch tutorial trains ResNet-50 with three batches of 120 images, which takes 3.75 seconds on one GPU. With half
# of the layers on each of two GPUs, the same training takes 4.02 seconds, although there is twice the hardware. Then
# the tutorial cuts each batch into splits of 12 images, and the same two GPUs need only 2.43 seconds (Shen Li, *Model
# Parallel Best Practices*, 2019,
# <https://github.com/pytorch/tutorials/blob/03b277366b12fc14f56a387cc5ec4cdf1ede744a/intermediate_source/model_parallel_tutorial.py>).
# This is **pipeline parallelism**.
#
# After this lesson you can
#
# - compute the share of the time for which the GPUs of a pipeline are idle;
# - choose the order in which a pipeline works by comparing idle time, memory and traffic;
# - test that a pipeline computes the same gradients as training without it, and say what batch norm changes;
# - run a pipeline with `torch.distributed.pipelining`.

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
from mpcourse.data.published import PIPELINE_TUTORIAL
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
from mpcourse.pipeline.tables import slowed_to_the_tutorial, tutorial_seconds
from mpcourse.split import split
from mpcourse.virtual import GPUS, virtual_gpus

# %% [markdown]
# ## One GPU computes, three wait
#
# A network of eight large layers runs on four GPUs, with two layers on each. The layers on one GPU are called a
# **stage**. The batch is cut into four parts, the micro-batches. First we run one micro-batch at a time: it goes
# forward and backward through all stages before the next one begins, as the whole batch did in lesson 03.

# %%
WIDTH, ROWS = 8192, 2048


def run(schedule, stages=4, chunks=1):
    """Run one step on virtual GPUs by a schedule. Return when each action ran."""
    pieces = 1 + max(a.microbatch for a in schedule[0])
    with virtual_gpus(stages, "A100-SXM4", "NVLink 3", dry=True, overlap=True):
        names = [f"vgpu:{i}" for i in range(stages)]
        with torch.device("vgpu:0"):
            layers = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)])
        parts = split(layers, [8 // (stages * chunks)] * (stages * chunks), names * chunks)
        x = torch.empty(pieces * ROWS, WIDTH, device="vgpu:0").requires_grad_()
        target = torch.empty(pieces * ROWS, WIDTH, device=names[-1])
        return pipeline_step(parts, schedule, x, target, lambda output, target: output.sum()).execution


# %% [markdown]
# **Predict first.** For what share of the time is each of the four GPUs idle?

# %% tags=["answer"]
# answer
waiting = run(naive(4, 4))
plot.schedule(waiting, "One micro-batch at a time", "seconds")
None

# %% tags=["checked"]
# checked: the GPUs are idle for 75 % of the time
assert abs(waiting.bubble - 0.75) < 0.02

# %% [markdown]
# <details><summary>Why</summary>
#
# At any time, only one of the four GPUs computes, so each GPU is idle for 75 % of the time. No micro-batch depends on
# another micro-batch. Only the order of the work makes the GPUs wait.
#
# </details>
#
# The share of the time for which the GPUs are idle is called the **bubble**.
#
# ## A schedule is a list
#
# For each stage, a **schedule** lists what the stage does, and in which order. F stands for a forward pass and B for a
# backward pass. The number after the letter is the micro-batch. The list does not say when a stage waits, because a
# stage always waits until its input has arrived.
#
# **GPipe** runs all forward passes first, and then all backward passes (Yanping Huang and others, *GPipe: Efficient
# Training of Giant Neural Networks using Pipeline Parallelism*, 2019, <https://arxiv.org/abs/1811.06965>).

# %%
for stage, actions in enumerate(gpipe(2, 3)):
    print(f"stage {stage}: {' '.join(map(str, actions))}")

# %% [markdown]
# `replay` computes when each action of such a list can run. An F needs the F of the same micro-batch on the previous
# stage. A B needs its F on the same stage and the B of the same micro-batch on the next stage. Here a forward pass
# takes 1 unit of time and a backward pass takes 2. The **makespan** is the time until the last action ends.
#
# **Predict first.** Four stages run 8 micro-batches with GPipe. How long is the makespan? Each stage computes for 24
# units.

# %% tags=["answer"]
# answer
done = replay(gpipe(4, 8))
print(f"makespan {done.makespan:g}, bubble {done.bubble:.3f}")
plot.schedule(done, "GPipe, 4 stages, 8 micro-batches")
None

# %% [markdown]
# <details><summary>Why</summary>
#
# The makespan is 33. The last stage gets its first input after 3 forward passes of the earlier stages. After its last
# backward pass, the earlier stages run 3 more backward passes, one after another. The last stage is idle for 3 units at
# the start and 6 at the end. These 9 units are the time of 3 micro-batches.
#
# </details>
#
# With p stages and m micro-batches, a stage is idle for the time of p - 1 micro-batches. The bubble is therefore
#
# $$\text{bubble} = \frac{p - 1}{m + p - 1}$$
#
# The formula holds if all stages and all micro-batches take equally long, and if a transfer between stages takes no
# time. The times of a forward pass and of a backward pass do not appear in it. More micro-batches make the bubble
# smaller, and more stages make it larger. Many papers divide the idle time by the computing time, which gives (p - 1) /
# m. For p = 4 and m = 8 their bubble is 3/8, and ours is 3/11.

# %%
print("stages \\ micro-batches    4     8    16    32")
for p in (2, 4, 8):
    row = [replay(gpipe(p, m)).bubble for m in (4, 8, 16, 32)]
    assert all(abs(bubble - (p - 1) / (m + p - 1)) < 1e-9 for bubble, m in zip(row, (4, 8, 16, 32)))
    print(f"{p:6}                " + " ".join(f"{b:.3f}" for b in row))

# %% [markdown]
# The replay knows nothing about GPUs. The next cell runs the eight layers with this schedule on virtual GPUs and reads
# their clock.

# %%
print(f"formula {3 / 11:.3f}, virtual GPUs {run(gpipe(4, 8)).bubble:.3f}")

# %% [markdown]
# Exercise [`e04_gpipe`](../exercises/e04_gpipe.py): write the list of GPipe.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e04_gpipe

# %% [markdown]
# ## The memory of GPipe, and 1F1B
#
# GPipe frees no activation before the first backward pass, so each GPU holds the activations of all 8 micro-batches. A
# micro-batch is **in flight** on a stage when its forward pass has run there and its backward pass has not. With GPipe,
# all 8 micro-batches are in flight. If the size of a micro-batch stays the same, more micro-batches make the bubble
# smaller but need more memory. If the size of the batch stays the same, cutting it into more micro-batches needs no
# additional memory, but each micro-batch is smaller and uses the GPU less well (lesson 01).
#
# Suppose that each GPU has memory for 4 micro-batches. After four forward passes, stage 0 must run a backward pass
# before it runs a fifth forward pass. Make the rest of the schedule by hand. Each stage has a button for its next
# forward pass and a button for its next backward pass. A button is green if its action can run now. Any other button
# says why its action cannot run. Can you reach GPipe's makespan of 33 with half as many micro-batches in flight?

# %% tags=["nbval-ignore-output"]
plot.place_schedule(stages=4, microbatches=8, cap=4)

# %% [markdown]
# The schedule **1F1B** (one forward, one backward) reaches this makespan. Each stage first runs a few forward passes,
# and then alternates between one forward and one backward pass (Deepak Narayanan and others, *Memory-Efficient
# Pipeline-Parallel DNN Training*, 2020, <https://arxiv.org/abs/2006.09503>; they call it PipeDream-Flush).
#
# **Predict first.** The last stage can run the backward pass of a micro-batch immediately after its forward pass. How
# many micro-batches are in flight at most on the last stage, and how many on the first?

# %% tags=["answer"]
# answer
plot.schedule({"GPipe": gpipe(4, 8), "1F1B": one_f_one_b(4, 8)}, "GPipe and 1F1B, 4 stages, 8 micro-batches")
None

# %% tags=["checked"]
# checked: 1F1B has GPipe's makespan, and stage s of p has min(m, p - s) micro-batches in flight
assert replay(one_f_one_b(4, 8), cap=4).makespan == replay(gpipe(4, 8)).makespan == 33
assert replay(gpipe(4, 8)).peak == [8] * 4
for p in (2, 4, 8):
    for m in (1, 3, 8, 16):
        assert replay(one_f_one_b(p, m)).peak == [min(m, p - s) for s in range(p)]

# %% [markdown]
# <details><summary>Why</summary>
#
# The numbers to the right of the rows give the answer: 4, 3, 2 and 1 with 1F1B, and 8 on every stage with GPipe. The
# first gradient returns to stage 0 only after its micro-batch has passed through all four stages. Until then, stage 0
# runs the forward passes of 4 micro-batches.
#
# </details>
#
# The bubble of 1F1B is the same as GPipe's. In general, stage s of p stages, counted from 0, has at most min(m, p - s)
# micro-batches in flight. So once there are p micro-batches, further micro-batches of the same size need no additional
# memory. The appendix [04, memory and torchgpipe](appendix/04_memory_and_torchgpipe.ipynb) counts the activations on
# virtual GPUs.
#
# Exercise [`e04_one_f_one_b`](../exercises/e04_one_f_one_b.py): write the list of 1F1B. The checker names an action
# that cannot run, and reports the bubble of a schedule that is too slow.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e04_one_f_one_b

# %% [markdown]
# ## A smaller bubble
#
# **Interleaved 1F1B** gives each GPU two small parts of the network instead of one large part (Deepak Narayanan and
# others, *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*, 2021,
# <https://arxiv.org/abs/2104.04473>). An action of a small part takes half as long as an action of a large part, so
# each GPU is idle for half as long as with 1F1B. A small part is called a chunk. In the figure, the letter below the
# number of the micro-batch names the chunk. Blocks of chunk b also have a dark strip.

# %%
interleaved = interleaved_one_f_one_b(4, 8, 2)
plot.schedule(interleaved, "Interleaved 1F1B, 4 GPUs with 2 chunks each, 8 micro-batches")
None

# %% [markdown]
# **Zero bubble** splits each backward pass in two (Penghui Qi and others, *Zero Bubble Pipeline Parallelism*, 2023,
# <https://arxiv.org/abs/2401.10241>). The first part, I, computes the gradient of the input, which the previous stage
# waits for. The second part, W, computes the gradients of the weights, which no other stage needs. A stage runs I as
# soon as it can, and W when it would otherwise be idle. We use the paper's schedule ZB-H1.

# %%
zero = zero_bubble_h1(4, 8)
plot.schedule({"1F1B": one_f_one_b(4, 8), "ZB-H1": zero}, "ZB-H1 fills part of the bubble with gradients of weights")
None

# %%
schedules = {"1F1B": one_f_one_b(4, 8), "interleaved, 2 chunks a GPU": interleaved, "ZB-H1": zero}
for name, schedule in {"naive": naive(4, 8), "GPipe": gpipe(4, 8), **schedules}.items():
    done = replay(schedule)
    print(f"{name:28} makespan {done.makespan:4.1f}, bubble {done.bubble:.3f}, {max(done.peak):g} in flight at most")

# %% tags=["checked"]
# checked: the papers' formulas, and the replay agrees with virtual GPUs
done = {name: replay(schedule) for name, schedule in schedules.items()}
first, second, third = done.values()
assert abs(max(second.idle) / min(second.busy) - 3 / 16) < 1e-9 and max(second.idle) == max(first.idle) / 2
assert abs(max(third.idle) - 3 * (1 + 2 - 2 * 1)) < 1e-9
assert first.peak == [4, 3, 2, 1] and max(second.peak) == 5.5 and third.peak == [4, 4, 4, 4]
for (name, schedule), chunks in zip(schedules.items(), (1, 2, 1)):
    assert abs(run(schedule, chunks=chunks).bubble / done[name].bubble - 1) < 0.02
assert abs(run(gpipe(4, 8)).bubble / (3 / 11) - 1) < 0.02


# %% [markdown]
# The papers give formulas for the idle time. If each GPU has v chunks and m is a multiple of p, the idle time of
# interleaved 1F1B is (p - 1) / (v m) times its computing time, which is 3/16 here. With ZB-H1, a stage is idle for
# (p - 1)(F + B - 2W), where F is the time of a forward pass, B is the time of a whole backward pass, and W is the time
# of its second part, which computes the gradients of the weights.
#
# Both schedules have a price. Interleaving sends more data, because 8 parts have 7 cuts between them and 4 stages have
# only 3. It also needs more memory: the first GPU has 5.5 micro-batches in flight, whereas it has 4 with 1F1B. (A
# micro-batch that is in flight on only one of the GPU's two chunks counts as one half.) ZB-H1 has 4 micro-batches in
# flight on every stage, because W needs the activations and runs late.
#
# So far, a transfer between stages has taken no time. In the next figure, a slider sets how long a transfer takes.

# %% tags=["nbval-ignore-output"]
def try_it(schedule="interleaved-1f1b", stages=2, micro_batches=4, transfer=0.5):
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
# **Predict first.** Slow transfers delay interleaved 1F1B more than 1F1B. With 4 stages and 8 micro-batches, which of
# the two has the longer makespan if a transfer takes as long as a forward pass? And if it takes 1.5 times as long?

# %% tags=["answer"]
# answer
for transfer in (1.0, 1.5):
    plain, other = (replay(schedules[name], Costs(transfer=transfer)).makespan for name in list(schedules)[:2])
    print(f"a transfer takes {transfer}: 1F1B {plain:g}, interleaved {other:g}")

# %% [markdown]
# <details><summary>Why</summary>
#
# If transfers take no time, interleaved 1F1B is 4.5 units faster than 1F1B. Each micro-batch crosses 7 cuts instead of
# 3 in each direction, so the advantage shrinks as transfers become slower. If a transfer takes as long as a forward
# pass, interleaved 1F1B is still 3 units faster. If a transfer takes 1.5 times as long as a forward pass, interleaved
# 1F1B is 1 unit slower.
#
# </details>

# %% [markdown]
# The command `mpcourse schedule 1f1b --stages 4 --microbatches 8 --save out.svg` draws a schedule. The command
# `mpcourse schedule mine.py:my_schedule --stages 4 --microbatches 8` replays a schedule that your own function returns.
#
# A schedule that you write yourself may be impossible to run. The replay then names the first action that cannot run,
# and says why.

# %%
try:
    replay([[("F", 0), ("B", 0), ("F", 1), ("B", 1)], [("F", 1), ("F", 0), ("B", 0), ("B", 1)]])
except IllegalAction as error:
    print(error)

# %% [markdown]
# ## Is it still the same training?
#
# The next cell cuts 8 examples into micro-batches of 3, 3 and 2, and runs them on three stages. The loss of each
# micro-batch is weighted by its number of examples, and the gradients of all micro-batches are added. So the loss and
# the gradients are equal to the loss and the gradients of the whole batch.

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
# Exercise [`e04_pipeline_step`](../exercises/e04_pipeline_step.py): run a schedule yourself. It is the longest exercise
# so far.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e04_pipeline_step

# %% [markdown]
# ## What does change: batch norm
#
# Batch norm computes the mean and the variance of its input. In a pipeline, this input is a single micro-batch. This
# has two effects. Batch norm updates its running mean and variance once for each micro-batch, and it normalises each
# example by the mean and the variance of its micro-batch only.

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

# %% tags=["checked"]
# checked: deferred statistics are right, outputs of batch norm differ, and outputs of layer norm do not
torch.testing.assert_close(later, whole.running_var, rtol=1e-4, atol=1e-4)
assert (whole(batch)[:4] - pieces(batch[:4])).abs().max() > 0.1
layer_norm = nn.LayerNorm(3)
torch.testing.assert_close(layer_norm(batch)[:4], layer_norm(batch[:4]))

# %% [markdown]
# The true variances are 1, 4 and 9. The running variances begin at 1, and each forward pass moves them a tenth of the
# way to the variances of its input. Training without a pipeline moves them once per batch, and a pipeline should do the
# same. `defer_batch_norm` collects the statistics of the whole batch and then updates the running statistics once, as
# the library torchgpipe does.
#
# The second effect remains. Each example is normalised with 3 others instead of 63, so a network with batch norm learns
# something different in a pipeline. Layer norm normalises each example by itself, so a pipeline does not change it.
#
# ## The tutorial, replayed
#
# Now we return to the tutorial with which this lesson began. It does not name its GPUs. We take two Tesla P100 GPUs
# joined by NVLink, and slow both down by the same factor, so that one GPU takes 3.75 s, as in the tutorial. All other
# times are predicted.
#
# The time that the tutorial measures does not cover three complete steps. In each step, the copy of the labels to the
# GPU waits for the forward pass, but nothing waits for the last backward pass. The time therefore contains three
# forward passes and two backward passes, on one GPU as well as on two. On the virtual GPUs, we measure the same passes.
# In the measured time, the tutorial also generates random images on the CPU. We leave this work out.

# %%
pair = slowed_to_the_tutorial(GPUS["Tesla P100-SXM2"], "NVLink 1")
published = PIPELINE_TUTORIAL.pipelined
sizes = [size for size in sorted(published) if size > 1]
found = tutorial_seconds(pair, "NVLink 1", ["single", "model parallel", *sizes])
print("                    ours   published")
print(f"one GPU            {found['single']:5.2f}   {PIPELINE_TUTORIAL.single:5.2f}   (fitted)")
for name, run_as, theirs in [
    ("cut in two", "model parallel", PIPELINE_TUTORIAL.model_parallel),
    *((f"splits of {size:2}", size, published[size]) for size in sizes),
]:
    print(f"{name:12}       {found[run_as]:5.2f}   {theirs:5.2f}   {found[run_as] / theirs - 1:+.0%}")
crossed = (3 + 2) * 120 * 512 * 16 * 16 * 4  # bytes: passes, images, channels, positions, float32
implied = crossed / (PIPELINE_TUTORIAL.model_parallel - PIPELINE_TUTORIAL.single)
print(f"{crossed / 1e6:.0f} MB cross the cut; in the tutorial's additional 0.27 s that is {implied / 1e9:.1f} GB/s")

# %% tags=["checked"]
# checked: the optimum, and how far each time is off
assert implied < 12e9 / 10 and 0.001 < found["model parallel"] / found["single"] - 1 < 0.003
best = min(sizes, key=found.get)
assert best in (10, 12) and min(sizes, key=published.get) == 12
assert abs(found[10] / found[12] - 1) < 0.01 and abs(published[10] / published[12] - 1) < 0.03
assert all(0.07 < 1 - found[size] / published[size] < 0.115 for size in sizes if size >= 10)
assert 0.145 < 1 - found[8] / published[8] < 0.155 and 1 - found[3] / published[3] > 0.3
assert found[5] < 1.1 * found[10]

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
# Our best split sizes are the same as the tutorial's. Splits of 10 and of 12 images are the fastest, and their times
# differ from each other by less than 1 % here and by less than 3 % in the tutorial. With large splits, the second GPU
# waits longer for its first input. With small splits, each GPU must more often read all weights and add to all
# gradients.
#
# Three results differ from the tutorial's.
#
# - Without splits, the network is slower on two GPUs than on one, by 0.2 % here and by 7 % in the tutorial. The
#   tutorial's explanation is that tensors are copied between the GPUs. In the measured time, 315 MB cross the cut. If
#   the copies took the additional 0.27 s, they would run at 1.2 GB/s, a tenth of the speed of PCIe 3.0. So the copies
#   do not explain the 7 %, and we do not know the cause.
# - With splits of 10 images or more, our pipeline is 7 % to 11 % too fast, and with splits of 8 images it is 15 % too
#   fast. (Most of the tutorial's times are read off its figure.)
# - With splits of 5 and of 3 images, our pipeline is 22 % and 34 % too fast. A virtual GPU computes 5 images in about
#   half the time that it needs for 10. A real GPU needs more than half of that time, because so few images do not
#   occupy all its units. We also assume that the host launches a kernel in 8 µs; the tutorial's host may need longer.
#
# The authors of torchgpipe have published its speedups on up to eight GPUs. The
# [appendix](appendix/04_memory_and_torchgpipe.ipynb) compares them with our replay.
#
# ## Two real ranks
#
# The same schedules run over MPI. Each rank has one stage, and ranks send tensors as messages. Two processes without a
# GPU are enough. They train on real images of digits, and record when they compute.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)
files = "--save scratch/ranks.svg --json scratch/ranks.json"
program = "mpcourse.course.examples.pipeline"
# !mpirun -np 2 python -m {program} --schedule 1f1b --microbatches 8 --epochs 6 --width 768 {files}

# %% tags=["nbval-ignore-output"]
record = json.loads(Path("scratch/ranks.json").read_text())
measured = Execution.from_dict(record["measured"])
in_turn, at_once, together = record["alone"]["in_turn"], record["alone"]["at_once"], sum(measured.busy)
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
print(f"measured / predicted: {computing:.2f} (computing) x {waiting:.2f} (bubble) = {computing * waiting:.2f}")

# %% tags=["checked"]
# checked: the ranks ran 1F1B and learned what one process learns, and the two factors multiply to the whole ratio
assert [[t.action for t in row] for row in measured.stages] == one_f_one_b(2, 8)
assert record["difference"] < 1e-2 and record["losses"][-1] < record["losses"][0]
assert abs(computing * waiting - measured.makespan / alone.makespan) < 1e-9

# %% [markdown]
# The prediction uses only the schedule and the time that one process needs for the same micro-batches. The measured
# step takes longer than predicted for two reasons, and the last line shows a factor for each. First, the two ranks
# together spend more time on computing than one process does, perhaps because they share memory bandwidth and the
# last-level cache. Second, the bubble is larger, because micro-batches do not take equally long on a CPU, and a delay
# on one stage delays the other stage. If a factor is far above 1, another program is using the cores. Close it, and run
# the cells again.
#
# The speedup is relative to one process that computes the same micro-batches. A process that computes the whole batch
# at once is faster than this one, because matrix products of 512 rows use a core better than products of 64 rows.
#
# ## The same in PyTorch
#
# `torch.distributed.pipelining` has the same schedules. Each process makes a `PipelineStage` of its own layers and
# calls `step` on the schedule. The first process gives the input to `step`, and the last process gives it the target.
# With `ScheduleGPipe` instead of `Schedule1F1B`, the program runs GPipe.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/pipeline.py
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("gloo")  # or "nccl", with a GPU for each process
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(6)]).double()
x, target = torch.randn(8, 6).double(), torch.randn(8, 6).double()

part = layers[3 * rank : 3 * rank + 3]
stage = PipelineStage(part, rank, size, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
if rank == 0:
    schedule.step(x)
else:
    losses = []
    schedule.step(target=target, losses=losses)
    print(f"loss {torch.stack(losses).mean():.12f}, gradient of a weight {part[0][0].weight.grad[0, 0]:.12f}")
dist.destroy_process_group()

# %%
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/pipeline.py 2> scratch/torchrun.log
print(f"here {loss.item():.12f}, gradient of a weight {wanted[6][0, 0].item():.12f}")  # of layers[3][0]

# %% [markdown]
# The network and the data are those of the section "Is it still the same training?", and the program prints the same
# loss and the same gradient. PyTorch divides the summed gradients by the number of micro-batches (`scale_grads=True`),
# which is right only if all micro-batches have the same size. Our `pipeline_step` weights each micro-batch by its size.
#
# `mpcourse bench pipeline --np 2` measures our pipeline beside PyTorch's.
#
# ## The reference implementation
#
# These are the library's functions, without their docstrings. The links open the files.

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
# This lesson leaves out pipelines that do not empty before the optimizer step (PipeDream). Their stages train with
# weights from different steps, and lesson 07 studies what old weights cost. Lesson 12 combines pipelines with other
# kinds of parallelism.
#
# ## Problems
#
# **1.** How many micro-batches does a pipeline of 8 stages need for a bubble below 10 %, with 1F1B and with interleaved
# 1F1B with two chunks per GPU?
#
# **2.** A model runs on 16 stages, and each stage has memory for the activations of 8 micro-batches. Can 1F1B run 64
# micro-batches?

# %% tags=["answer"]
# answer
for name, make in (("1F1B", one_f_one_b), ("interleaved", lambda p, m: interleaved_one_f_one_b(p, m, 2))):
    needed = next(m for m in range(8, 200, 8) if replay(make(8, m)).bubble < 0.1)
    print(f"1. {name}: {needed} micro-batches, bubble {replay(make(8, needed)).bubble:.3f}")
print(f"2. No: the first stage has {replay(one_f_one_b(16, 64)).peak[0]:g} micro-batches in flight, and memory for 8")

# %% [markdown]
# ## What you found
#
# - With p stages and m micro-batches, the bubble of GPipe and 1F1B is (p - 1) / (m + p - 1).
# - With 1F1B, a stage holds the activations of at most p micro-batches. With GPipe, it holds those of all m.
#   Interleaving and zero bubble make the bubble smaller, but need more traffic or memory.
# - The gradients of a pipeline are equal to the gradients of the whole batch, unless the network has batch norm.
# - In PyTorch, a pipeline consists of a schedule and one `PipelineStage` per process.
#
# Next comes lesson 05: how ranks compute a sum together.
