# %% [markdown]
# # 15 Failures
#
# **What is a job worth if a machine dies every three hours?** About 55 minutes to read, and 110 for its exercises.
#
# In 2024, Meta trained Llama 3 405B on 16 384 GPUs [1]. Within 54 days, the training was interrupted 466 times. Only 47
# of the interruptions were planned. Yet more than 90 % of the time went into steps that no failure undid. How is this
# possible? And what about errors that do not interrupt a job at all?
#
# After this lesson you can
#
# - predict how often a job will stop, and say how often it should save;
# - say what a checkpoint must hold, and continue on another number of ranks without losing an example;
# - run a PyTorch job that survives the death of its ranks;
# - find a slow rank, and say what it costs;
# - find a rank that computes wrongly, and say which errors no comparison will show.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("15_failures")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import json
import random
import shutil
from functools import partial
from math import log
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data import published_failures as published
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.data_parallel.resilience import (
    Checkpoints,
    StepSampler,
    differing_replicas,
    flip,
    lost,
    replay,
    simulate,
    stragglers,
    time_between_failures,
    young,
)
from mpcourse.models import mlp
from mpcourse.virtual import compute, run

DATA = digits()
MINUTE, HOUR = 60, 3600
torch.set_num_threads(1)

# %% [markdown]
# ## Why jobs stop
#
# Table 5 of the paper [1] lists the causes of the 419 interruptions that were not planned.

# %%
for cause in published.LLAMA_3:
    print(f"{cause.component:32} {cause.category:22} {cause.times:3} times, printed as {cause.percent:4} %")

# %% [markdown]
# **Predict first.** One of the percentages contradicts its own count. Which one?

# %% tags=["answer"]
# answer
every = sum(cause.times for cause in published.LLAMA_3)  # 419, as printed
for cause in published.LLAMA_3:
    if abs(100 * cause.times / every - cause.percent) > 0.06:
        print(f"{cause.component}: {cause.times} of {every} is {cause.times / every:.1%}, not {cause.percent} %")
of_gpus = sum(cause.times for cause in published.LLAMA_3 if cause.category == "GPU")
print(f"GPUs: {of_gpus} of {every} is {of_gpus / every:.1%}")

# %% [markdown]
# <details><summary>Why</summary>
#
# The counts add up to 419, and all other percentages fit. The paper's text says that 58.7 % come from GPUs. This is the
# sum of the printed percentages, so it contains the same mistake: the counts of GPUs give 64.0 %.
#
# </details>
#
# ## How long until the next failure?
#
# One failure of any machine stops the whole job. If each of n machines fails independently and equally often, the job
# fails n times as often as one machine. The **mean time between failures** M of the job is that of one machine, divided
# by n. Operators count failures per 1000 **node-days**: a node is a machine, here with 8 GPUs, and 1000 nodes running
# for a day are 1000 node-days.

# %%
days, nodes = published.LLAMA_3_DAYS, published.LLAMA_3_GPUS // 8
llama = days * 24 * HOUR / every  # seconds between two failures
rates = {"Llama 3": 1000 * every / (nodes * days), "Kokolis": published.KOKOLIS_PER_1000_NODE_DAYS}
for n in published.BLOOM_FAILURES_A_WEEK:
    rates[f"BLOOM, {n} a week"] = 1000 * n / (7 * (published.BLOOM_GPUS // 8))
print(f"Llama 3: a failure every {llama / HOUR:.2f} hours on {nodes} nodes")
print(*(f"{name:15} {rate:.1f} failures per 1000 node-days" for name, rate in rates.items()), sep="\n")

# %% [markdown]
# These rates are near each other, although BLOOM's counts failures of GPUs alone: from 3 to 6.5 failures per 1000
# node-days [1-3]. Kokolis and others also measured how long jobs ran before a failure stopped them: 47.7 days on 8
# GPUs, and 7.9 hours on 1024 GPUs.
#
# **Predict first.** What does their rate of 6.5 predict for 8 and for 1024 GPUs? If it is wrong, is the rule 1 / n
# wrong, or the rate?

# %% tags=["answer"]
# answer
sizes = [8, 128, 1024, 16_384, 131_072]
by_rate = [time_between_failures(published.KOKOLIS_PER_1000_NODE_DAYS, n // 8) / HOUR for n in sizes]
from_one = [published.KOKOLIS_MEASURED[8] * 8 / n for n in sizes]
kinds = {"measured": published.KOKOLIS_MEASURED, "projected": published.KOKOLIS_PROJECTED}
figure = plot.lines(
    sizes, {}, "GPUs", "hours between failures", "Measured jobs fail three times as often as projected ones",
    log_y=True,
    formulas={"6.5 failures per 1000 node-days": by_rate, "1 / n, through the measured 8 GPUs": from_one},
    single={f"{kind}, {n} GPUs": (n, hours) for kind, points in kinds.items() for n, hours in points.items()},
)  # fmt: skip
for n, hours in published.KOKOLIS_MEASURED.items():
    print(f"{n:4} GPUs: predicted {by_rate[sizes.index(n)]:6.1f} h, measured {hours:6.1f} h", end=", ")
    print(f"so {1000 * 24 / (n // 8) / hours:.1f} failures per 1000 node-days")

# %% [markdown]
# <details><summary>Why</summary>
#
# From 8 to 1024 GPUs, the measured time falls from 47.7 days to 7.9 hours. The rule 1 / n gives 8.9 hours, so it is
# nearly right. But the measured jobs stop more than three times as often as the rate says, while the paper's
# projections for larger jobs follow from the rate. So the rate and the measured times probably do not count the same
# events. (We know the paper from quotations [3], which do not say more.) So ask what a published rate counts, and
# measure that of your own jobs.
#
# </details>
#
# ## How often should the job save?
#
# After a failure, a job starts again from its last checkpoint, a file with all of its state. Let the job compute for t
# seconds between two checkpoints, and let a checkpoint take d seconds.
#
# - Saving costs d / t of the time, if d is much shorter than t.
# - There is a failure every M seconds, at a random moment. On average, it destroys half an interval of computing. This
#   costs t / 2 every M seconds, or t / (2 M) of the time.
# - A restart takes R seconds, and costs R / M, whatever t is.
#
# The sum d / t + t / (2 M) is smallest where its derivative is zero: d / t² = 1 / (2 M), so t = √(2 d M). This is
# **Young's interval** [4]. Both costs are then equal, and together they are √(2 d / M).
#
# **Predict first.** Let a job fail every 3.09 hours, as Llama 3 did. If a checkpoint takes 30 seconds and a restart 5
# minutes, how often should the job save, and which share of the time is lost?

# %% tags=["answer"]
# answer
save, restart = 30, 5 * MINUTE
t = young(save, llama)
first_order = save / t + t / (2 * llama) + restart / llama
print(f"every {t / MINUTE:.1f} minutes; lost {first_order:.1%}, by Daly's formula {lost(t, save, restart, llama):.1%}")

minutes = [2, 4, 8, 14, 30, 60, 120]
closed = [100 * lost(m * MINUTE, save, restart, llama) for m in minutes]
work = 40 * llama
simulated = [
    [100 * (1 - work / simulate(work, m * MINUTE, save, restart, llama, seed).seconds) for seed in range(20)]
    for m in minutes
]
figure = plot.lines(
    minutes, {"simulated, 20 seeds": simulated}, "minutes of computing between two checkpoints", "time lost (%)",
    "The minimum is flat", formulas={"Daly's formula": closed},
)  # fmt: skip
_ = figure.axes[0].set_ylim(0)

# %% [markdown]
# <details><summary>Why</summary>
#
# √(2 · 30 s · 11 135 s) is 817 s. Saving and repeated work cost 7.3 % together, and restarts 2.7 %. This sum assumes
# that at most one failure comes in an interval. Daly's formula, `lost` in our library [5], only assumes that failures
# come independently of each other. For each interval, we also drew failures at random, with 20 seeds. (The band is two
# standard errors wide to each side.) With half or twice the best interval, 11 % is lost instead of 10 %. Saving every
# two minutes or every two hours costs much more.
#
# </details>
#
# Exercise [`e15_interval`](../exercises/e15_interval.py): compute the interval, and the time at which a job is done.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e15_interval

# %% [markdown]
# ## When no interval helps
#
# **Predict first.** Again a job fails every 3.09 hours. Suppose that at most 10 % of its time may be lost. How long may
# a checkpoint take if a restart takes no time, and if it takes 10 minutes? From which restart time on does no interval
# keep 90 %?

# %% tags=["answer"]
# answer
for restart in (0, 5 * MINUTE, 10 * MINUTE):
    longest = llama / 2 * (0.1 - restart / llama) ** 2  # where √(2 d / M) + R / M is 10 %
    print(f"restart {restart / MINUTE:2.0f} min: a checkpoint may take {longest:2.0f} s")
print(f"restarts alone cost 10 % if one takes {0.1 * llama / MINUTE:.1f} min", end="; ")
print(f"by Daly's formula, if one takes {-log(0.9) * llama / MINUTE:.1f} min")


# %% [markdown]
# <details><summary>Why</summary>
#
# Restarts alone cost R / M. With R = 18.6 minutes this is 10 %, and nothing is left for checkpoints. (A failure during
# a restart ends this restart early, so the bound by Daly's formula is a minute longer.) So this is how more than 90 %
# is possible: Meta must have found failed machines quickly, started quickly, and saved in less than a minute.
#
# </details>
#
# Move the sliders: with checkpoints of 30 seconds and restarts of 15 minutes, up to how many GPUs does a job keep 90 %
# of its time? (8192.)

# %% tags=["nbval-ignore-output"]
def try_it(gpus=16_384, save=30, restart=5):
    between = time_between_failures(rates["Llama 3"], gpus // 8)
    shares = [100 * lost(m * MINUTE, save, restart * MINUTE, between) for m in minutes]
    title = f"{gpus} GPUs, a failure every {between / HOUR:.1f} h; save {save} s, restart {restart} min"
    figure = plot.lines(
        minutes, {"lost": shares}, "minutes of computing between two checkpoints", "time lost (%)", title, {"10 %": 10}
    )
    figure.axes[0].set_ylim(0, 60)
    return figure


plot.sliders(try_it, gpus=[1024, 4096, 8192, 16_384, 65_536], save=[1, 10, 30, 120], restart=[0, 5, 15, 30])

# %% [markdown]
# MegaScale trained on more than 10 000 GPUs [6]. Faults were found within 10 minutes. Within 15 minutes more, the job
# was back at the step where it had failed. More than 90 % of the time was effective. BLOOM saved every three hours [2],
# and a checkpoint took 40 seconds. Do these numbers fit our formulas?

# %%
nodes = published.MEGASCALE_GPUS // 8
between = time_between_failures(rates["Llama 3"], nodes)
share = (published.MEGASCALE_DETECT + published.MEGASCALE_CATCH_UP) / between
print(f"MegaScale, with the rate of Llama 3: a failure every {between / HOUR:.1f} h; 25 minutes each cost {share:.0%}")
for n in published.BLOOM_FAILURES_A_WEEK:
    between = 7 * 24 * HOUR / n
    t = young(published.BLOOM_SAVE, between)
    shares = [lost(each, published.BLOOM_SAVE, 0, between) for each in (t, published.BLOOM_EVERY)]
    print(f"BLOOM, {n} a week: Young's interval, {t / HOUR:.1f} h, loses {shares[0]:.1%}, and 3 h {shares[1]:.1%}")

# %% [markdown]
# With the rate of Llama 3, MegaScale's job would fail every 4.1 hours. If each failure cost the full 25 minutes, 10 %
# would be lost. More than 90 % is possible if most cost less. For BLOOM, saving alone cost 0.37 % of the time. Young's
# interval would have gained half a percent at most. (Here, restarts take no time.)
#
# In the appendix [15, checkpoints](appendix/15_checkpoints.ipynb), virtual ranks die during a training. The job takes
# exactly as long as `simulate` says for the same failures, and ends with the same bits as without failures.
#
# ## What a checkpoint must hold
#
# To end with the same bits, a job has to continue with everything that its next step depends on:
#
# - the parameters and the buffers, such as the running means of batch normalization;
# - the optimizer's state, the learning rate's schedule and the scale of a GradScaler;
# - the state of the random numbers of each rank, for dropout and augmentation;
# - the place in the data.
#
# The last point can be overlooked. In torchtitan, users lost the place in the data when a job continued on another
# number of ranks [7]. With our `StepSampler`, the examples of a step depend on the seed and the number of the step
# alone. The ranks share them, whatever their number is, and the batch of all ranks together stays the same. So the
# place in the data is one number.

# %%
for step, size in enumerate((2, 2, 3, 3)):
    samplers = [StepSampler(16, 5, rank, size) for rank in range(size)]
    for sampler in samplers:
        sampler.trained = step
    print(f"step {step}, {size} ranks:", *(next(iter(sampler)) for sampler in samplers))

# %% [markdown]
# Exercise [`e15_resume`](../exercises/e15_resume.py): take a snapshot of a job, and restore it on any number of ranks.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e15_resume

# %% [markdown]
# ## The same in PyTorch: a job that survives its ranks
#
# `torchrun --max-restarts 3` watches the processes of a job. If one of them dies, it ends the others and starts all of
# them again. The program has to find its last checkpoint by itself. In the next program, each rank writes down the
# examples that it trains on. If a file such as `kill-0-6` exists, rank 0 kills itself before step 6, once, with the
# signal that a rank gets when its machine runs out of memory.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/job.py
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from mpcourse.data_parallel.resilience import Checkpoints, StepSampler

folder, steps = Path(sys.argv[1]).resolve(), int(sys.argv[2])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# The ranks find each other by a file that is new at each start (the text below says why).
meet = f"file://{folder}/meet-{os.environ['TORCHELASTIC_RUN_ID']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
dist.init_process_group("gloo", meet, timedelta(seconds=30), rank=rank, world_size=size)
draw = torch.Generator().manual_seed(0)  # the same data on all ranks
x, y = torch.randn(40, 5, generator=draw, dtype=torch.float64), torch.arange(40.0, dtype=torch.float64) / 40
torch.manual_seed(0)  # the same model on all ranks
model = torch.nn.Linear(5, 1).double()
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
parts = {"model": model, "optimizer": optimizer, "sampler": StepSampler(len(x), 6, rank, size)}
checkpoints, sampler = Checkpoints(folder), parts["sampler"]
if (last := checkpoints.load()) is not None:
    for name, part in parts.items():
        part.load_state_dict(last.state[name])
print(f"rank {rank} of {size} begins with step {sampler.trained}")
while sampler.trained < steps:
    for chosen in sampler:
        if (kill := folder / f"kill-{rank}-{sampler.trained}").exists():
            kill.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        (model(x[chosen])[:, 0] - y[chosen]).square().sum().backward()
        count = torch.tensor(len(chosen))  # ranks may have different numbers of examples, or none
        dist.all_reduce(count)
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= count  # the mean over the examples of all ranks
        optimizer.step()
        with open(folder / f"seen-{rank}.jsonl", "a") as seen:
            print(json.dumps([sampler.trained, chosen]), file=seen)
        sampler.trained += 1
        if rank == 0 and sampler.trained % 3 == 0:
            checkpoints.save_later(sampler.trained, {name: part.state_dict() for name, part in parts.items()})
        if sampler.trained == steps:
            break
checkpoints.wait()
if rank == 0:
    print(f"sum of squares of the parameters: {sum(p.square().sum() for p in model.parameters()).item():.12f}")
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()

# %% [markdown]
# A random rank of two dies at a random step before step 10. Then the job continues on three ranks. At last, one process
# trains without any failure.

# %% tags=["nbval-ignore-output"]
folder, alone, said = Path("scratch/survives"), Path("scratch/alone"), "scratch/log"
for path in (folder, alone):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
kill = folder / f"kill-{random.randrange(2)}-{random.randrange(1, 10)}"
kill.touch()
print(kill.name)
# !torchrun --local-addr localhost --standalone --max-restarts 3 --nproc-per-node 2 scratch/job.py {folder} 10 2> {said}
# !torchrun --local-addr localhost --standalone --nproc-per-node 3 scratch/job.py {folder} 21 2> {said}
# !torchrun --local-addr localhost --standalone scratch/job.py {alone} 21 2> {said}

# %%
seen = {}
for file in sorted(folder.glob("seen-*.jsonl")):
    for line in file.read_text().splitlines():
        step, chosen = json.loads(line)
        seen.setdefault(step, {})[file.name] = chosen  # what a rank did again after a failure replaces what was lost
for epoch in range(3):
    used = [i for step in range(7 * epoch, 7 * epoch + 7) for chosen in seen[step].values() for i in chosen]
    print(f"epoch {epoch}: each of the 40 examples once: {sorted(used) == list(range(40))}")
    assert sorted(used) == list(range(40))


# %% [markdown]
# Of the steps that were kept, those of an epoch used each example once, although a rank died and the number of ranks
# changed. The parameters have the same sum of squares as those of one process. A job begins again with the last
# checkpoint that is whole: if a rank dies while its thread writes one, the checkpoint before counts.
#
# Why do the ranks use a file of their own? By default, they exchange their addresses through a store that torchrun
# keeps, and this store survives a restart. In about a third of our tries, new ranks found the address of a rank that
# had died, and tried in vain to connect to it. With a new file at each start, the job was back within 5 seconds in 8 of
# 8 tries. (Several hosts need a shared folder for this.) `torchrun` sees at once that a process has died, but not that
# one hangs. Timeouts end a hang: NCCL's is 10 minutes by default.
#
# The appendix [15, checkpoints](appendix/15_checkpoints.ipynb) saves while the job goes on, damages files, and looks at
# `torch.distributed.checkpoint`.
#
# ## A slow rank
#
# A rank does not have to die to cost time. In data parallelism, every step takes as long as its slowest rank. So the
# time of a step is the same on all ranks, and does not tell which one is slow. One has to measure how long each rank
# computes before it begins to wait. Eight virtual ranks train. Computing takes 100 ms, with random deviations of 3 %,
# and rank 5 is always 10 % slower.

# %%
def slow_job(comm, steps=20):
    """Return how many seconds this rank computes in each step."""
    draw = np.random.default_rng([7, comm.rank])
    computing = []
    for _ in range(steps):
        computing.append(0.1 * (1 + 0.03 * draw.standard_normal()) * (1.1 if comm.rank == 5 else 1.0))
        compute(comm, computing[-1])
        comm.Barrier()  # as an all-reduce would, it lets all ranks wait for the slowest
    return computing


seconds = list(zip(*run(slow_job, 8).results))  # of each step, by rank
print("three steps:", *(" ".join(f"{1e3 * s:.0f}" for s in step) + " ms" for step in seconds[:3]), sep="\n  ")
print("stragglers:", {rank: round(ratio, 3) for rank, ratio in stragglers(seconds).items()})

# %% [markdown]
# In these steps, rank 5 is 4 to 7 ms slower than any other rank. The medians of 20 steps show by how much it is slow.
#
# **Predict first.** Does such a rank cost a larger share of the time among 8 ranks, or among 1024? With a backup worker
# (lesson 07), each step leaves out the gradient that comes last. With deviations of 3 %, does this give more gradients
# in a second among 8 ranks, and among 1024?

# %% tags=["answer"]
# answer
draw = np.random.default_rng(0)
sizes, cost, backup = [8, 32, 128, 512, 1024], {}, []
for deviation in (0.01, 0.03):
    cost[f"random deviations of {deviation:.0%}"] = shares = []
    for n in sizes:
        steps = 1 + deviation * draw.standard_normal((1000, n))  # how long each rank computes, in 1000 steps
        usual = steps.max(1).mean()
        steps[:, 0] *= 1.1
        slow = steps.max(1).mean()
        shares.append(100 * (slow / usual - 1))
        second_last = np.partition(steps, n - 2, axis=1)[:, n - 2].mean()
        backup.append((n - 1) / n * slow / second_last - 1)
title = "One rank that is 10 % slow costs a smaller share of the time among many ranks"
figure = plot.lines(sizes, cost, "ranks", "longer than without the slow rank (%)", title)
figure.axes[0].set_ylim(0)
for n, gain in zip(sizes, backup[-len(sizes) :]):
    print(f"{n:4} ranks, deviations of 3 %: a backup worker gives {gain:+.1%} gradients in a second")


# %% [markdown]
# <details><summary>Why</summary>
#
# The slowest of many ranks is late anyway. With deviations of 3 %, the slowest of 1024 healthy ranks takes 10 % longer
# than the average. So the slow rank adds 1.3 %. With deviations of 1 %, it adds 6.5 %. MegaScale removed hosts that
# were 10 % slow, and reports 0.7 % more MFU [6]. We know neither its deviations nor how many hosts were slow.
#
# A backup worker wastes 1 / n of the work. This pays if the last rank is later than the one before it by a larger share
# of a step: here from 32 ranks on.
#
# </details>
#
# Exercise [`e15_straggler`](../exercises/e15_straggler.py): measure how long a rank computes, and find the slow ones.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e15_straggler

# %% [markdown]
# ## One flipped bit
#
# Llama 3's table counts six interruptions by **silent data corruption**: a result was wrong, and the hardware reported
# no error. (These six were noticed by other means. No table counts those that were not.) Let one bit flip on one of
# four ranks, once: in the largest number of the first layer's gradient, before the gradients are averaged. A float32
# number has 32 bits: bits 0 to 22 are the fraction, 23 to 30 the exponent, and bit 31 the sign.
#
# **Predict first.** Which of the 32 bits changes the test loss after training by more than 1 %, or stops the training?

# %% tags=["answer"]
# answer
def train(comm, optimizer=torch.optim.SGD, rate=0.1, bit=None, steps=40):
    """Train; in step 20, flip a bit of a gradient on rank 1. Return the test loss."""
    torch.manual_seed(0)
    model = mlp((64, 32, 10))
    optimizer = MultiNodeOptimizer(optimizer(model.parameters(), rate), create_communicator("flat", comm))
    sampler = StepSampler(len(DATA.train), 64, comm.rank, comm.size)
    while sampler.trained < steps:
        chosen = next(iter(sampler))
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen]).backward()
        if sampler.trained == 20 and comm.rank == 1 and bit is not None:
            gradient = model[1].weight.grad
            flip(gradient, int(gradient.abs().argmax()), bit)
        optimizer.step()
        sampler.trained += 1
    return F.cross_entropy(model(DATA.test.images), DATA.test.labels).item()


healthy, adam = run(train, 4).results[0], partial(train, optimizer=torch.optim.Adam, rate=0.003)
changes = [run(partial(train, bit=bit), 4).results[0] / healthy - 1 for bit in range(32) if bit != 30]
print(f"SGD, 31 bits: the loss {healthy:.4f} changes by {max(map(abs, changes)):.3%} at most")
try:
    run(partial(train, bit=30), 4)
except FloatingPointError as error:
    print("SGD, bit 30:", str(error).partition(" (")[0])
healthy = run(adam, 4).results[0]
print(f"Adam, bit 30: the loss {healthy:.4f} changes by {run(partial(adam, bit=30), 4).results[0] / healthy - 1:.3%}")


# %% [markdown]
# <details><summary>Why</summary>
#
# Bit 30 is the highest one of the exponent. It is 0 in every number below 2, and flipping it multiplies the number by
# 2¹²⁸. SGD then makes one weight huge. Two steps later, the gradients are not finite, and our optimizer refuses them.
# With any other bit, a number below 2 stays below 2, so one weight of thousands makes one small wrong step. Adam
# divides a gradient by the root of its mean square, so its step stays small even with bit 30.
#
# </details>
#
# A single flip rarely matters. A processor that computes wrongly again and again does, and its errors are as silent. To
# find it, compare results that should have the same bits:
#
# - **Fingerprints of replicas.** After each update, all ranks have the same parameters. `differing_replicas` compares a
#   checksum of 4 bytes for each parameter.
# - **Replay.** A rank computes the gradients of another rank's batch again. `replay` returns the pairs that disagree,
#   as (whose gradients, who computed them again). From three ranks on, a rank that always computes wrongly is in two
#   pairs.
#
# **Predict first.** Which of the two finds a rank that flips a bit in each of its gradients? Which one finds a bit that
# flips in a parameter of one rank? Which finds a bit that flips in the data set before the ranks read it?

# %% tags=["answer"]
# answer
def look(comm, where):
    """Let rank 1 compute wrongly, or all ranks read wrong data; return which replicas and which pairs differ."""
    torch.manual_seed(0)
    model, images = mlp((64, 32, 10)), DATA.train.images.clone()
    if where == "data set":
        flip(images, 100, 22)
    if where == "parameter" and comm.rank == 1:
        flip(model[1].weight, 777, 22)

    def gradients_of(rank):
        chosen = slice(16 * rank, 16 * rank + 16)
        loss = F.cross_entropy(model(images[chosen]), DATA.train.labels[chosen])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        if where == "gradient" and comm.rank == 1:
            flip(gradients[1], 3, 22)
        return gradients

    own = gradients_of(comm.rank)
    pairs = replay(comm, own, gradients_of)
    for p, gradient in zip(model.parameters(), own):
        p.data -= 0.1 * torch.from_numpy(comm.allreduce(gradient.numpy())) / comm.size
    return differing_replicas(comm, model), pairs


for where in ("nowhere", "gradient", "parameter", "data set"):
    replicas, pairs = run(partial(look, where=where), 4).results[0]
    print(f"wrong bit: {where:10} differing replicas {str(replicas):24} disagreeing pairs {pairs}")

# %% [markdown]
# <details><summary>Why</summary>
#
# A wrong gradient is averaged, and all ranks get the same wrong mean: the replicas stay equal, and only replay shows
# the fault. A wrong parameter makes this rank's replica differ. Its gradients differ, too, so replay also shows it. If
# all ranks read the same wrong data, all of them compute the same wrong result. No comparison of ranks shows it. The
# same holds for a mistake in the program, and for a bit that flips in the averaged gradient before all ranks receive
# it.
#
# </details>
#
# A replay takes as long as the gradients of a step. One replay in a hundred steps costs about 1 % of the time, and
# finds a processor that always computes wrongly within a hundred steps. It misses most errors that happen only once. It
# also needs programs that give the same bits on all ranks.
#
# Exercise [`e15_replay`](../exercises/e15_replay.py): compare replicas, and find the rank that computes wrongly.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e15_replay

# %% [markdown]
# ## The reference implementation

# %%
from mpcourse.common.source import reference

reference(young, lost, StepSampler)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `young` | the Young/Daly formula |
# | 1 - `lost` | effective training time ratio (ETTR); goodput |
# | `Checkpoints`, `save_later` | `torch.distributed.checkpoint`, `async_save`; CheckFreq, Gemini (in-memory) |
# | `StepSampler` | `StatefulDataLoader` of torchdata; Megatron-LM's `consumed_samples` |
# | `stragglers` | straggler detection in Megatron-LM (`--log-straggler`) |
# | `differing_replicas`, `replay` | silent data corruption, SDC; `check_weight_hash_across_dp_replicas_interval` |
#
# 1. Llama team, *The Llama 3 Herd of Models*, 2024, <https://arxiv.org/abs/2407.21783>, table 5, which we know from
#    Glenn Lockwood, *Component reliability*, <https://glennklockwood.com/garden/component-reliability>
# 2. Hugging Face, *The Technology Behind BLOOM Training*, 2022,
#    <https://huggingface.co/blog/bloom-megatron-deepspeed>
# 3. Apostolos Kokolis and others, *Revisiting Reliability in Large-Scale Machine Learning Research Clusters*, 2024,
#    <https://arxiv.org/abs/2410.21680>, which we know from quotations
# 4. John Young, *A First Order Approximation to the Optimum Checkpoint Interval*, 1974,
#    <https://doi.org/10.1145/361147.361115>
# 5. John Daly, *A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps*, 2006,
#    <https://doi.org/10.1016/j.future.2004.11.016>
# 6. Ziheng Jiang and others, *MegaScale*, 2024, <https://arxiv.org/abs/2402.15627>
# 7. Issue 811 of pytorch/torchtitan on GitHub
#
# ## A problem
#
# A checkpoint of 175 billion parameters with Adam takes 14 bytes for each parameter. How long does a job of 1024 GPUs
# need to write it at 2 GB/s for each node of 8 GPUs? A node fails as often as those of Llama 3. What is Young's
# interval, and which share of the time is lost with restarts of 10 minutes?

# %% tags=["answer"]
# answer
save, between = 14 * 175e9 / (128 * 2e9), time_between_failures(rates["Llama 3"], 128)
t = young(save, between)
print(f"{save:.1f} s; every {t / MINUTE:.0f} minutes; {lost(t, save, 10 * MINUTE, between):.2%} lost")

# %% [markdown]
# ## What you found
#
# - A job on n machines fails n times as often as one on a single machine. Published rates are 3 to 6.5 failures per
#   1000 node-days, but one team's measured jobs failed three times as often as its own rate says.
# - With the interval √(2 d M), saving and repeated work cost √(2 d / M) of the time. Half or twice this interval costs
#   little more. Even with perfect checkpoints, restarts of 0.1 M lose a tenth of the time.
# - A checkpoint holds parameters and buffers, optimizer, schedule, scale, the random numbers of each rank and the place
#   in the data. If the examples of a step do not depend on the number of ranks, the job continues on any number of
#   ranks.
# - A slow rank is found by its time of computing, not by the time of a step. Among many ranks, it costs a smaller
#   share.
# - Most flipped bits are silent. Replay finds wrong gradients, fingerprints find wrong replicas, and no comparison
#   finds what all ranks get wrong alike.
#
# Next, compute how often your own job should save: change the numbers of the problem.
