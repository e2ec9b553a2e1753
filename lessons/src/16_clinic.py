# %% [markdown]
# # 16 Clinic
#
# **What is wrong with this run?** About 50 minutes to read, and 245 for its exercises.
#
# In 2023, a team trained a small language model of source code. With each layer cut over GPUs, the validation loss
# after 5000 steps was 3.74. Without cutting, it was 2.64 [1]. No error was reported. They printed the means of the
# weights of each layer on each rank. The means were equal on all ranks. At last they found that a gradient was summed
# over the ranks in the wrong place.
#
# Many faults of distributed training report no error. Some stop the job without a message, some make it slow, and some
# only make the trained model worse. This lesson shows the tools for finding them. For each tool, it solves one case. In
# the exercises, you find the faults of twelve other programs.
#
# After this lesson you can
#
# - for a job that hangs, say in which line each rank is, and for which call it waits;
# - read traces of several ranks, and say who waits for whom;
# - find the first step, the rank and the tensor in which a run differs from a correct run;
# - name the cause from the evidence before you change anything.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("16_clinic")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import re
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data_parallel.resilience.traces import explain, read_rank
from mpcourse.models import mlp
from mpcourse.virtual import Event, compute, run, virtual_gpus

DATA = digits()
torch.set_num_threads(1)
Path("scratch").mkdir(exist_ok=True)

# %% [markdown]
# ## Look before you change
#
# Somebody whose job is broken wants to change something: lower the learning rate, add a barrier, raise the timeout.
# Such a change often moves the fault to another place, and the evidence is gone. In this lesson, we work in this order:
#
# 1. Write down what you see, and what you would see if all were well.
# 2. List causes that could explain it. For each cause, write down what else you would see if it were the right one.
#    Choose something that you have not looked at yet.
# 3. Look. Strike out each cause that the evidence contradicts, until one is left.
# 4. Only then mend the program, and show that the symptom is gone, and that nothing else has changed.
#
# The table says, for each symptom, what to look at first.
#
# | what you see | what to look at |
# |---|---|
# | nothing moves | in which line each rank is, and in which collective call |
# | a step is slow | what each rank and its GPU did in one step, with the times of all ranks on the same clock |
# | the loss is too high | the same steps in one process |
# | the memory runs out after many steps | which tensors are alive after each step |
#
# ## Nothing moves
#
# In the next program, two ranks compute the mean of their data, but rank 1 has no data. `faulthandler` belongs to
# Python. After three seconds, it prints the line that the process is executing, and ends the process.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/waits.py
import faulthandler

import numpy as np
from mpi4py import MPI

faulthandler.dump_traceback_later(3, exit=True)
comm = MPI.COMM_WORLD
values = np.ones([800, 0][comm.rank])
mean = sum(values) / len(values)
total = comm.allreduce(mean)
print(f"rank {comm.rank}: {total / comm.size}")

# %% [markdown]
# **Predict first.** Which ranks print something, and what? How does this change with `python -m mpi4py`?

# %% tags=["answer", "nbval-ignore-output"]
# answer
# plain = !timeout 30 mpirun -np 2 python scratch/waits.py
print(*(line.replace(f"{Path.cwd()}/", "") for line in plain), sep="\n")
print("\nWith -m mpi4py:")
# guarded = !timeout 30 mpirun -np 2 python -m mpi4py scratch/waits.py
print(*(line for line in guarded if "Error" in line or "Abort" in line), sep="\n")

# %% [markdown]
# <details><summary>Why</summary>
#
# Rank 1 raises an error. But a process that has started MPI waits for all others before it ends, and rank 0 waits in
# line 10 for rank 1. Without `faulthandler`, both would wait for ever. (The command `timeout` also ends them if
# `mpirun` itself hangs.) In the output of a thousand ranks, the error is hard to find among many thousand lines. With
# `-m mpi4py`, the first error ends all ranks.
#
# </details>
#
# **The fault is seldom in a rank that waits.** Most ranks wait in the same line. The interesting rank is the one that
# is in another line, or that has ended. So the first question is where *each* rank is.
#
# If a program is already running, `py-spy dump --pid 9021` prints the lines that process 9021 is executing. The program
# does not change, but py-spy needs permission to read another process ([debugging ranks](../docs/debugging.md)). The
# first of the twelve exercises has this output of py-spy for three ranks.

# %% tags=["nbval-ignore-output"]
print(Path("../exercises/evidence/e16_stops/py-spy.txt").read_text())


# %% [markdown]
# Exercise [`e16_stops`](../exercises/e16_stops.py): with three ranks, a training hangs at the end of the first epoch;
# with two ranks, it does not.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e16_stops

# %% [markdown]
# ## How to read traces
#
# A **trace** lists what each rank did, and when. `torch.profiler` writes one file for each rank, and
# <https://ui.perfetto.dev> draws it. The next figures show four runs that lose much time. In A, B and C, two ranks
# compute (coloured). Thin lines are all-reduces, in which a rank waits for the other one or for messages. D shows a GPU
# and its host.

# %%
def three_steps(comm, milliseconds, megabytes):
    """Compute as long as milliseconds[rank][step] says, and sum so many megabytes: three times."""
    gradients = np.ones(int(megabytes * 1e6 / 8))
    for step in range(3):
        compute(comm, milliseconds[comm.rank][step] / 1e3)
        comm.Allreduce(gradients.copy(), gradients)


def launches():
    """Train a small MLP on a GPU for a step."""
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        model = mlp((64, 64, 64, 10)).to("vgpu:0")
        images = torch.ones(16, 64, device="vgpu:0")
        torch.vgpu.synchronize()
        box.reset()
        model(images).square().mean().backward()
        torch.vgpu.synchronize()
    return box


def ranks(milliseconds, megabytes=0.1):
    return run(partial(three_steps, milliseconds=milliseconds, megabytes=megabytes), 2).events


runs = {
    "A": ranks([(40, 60, 40), (60, 40, 60)]),
    "B": ranks([(40, 40, 40), (60, 60, 60)]),
    "C": ranks([(40, 40, 40), (40, 40, 40)], 24),
}
box = launches()
plot.timeline(runs, "Three runs of two ranks: where is the time lost?")
plot.timeline({"D": box}, "A step on one GPU: where is the time lost?")
None

# %% [markdown]
# **Predict first.** Which run has a slow rank, which one has **skew** (the ranks are slow in turn), which one has
# **exposed messages** (nothing is computed while they travel), and which one is **launch-bound** (the GPU waits for the
# host)? Which of them would become faster if messages took no time?

# %% tags=["answer"]
# answer
for name, events in runs.items():
    waits = [sum(e.seconds for e in events if e.lane == f"rank {r}" and e.kind == "wait") for r in (0, 1)]
    end = max(e.end for e in events)
    shares = ", ".join(f"rank {r} {wait / end:.0%}" for r, wait in enumerate(waits))
    print(f"{name}: {1e3 * end / 3:.0f} ms a step; in all-reduces: {shares} of the time")
busy = sum(e.seconds for e in box.events if e.kind == "compute")
took = max(e.end for e in box.events) - min(e.start for e in box.events)
print(f"D: the GPU computes for {busy / took:.0%} of the time")


# %% [markdown]
# <details><summary>Why</summary>
#
# A has skew, B a slow rank, and C exposed messages; D is launch-bound. Only C would become faster. In B, rank 0 spends
# a third of its time in all-reduces, and yet the network is idle: rank 0 waits for rank 1. **In the trace of rank 0
# alone, B and C look alike.** One has to compare the ranks: in B, rank 1 is hardly ever in an all-reduce; in C, both
# ranks are in it at the same time. In A, the ranks wait in turn: the late rank changes from step to step. The remedy
# for A is to give all ranks equally much work in each step.
#
# </details>
#
# On an H200, we recorded two trainings with `torch.profiler` ([how exact virtual GPUs are](../docs/virtual_gpus.md)).
# With 32 layers of 64 units, a step took 17.9 ms, and the GPU computed for 1.3 ms of them: Python could not launch
# kernels faster. With 8 layers of 4096 units and a batch of 8192, the GPU computed for 99.8 % of a step.
#
# Move the sliders. By how many milliseconds must rank 1 be slower, so that waiting for it takes as long as messages of
# 24 MB? (20.)

# %% tags=["nbval-ignore-output"]
def try_it(slower=10, megabytes=24):
    events = ranks([(40,) * 3, (40 + slower,) * 3], megabytes)
    end = max(e.end for e in events)
    return plot.timeline(events, f"Rank 1 computes {slower} ms longer, {megabytes} MB: {1e3 * end / 3:.0f} ms a step")


plot.sliders(try_it, slower=[0, 5, 10, 20, 40], megabytes=[1, 8, 24, 48])

# %% [markdown]
# Two of the twelve exercises come with traces.
#
# - [`e16_accumulate`](../exercises/e16_accumulate.py): accumulating gradients saves no time.
# - [`e16_idle`](../exercises/e16_idle.py): a GPU is idle for a quarter of the time.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e16_accumulate
# !mpcourse check e16_idle

# %% [markdown]
# ## The same in PyTorch: which call, and where the time goes
#
# The next program has three faults to choose from. The ranks give an all-reduce tensors of different shapes, or rank 1
# skips an all-reduce, or rank 1 comes late to a barrier.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/calls.py
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json

dist.init_process_group("gloo", timeout=timedelta(seconds=5))
rank = dist.get_rank()
numbers = {"shape": [1, 10], "skip": [1, 0], "late": [1, 1]}[sys.argv[1]][rank]
try:
    dist.all_reduce(torch.ones(4))
    if sys.argv[1] == "late":
        time.sleep(3 * rank)
        dist.monitored_barrier(timeout=timedelta(seconds=1))
    if numbers:
        dist.all_reduce(torch.ones(numbers))
except RuntimeError as error:
    print(f"rank {rank}: {' '.join(str(error).split())}")
if "TORCH_FR_BUFFER_SIZE" in os.environ:
    for call in json.loads(_dump_fr_trace_json())["entries"]:
        print(f"rank {rank}, call {call['collective_seq_id']}: {call['profiling_name']} {call['input_sizes']}")
os._exit(0)

# %% [markdown]
# A second program trains a model with DistributedDataParallel (DDP). Loading a batch takes 30 ms longer on rank 1.
# `torch.profiler` records three steps.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/traced.py
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import profile, schedule

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with profile(schedule=schedule(wait=1, warmup=1, active=3), acc_events=True) as profiler:
    for _ in range(5):
        time.sleep(0.03 * rank)
        optimizer.zero_grad()
        model(torch.randn(512, 256)).square().mean().backward()
        optimizer.step()
        profiler.step()
profiler.export_chrome_trace(f"scratch/rank{rank}.json")
dist.barrier()
os._exit(0)

# %% [markdown]
# **Predict first.** Run the first program with `shape`. What does each rank print without further settings, and what
# with `TORCH_DISTRIBUTED_DEBUG=DETAIL`? In the trace of the second program, are the 30 ms of rank 1 counted as
# computing, waiting or idle?

# %% tags=["answer", "nbval-ignore-output"]
# answer
calls = "torchrun --local-addr localhost --standalone --nproc-per-node 2 scratch/calls.py"
# !{calls} shape > scratch/plain 2>&1
# !TORCH_DISTRIBUTED_DEBUG=DETAIL {calls} shape > scratch/DETAIL 2> scratch/log
# !TORCH_FR_BUFFER_SIZE=100 {calls} skip > scratch/recorder 2> scratch/log
# !{calls} late > scratch/late 2> scratch/log
# !torchrun --local-addr localhost --standalone --nproc-per-node 2 scratch/traced.py 2> scratch/log
# !mpcourse trace scratch/rank0.json scratch/rank1.json > scratch/trace
for title in ("plain", "DETAIL", "recorder", "late", "trace"):
    lines = Path("scratch", title).read_text().splitlines()
    found = [line for line in lines if title == "trace" or line.startswith("rank ") or "enforce fail" in line]
    short = (re.sub(r", TensorDtypes=.*?\)\)\)", ")", line)[:400] for line in found)
    print(f"-- {title} --", *short, sep="\n")

# %% [markdown]
# <details><summary>Why</summary>
#
# Without further settings, gloo receives on rank 0 more bytes than it expects, and ends this process. Rank 1 reports
# only that its connection was reset. This does not tell the cause. With `TORCH_DISTRIBUTED_DEBUG=DETAIL`, the ranks
# first exchange a description of each call: its number, its kind, and the shape and dtype of its tensor. (PyTorch calls
# it a fingerprint, which is not that of lesson 15.) Both ranks then report both calls. This needs more messages before
# each call. Use it to find a fault, and not in normal training.
#
# The **flight recorder** keeps a list of the last calls of each rank in memory, here of at most 100. Rank 0 has made
# call 2, and rank 1 has not. With NCCL, the recorder also notes when a call has started and completed. When a call
# takes longer than the timeout, each rank writes its list to a file (`TORCH_NCCL_DUMP_ON_TIMEOUT`) [2].
#
# `monitored_barrier` names the rank that did not reach the barrier within one second. The trace shows that rank 0 waits
# about 30 ms in each step for rank 1. Rank 1 does not compute 30 ms longer. It is idle for 30 ms, so its processor is
# not slow.
#
# </details>
#
# The same two traces, drawn on one axis:

# %% tags=["nbval-ignore-output"]
events = []
for trace in (read_rank(f"scratch/rank{rank}.json") for rank in (0, 1)):
    events += [Event(f"rank {trace.rank}", "compute", "compute", *span) for span in trace.computing]
    events += [Event(f"rank {trace.rank}", call.name, "wait", call.begin, call.end) for call in trace.collectives]
plot.timeline(events, "Two real ranks: rank 0 waits in an all-reduce, rank 1 has nothing to do")
None


# %% [markdown]
# Exercise [`e16_accuracy`](../exercises/e16_accuracy.py): a test on two ranks prints an accuracy of 9433 %.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e16_accuracy

# %% [markdown]
# ## The loss is too high
#
# A loss curve shows that something is wrong. It seldom shows what is wrong. To find the fault, run **the same steps in
# one process**. For this, the program must give the same results on any number of ranks. Compare the first steps,
# number by number, and find the first one that differs: in which step, on which rank, in which tensor?
#
# The next program divides a batch into four parts. One process computes all of them, one after the other, and four
# ranks compute one each. Both runs record the loss of each part in each step. The network has batch normalization. It
# is tested every ten steps.

# %%
def test(comm, model):
    """Return the accuracy on all test images; every rank tests a share of them."""
    model.eval()
    share = slice(comm.rank, None, comm.size)
    with torch.no_grad():
        right = int((model(DATA.test.images[share]).argmax(1) == DATA.test.labels[share]).sum())
    right = comm.reduce(right)
    if comm.rank == 0:
        model.train()
        return right / len(DATA.test)


def train(comm, test=test, steps=200, parts=4):
    """Return a dict, (step, part) -> loss of this rank's parts, and a list of the losses of the whole batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    losses, curve = {}, []
    for step in range(steps):
        if step % 10 == 5:
            test(comm, model)
        optimizer.zero_grad()
        for part in range(comm.rank, parts, comm.size):
            begin = 64 * (step % 20) + 16 * part
            images, labels = DATA.train.images[begin : begin + 16], DATA.train.labels[begin : begin + 16]
            loss = F.cross_entropy(model(images), labels) / parts
            loss.backward()
            losses[step, part] = loss.item()
        for p in model.parameters():
            p.grad = torch.from_numpy(comm.allreduce(p.grad.numpy()))
        optimizer.step()
        curve.append(comm.allreduce(sum(losses[step, part] for part in range(comm.rank, parts, comm.size))))
    return losses, curve


(expected, one), *_ = run(train, 1).results
results = run(train, 4).results
found = {key: loss for losses, _ in results for key, loss in losses.items()}
curves = {"one process": one, "four ranks": results[0][1]}
curves = {name: np.reshape(curve, (-1, 20)).mean(1) for name, curve in curves.items()}
ends = list(range(20, 201, 20))
figure = plot.lines(ends, curves, "step", "loss, mean of 20 steps", "Four ranks learn less", log=False, log_y=True)

# %% [markdown]
# **Predict first.** In which step do the losses first differ, and on which ranks? What does this say about the cause?

# %% tags=["answer"]
# answer
differing = [key for key in expected if abs(found[key] - expected[key]) > 1e-6]
first = min(step for step, _ in differing)
parts = [part for step, part in differing if step == first]
print(f"steps 0 to {first - 1}: equal. Step {first}: parts {parts} differ")
print("step 5, one process:", *(f"{expected[5, part]:.4f}" for part in range(4)), "and four ranks:", end=" ")
print(*(f"{found[5, part]:.4f}" for part in range(4)))

# %% [markdown]
# <details><summary>Why</summary>
#
# Steps 0 to 4 are equal, so the division of the data, the first weights, the mean of the gradients and the learning
# rate are right. The first difference is in step 5, directly after the first test, and on all ranks but rank 0. Rank
# 0's loss is still right, so its weights are. The test must have changed something else on the other ranks: the mode of
# the model. `model.train()` is in the branch of rank 0, and on all other ranks batch normalization stays in evaluation
# mode for the rest of the training. From step 6 on, rank 0's loss is wrong, too, because the averaged gradients are. In
# one process, the program is right, because its only rank is rank 0.
#
# </details>

# %% tags=["checked"]
# checked: equal before the first test, then ranks 1 to 3 differ; a test that restores the mode on all ranks mends it
assert [key for key in differing if key[0] <= 5] == [(5, 1), (5, 2), (5, 3)]


def restored(comm, model):
    test(comm, model)
    model.train()


mended = {key: loss for losses, _ in run(partial(train, test=restored), 4).results for key, loss in losses.items()}
assert all(abs(mended[key] - expected[key]) < 1e-5 for key in expected)
assert np.mean(results[0][1][-20:]) > 1.2 * np.mean(one[-20:])

# %% [markdown]
# If the losses do not show where the fault is, compare the norms of the gradients before and after averaging, and the
# fingerprints of the parameters (lesson 15). In seven of the twelve exercises, a training gives a wrong result. For six
# of them, the evidence has the loss of the run and the expected loss.
#
# - [`e16_no_gain`](../exercises/e16_no_gain.py): four ranks gain nothing over one.
# - [`e16_plateau`](../exercises/e16_plateau.py): the loss stops falling after a quarter of the run.
# - [`e16_padding`](../exercises/e16_padding.py): with padded sequences, the loss of four ranks ends higher.
# - [`e16_pipeline`](../exercises/e16_pipeline.py): the loss of a pipeline ends a little higher.
# - [`e16_drift`](../exercises/e16_drift.py): replicas drift apart.
# - [`e16_average`](../exercises/e16_average.py): the mean of the weights after the last ten epochs is no better than
#   the last weights.
# - [`e16_checkpoint`](../exercises/e16_checkpoint.py): sometimes a checkpoint cannot be loaded.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e16_no_gain
# !mpcourse check e16_plateau
# !mpcourse check e16_padding
# !mpcourse check e16_pipeline

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e16_drift
# !mpcourse check e16_average
# !mpcourse check e16_checkpoint

# %% [markdown]
# ## The memory runs out after many steps
#
# Each step needs the same memory, so what is allocated *after* each step should stay the same. Print it after each step
# (`torch.cuda.memory_allocated()`). If it grows, find out which tensors are still in memory. Here, a user wants to know
# how large the outputs of the first layer become in an epoch.

# %%
with virtual_gpus(1, "Tesla P100-SXM2", dry=True) as box:
    model, kept, after = mlp((64, 1000, 10)).to("vgpu:0"), [], []
    model[1].register_forward_hook(lambda layer, inputs, output: kept.append(output))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(30):
        images, labels = torch.ones(256, 64, device="vgpu:0"), torch.zeros(256, dtype=torch.int64, device="vgpu:0")
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        after.append(torch.vgpu.memory_allocated() / 2**20)
    alive = Counter((block.name, block.shape) for block in box.ledger.live.values())
print("MiB after steps 1, 2, 3, ...:", *(f"{mib:.1f}" for mib in after[:6]), "...", f"{after[-1]:.1f}")

# %% [markdown]
# **Predict first.** What grows by nearly 1 MiB in each step? Which tensors are still in memory after 30 steps?

# %% tags=["answer"]
# answer
for (name, shape), times in alive.most_common(4):
    print(f"{times:3} of {str(shape):12} made by {name}")

# %% [markdown]
# <details><summary>Why</summary>
#
# The hook keeps the output of the layer in each step: 256 times 1000 numbers. All other activations of a step are freed
# before the next step. If the hook keeps `output.detach().max()` instead, this is one number for each step. On a real
# GPU, `torch.cuda.memory._record_memory_history()` and `torch.cuda.memory._dump_snapshot()` list the tensors in memory,
# each with the line that made it, and <https://pytorch.org/memory_viz> draws them.
#
# </details>

# %% tags=["checked"]
# checked: one output of the layer more in each step, 4 bytes a number
assert np.allclose(np.diff(after), 4 * 256 * 1000 / 2**20) and alive["addmm", (256, 1000)] == 30

# %% [markdown]
# Exercise [`e16_memory`](../exercises/e16_memory.py): the memory of a GPU runs out after 40 steps.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e16_memory

# %% [markdown]
# ## The twelve cases
#
# Each program contains a fault that people have reported in public. After you have mended it, the file
# `mpcourse/course/check/cases/e16_NAME.py` tells you who did. Each program has 25 to 75 lines of code, and a folder
# with evidence, `exercises/evidence/e16_NAME`. First choose a cause in `diagnose`. If the evidence contradicts this
# cause, the check says which line of the evidence does. Then mend the program. A repair must give the right result on
# every number of ranks, must not hang, and must not cost more messages, memory or waiting than needed.
#
# [Running a large job](../docs/running_a_large_job.md) is a checklist for a large job: for its plan, its first runs,
# its failures and the report.
#
# ## The reference implementation

# %%
from mpcourse.common.source import reference

reference(explain)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `faulthandler` | `py-spy dump`; gdb on MPI ranks |
# | flight recorder | `TORCH_FR_BUFFER_SIZE` (before: `TORCH_NCCL_TRACE_BUFFER_SIZE`), analysed by `torchfrtrace` |
# | description of each call | `TORCH_DISTRIBUTED_DEBUG=DETAIL`; `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=COLL` |
# | `mpcourse trace` | Holistic Trace Analysis; Nsight Systems |
# | the same steps in one process | parity test; Megatron-LM compares losses with stored "golden values" |
#
# 1. Issue 35 and pull request 37 of bigcode-project/Megatron-LM on GitHub
# 2. PyTorch documentation, *Flight Recorder for Debugging Stuck Jobs*,
#    <https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html>
#
# ## A problem
#
# A job of 1024 ranks hangs twice a day. Each time, NCCL ends it after its timeout of 10 minutes, and a restart takes 5
# more minutes. (Leave out the work since the last checkpoint.) The flight recorders say that the last call of 1023
# ranks is number 48 213, which has not completed. The last call of rank 617 is number 48 212, which has. Where do you
# look, and which share of the time would a timeout of one minute save?

# %% tags=["answer"]
# answer
lost = [2 * (timeout + 5) / (24 * 60) for timeout in (10, 1)]
print("At rank 617, and at what it does between its calls 48 212 and 48 213.")
print(f"With a timeout of 1 minute, hangs cost {lost[1]:.1%} of the time instead of {lost[0]:.1%}.")

# %% [markdown]
# ## What you found
#
# - In a job that hangs, most ranks wait correctly. Look for the rank that is in another line or another call, and start
#   programs so that the first error ends all of them.
# - The trace of one rank does not show whether it waits for others or for messages. The traces of two ranks show it, if
#   their times are on the same clock.
# - Find the first step in which a run differs from one process. Its number, rank and tensor say more than a whole loss
#   curve.
# - What is allocated after each step should stay the same. If it grows, count which tensors are in memory.
# - Name the cause before you change anything. Each of the twelve programs has one fault. Many changes hide it without
#   removing it.
#
# Next, take the twelve cases, in any order. Or take a program of your own, and write down what you would see if all
# were well.
