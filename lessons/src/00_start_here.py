# %% [markdown]
# # 00 Start here
#
# **Is my machine ready, and how does this course work?** About 30 minutes to read, and 10 for its exercise.
#
# In this course you write by hand what trains a network on several GPUs and several machines. The laptop in front of
# you is enough: its processes stand for the machines, and the GPUs are simulated. This lesson makes sure that two
# processes on it can exchange **messages**, and shows how an exercise is checked.
#
# Run the cells from top to bottom with Shift+Enter. Where a paragraph begins with **Predict first**, decide on an
# answer before you run the cell below it: a wrong prediction shows what there was to learn. In later lessons the cell
# with the answer is folded. Run it, and the answer appears; click on the line `# answer` to see its code. A line that
# begins with `# checked` folds a check of what the text claims. Terms of the field are set in bold where they are first
# used; [docs/glossary.md](../docs/glossary.md) explains each in one line.
#
# The first cell of each lesson shows which of its exercises are solved. `mpcourse progress` shows the whole course.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("00_start_here")

# %% [markdown]
# ## Is the machine ready?
#
# One command looks at everything the course needs. A `!` in front runs it as in a terminal.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse doctor

# %% [markdown]
# A *problem* comes with the command that cures it. A *note* can wait. The next cell fails if there is a problem,
# and otherwise lists what was looked at.

# %%
import json

# answer = !mpcourse doctor --json
doctor = json.loads("\n".join(answer))
assert doctor["ok"], "the course cannot run here yet: see the table above"
[finding["topic"] for finding in doctor["findings"]]

# %% [markdown]
# ## Two ranks
#
# `mpirun -np 2` starts a program twice. Each copy is a **rank**, a process of its own. A rank learns two things when
# it starts: its number, and how many ranks there are. It learns them through a **communicator**, an object of MPI. MPI,
# the Message Passing Interface, is the standard by which processes on one or many machines exchange data. `mpi4py`
# brings it to Python.
#
# The cell below writes a program into `scratch/`, a folder for your experiments.

# %%
from pathlib import Path

Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/who.py
from mpi4py import MPI

comm = MPI.COMM_WORLD
print(f"I am rank {comm.rank} of {comm.size}")

# %% [markdown]
# Ranks run side by side, so their lines come in any order. We sort them.

# %%
# lines = !mpirun -np 2 python scratch/who.py
assert sorted(lines) == ["I am rank 0 of 2", "I am rank 1 of 2"]
sorted(lines)

# %% [markdown]
# ## They share nothing
#
# All later lessons rest on this: the program is the same, the variables are not. Each rank is a process with memory of
# its own.
#
# **Predict first.** Rank 0 sets `x` to 42 in the program below. What does rank 1 print?

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/shared.py
from mpi4py import MPI

comm = MPI.COMM_WORLD
x = 0
if comm.rank == 0:
    x = 42
print(f"rank {comm.rank}: x = {x}")

# %%
# lines = !mpirun -np 2 python scratch/shared.py
assert sorted(lines) == ["rank 0: x = 42", "rank 1: x = 0"]
sorted(lines)

# %% [markdown]
# What one rank has computed and another needs must be sent as a message. `send` and `recv` are a pair, which is
# called **point-to-point communication**: each send needs exactly one receive.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/sent.py
from mpi4py import MPI

comm = MPI.COMM_WORLD
x = 0
if comm.rank == 0:
    x = 42
    comm.send(x, dest=1)
elif comm.rank == 1:
    x = comm.recv(source=0)
print(f"rank {comm.rank}: x = {x}")

# %%
# lines = !mpirun -np 2 python scratch/sent.py
assert sorted(lines) == ["rank 0: x = 42", "rank 1: x = 42"]
sorted(lines)

# %% [markdown]
# ## When one rank fails
#
# **Predict first.** In the program below rank 0 raises an exception before it sends. What does rank 1 do, and when does
# `mpirun` end?

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/fails.py
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 0:
    raise ValueError("there is no batch 17")
x = comm.recv(source=0)
print(f"rank 1: x = {x}")

# %% [markdown]
# `timeout 5` ends a command that still runs after five seconds. `$?` is the command's exit status, which is 124 then.

# %%
# lines = !timeout 5 mpirun -np 2 python scratch/fails.py; echo "exit status $?"
assert "ValueError: there is no batch 17" in "".join(lines) and "rank 1: x" not in "".join(lines)
lines[-1].strip()

# %% [markdown]
# Rank 0 prints its traceback, but its process does not end. When Python exits, mpi4py calls `MPI_Finalize`, which waits
# until all ranks have called it. Rank 1 never does, because it waits in `recv` for what rank 0 will not send. Without
# `timeout` both would wait for ever. When a training run hangs, look for a traceback further up in its output.
#
# With `-m mpi4py`, an exception becomes an **abort**: after the traceback Python calls `MPI_Abort`, which ends all
# ranks at once, and `mpirun` with them. This time `timeout` has nothing to end, and the exit status is 1.

# %%
# lines = !timeout 60 mpirun -np 2 python -m mpi4py scratch/fails.py; echo "exit status $?"
lines[-1].strip()

# %% [markdown]
# So start your own programs with `mpirun -np 2 python -m mpi4py program.py`. Exercises need no `-m mpi4py`: their
# checker ends all ranks itself.

# %% [markdown]
# ## What does a message cost?
#
# Measure it. Rank 0 sends an array to rank 1, and rank 1 sends it back. Half of the round trip is the time of one
# message. The upper-case `Send` and `Recv` move arrays as they are; the lower-case ones pickle any Python object.
#
# **Predict first.** A message of 8 MiB is a million times as long as one of 8 bytes. Does it take a million times as
# long, a thousand times, or about as long?

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/pingpong.py
import json
import time

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
other = 1 - comm.rank
rows = []
for n in [8 * 4**k for k in range(11)]:  # 8 bytes to 8 MiB
    message = np.random.default_rng(comm.rank).random(n // 8)
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        if comm.rank == 0:
            comm.Send(message, dest=other)
            comm.Recv(message, source=other)
        else:
            comm.Recv(message, source=other)
            comm.Send(message, dest=other)
        seconds.append((time.perf_counter() - start) / 2)
    rows.append((n, min(seconds)))  # what else the machine does can only add to the time
if comm.rank == 0:
    print(json.dumps(rows))

# %%
# lines = !mpirun -np 2 python scratch/pingpong.py
sizes, seconds = zip(*json.loads(lines[-1]))
per_byte = [second / size for size, second in zip(sizes, seconds)]
assert per_byte[0] > 100 * per_byte[-1] and seconds[-1] > 2 * seconds[0]

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from mpcourse import plot

plot.message_cost(sizes, seconds, "The time of a short message is latency, a long one's grows with its bytes")
print(f"a message of 8 MiB takes {seconds[-1] / seconds[0]:.0f} times as long as one of 8 bytes")

# %% [markdown]
# Neither a million times as long, nor about as long. Two numbers describe the picture. The **latency** alpha is the
# time that any message takes, even an empty one. Each byte adds the time beta, and 1 / beta is the **bandwidth**, in
# bytes a second. A message of n bytes takes about alpha + beta n. Hockney gave this model in 1994; it is called the
# alpha-beta model.
#
# A byte that travels with eight million others costs less than a hundredth of one that travels with seven. So one
# large message is cheaper than many small ones with the same bytes. Lessons 05 and 06 make much of that.
#
# `mpcourse doctor` prints another bandwidth. It sends 4 MB only, and takes the median of its times, which rises when
# the machine is busy. The line here is fitted to the least times of all sizes. It misses some, for MPI changes its way
# of sending as messages grow, each way with a latency and a bandwidth of its own. Lesson 05 looks closer.
#
# Now 8 MiB are cut into equal messages, which are sent one after the other over a link whose latency and bandwidth are
# known. From which number of messages on is most of the time latency? In JupyterLab, move the sliders. Ethernet (GbE:
# gigabit a second) and InfiniBand connect machines, NVLink connects GPUs of one machine.

# %%
from mpcourse.virtual import LINKS


def try_it(link="10 GbE", mib=8):
    at = LINKS[link]
    title = f"{mib} MiB over {link}: {1e6 * at.latency:g} µs latency, {at.bandwidth / 1e9:g} GB/s"
    return plot.split_message(mib * 2**20, at.latency, at.bandwidth, title)


plot.sliders(try_it, link=["1 GbE", "10 GbE", "100 GbE", "InfiniBand FDR", "NVLink 4"], mib=[1, 8, 64, 512])

# %% [markdown]
# Half of the time is latency where a message has as many bytes as latency times bandwidth, however many bytes there are
# together. A faster link needs longer messages, unless its latency is lower in proportion.

# %%
half = {name: LINKS[name].latency * LINKS[name].bandwidth for name in ("1 GbE", "10 GbE", "100 GbE")}
assert list(half) == sorted(half, key=half.get)
{name: f"{nbytes / 1e3:.1f} kB" for name, nbytes in half.items()}

# %% [markdown]
# ## GPUs that are not there
#
# Several ranks, each with its own, are one way to use several **devices** (GPUs, or cores in their place). The other is
# one process that launches work on all of them. This laptop need not have a GPU: `virtual_gpus` simulates some. A
# **virtual GPU** computes with real tensors, refuses what a real GPU refuses, and has a clock that predicts how long
# the real one would have taken.
#
# `box` is the simulated machine. In it a tensor of a million elements is copied from one GPU to the other, over NVLink
# 1, the link between two Tesla P100.

# %%
import torch

from mpcourse.virtual import virtual_gpus

with virtual_gpus(2, "Tesla P100-SXM2", "NVLink 1") as box:
    x = torch.randn(1_000_000, device="vgpu:0")
    y = x.to("vgpu:1")
    box.synchronize()
    assert torch.equal(x.cpu(), y.cpu()) and y.device == torch.device("vgpu:1")
(move,) = [event for event in box.copies if event.lane == "vgpu:0 -> vgpu:1"]
assert move.nbytes == 4_000_000
f"{move.lane}: {move.nbytes} bytes in {1e6 * (move.end - move.start):.0f} µs"

# %% [markdown]
# 208 µs: 8 of latency, and 4 MB at 20 GB/s. The alpha-beta model describes copies between GPUs as it does messages
# between ranks.
#
# And the error that everybody meets first: two tensors on two GPUs cannot be added. The first line of the message is
# torch's own. The others say which tensor is where, and which line of the cell made it.

# %%
with box:
    try:
        x + y
    except RuntimeError as error:
        refusal = str(error)
assert refusal.startswith("Expected all tensors to be on the same device")
print(refusal)

# %% [markdown]
# ## How an exercise works
#
# Exercises are files in `exercises/`. Open one, replace its `raise NotImplementedError` by your answer, and check it:
#
# | command | what it does |
# |---|---|
# | `mpcourse check e00` | checks your answer with 2, 1, 3 and 4 ranks |
# | `mpirun -np 2 python exercises/e00_hello.py` | the same check, on the ranks that you started |
# | `mpcourse hint e00` | a hint; each call shows one more |
# | `mpcourse watch e00` | checks again whenever you save |
# | `mpcourse reset e00` | puts the file back as it was, and keeps your text aside |
# | `mpcourse solution e00` | the solution, once you have passed |
# | `mpcourse list`, `mpcourse next` | what there is, what comes next |
# | `mpcourse progress` | what you have done, and which misconceptions you met and mended |
#
# They work in a terminal in the course's folder, and in a notebook with `!` in front. A notebook lives in `lessons/`:
# there the file is `../exercises/e00_hello.py`.

# %%
# table = !mpcourse list --json
[(row["exercise"], row["title"]) for row in json.loads("\n".join(table))]


# %% [markdown]
# ## A wrong answer
#
# The first exercise: every rank says hello, and rank 0 collects the greetings. Here is a mistake that everybody makes
# once: two ranks greet each other, and each receives before it sends.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/both_listen.py
def greet(comm):
    mine, other = f"rank {comm.rank} of {comm.size}", 1 - comm.rank
    theirs = comm.recv(source=other)
    comm.send(mine, dest=other)
    return [mine, theirs] if comm.rank == 0 else None


# %% [markdown]
# Under plain `mpirun` this program would hang without a word. The checker ends it, and says which rank waits for which.

# %%
# !mpcourse check e00 --file scratch/both_listen.py

# %% [markdown]
# That is a **deadlock**: each rank waits for a message that the other would send only later, so neither can continue.
#
# Nothing that you write can hang the checker. An endless loop, an exception on one rank, `sys.exit` in the wrong
# place: each gets a verdict with the rank and the line, and all processes are ended.

# %%
# verdict = !mpcourse check e00 --file scratch/both_listen.py --json
(verdict,) = json.loads("\n".join(verdict))
assert (verdict["kind"], verdict["line"]) == ("deadlock", 3)
verdict["why"]

# %% [markdown]
# ## Your turn
#
# Open [`exercises/e00_hello.py`](../exercises/e00_hello.py), write `greet`, save, and run this cell. It takes about 10
# minutes. `send` and `recv` are enough, for any number of ranks. With the right method of `comm` it is one line:
# `!mpcourse hint e00`, or `!python -c "from mpi4py import MPI; print(dir(MPI.Comm))"`.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpirun -np 2 python ../exercises/e00_hello.py

# %% [markdown]
# If it passes with two ranks, see whether it also does with one, three and four: `!mpcourse check e00`.

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `mpirun -np 2 python train.py` | `torchrun --nproc-per-node 2 train.py`, `srun -n 2` |
# | `python -m mpi4py train.py` ends all ranks after an exception | torchrun does without asking |
# | rank, size | `RANK`, `WORLD_SIZE`; `torch.distributed.get_rank()` |
# | communicator | process group |
# | `comm.Send(array, dest=1)` | `torch.distributed.send(tensor, dst=1)` |
# | `"vgpu:0"`, `torch.vgpu` | `"cuda:0"`, `torch.cuda` |
#
# Next: [01 One device](01_one_device.ipynb), the training step that all later lessons split.
