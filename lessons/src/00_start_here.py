# %% [markdown]
# # 00 Start here
#
# **Is my machine ready, and how does this course work?** About 30 minutes to read, and 10 for its exercise.
#
# In this course, you write by hand the code that trains a network on several GPUs and several machines. A laptop is
# enough: its processes stand in for the machines, and the GPUs are simulated.
#
# After this lesson you can
#
# - start a program on several processes and let them exchange **messages**;
# - end all processes when one of them fails;
# - estimate the time of a message from its length;
# - check an exercise, and read the verdict on a wrong answer.
#
# Run the cells from top to bottom with Shift+Enter. Where a paragraph begins with **Predict first**, write down your
# answer before you run the cell below it. A wrong prediction shows you what there is to learn. The cell with the answer
# is folded, and so is the explanation. Run the cell, and its output appears; click on the line `# answer` to see its
# code. A line that begins with `# checked` hides folded code that checks what the text claims; you may skip it.
# Technical terms are in bold where they first occur. [docs/glossary.md](../docs/glossary.md) explains each of them in
# one line.
#
# The first cell of each lesson shows which of the lesson's exercises you have solved. `mpcourse progress` shows this
# for the whole course.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("00_start_here")

# %% [markdown]
# ## Is the machine ready?
#
# One command examines everything that the course needs. A `!` at the beginning of a line runs the line as a terminal
# command.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse doctor

# %% [markdown]
# If the doctor reports a *problem*, it also prints the command that solves it. A *note* can wait. The next cell fails
# if there is a problem, and otherwise lists what the doctor examined.

# %%
import json

# answer = !mpcourse doctor --json
doctor = json.loads("\n".join(answer))
assert doctor["ok"], "the course cannot run here yet: see the table above"
[finding["topic"] for finding in doctor["findings"]]

# %% [markdown]
# ## Two ranks
#
# `mpirun -np 2` starts a program twice. Each copy is a **rank**, a process of its own. When it starts, a rank knows
# only its own number and how many ranks there are. Both come from a **communicator**, an MPI object. MPI, the Message
# Passing Interface, is a standard way for processes on one or more machines to exchange data. `mpi4py` is the Python
# interface to MPI.
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
# Ranks run at the same time, so their lines arrive in any order. We sort them.

# %%
# lines = !mpirun -np 2 python scratch/who.py
sorted(lines)

# %% [markdown]
# ## They share nothing
#
# All later lessons rest on one fact: the ranks run the same program, but they share no variables. Each rank is a
# process with its own memory. In the next program, rank 0 sets `x` to 42.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/shared.py
from mpi4py import MPI

comm = MPI.COMM_WORLD
x = 0
if comm.rank == 0:
    x = 42
print(f"rank {comm.rank}: x = {x}")

# %% [markdown]
# **Predict first.** What does rank 1 print?

# %% tags=["answer"]
# answer
# lines = !mpirun -np 2 python scratch/shared.py
sorted(lines)

# %% [markdown]
# If one rank needs what another rank has computed, the other rank must send it as a message. A `send` on one rank and a
# `recv` on another form a pair. Exchanging data in such pairs is called **point-to-point communication**. Each send
# needs exactly one receive.

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
sorted(lines)

# %% [markdown]
# ## When one rank fails
#
# In the next program, rank 0 raises an exception before it sends.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/fails.py
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 0:
    raise ValueError("there is no batch 17")
x = comm.recv(source=0)
print(f"rank 1: x = {x}")

# %% [markdown]
# We run it with `timeout 3`, which ends a command that is still running after three seconds. `$?` is the exit status of
# the command; it is 124 if `timeout` had to end it.
#
# **Predict first.** What does rank 1 do, and when does `mpirun` end?

# %% tags=["answer"]
# answer
# lines = !timeout 3 mpirun -np 2 python scratch/fails.py; echo "exit status $?"
lines[-1].strip()

# %% tags=["checked"]
# checked: the traceback is in the output, and rank 1 printed nothing
assert "ValueError: there is no batch 17" in "".join(lines) and "rank 1: x" not in "".join(lines)

# %% [markdown]
# <details><summary>Why</summary>
#
# Rank 0 prints its traceback, but its process does not end. When Python exits, mpi4py calls `MPI_Finalize`, which waits
# until all ranks have called it. Rank 1 never calls it, because it waits in `recv` for a message that rank 0 will not
# send. Without `timeout`, both ranks would wait forever. So when a training run hangs, look for a traceback further up
# in its output.
#
# </details>
#
# If Python runs with `-m mpi4py`, an exception becomes an **abort**. After printing the traceback, Python calls
# `MPI_Abort`, which ends all ranks and `mpirun` at once. Now `timeout` has nothing to end, and the exit status is 1.

# %%
# lines = !timeout 60 mpirun -np 2 python -m mpi4py scratch/fails.py; echo "exit status $?"
lines[-1].strip()

# %% [markdown]
# So start your own programs with `mpirun -np 2 python -m mpi4py program.py`. Exercises do not need `-m mpi4py`, because
# the checker ends all ranks itself.

# %% [markdown]
# ## What does a message cost?
#
# To find out, we measure the time of messages. Rank 0 sends an array to rank 1, and rank 1 sends it back. Half of the
# round trip is the time of one message. The upper-case methods `Send` and `Recv` send an array's bytes as they are. The
# lower-case methods `send` and `recv` pickle any Python object.

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
    rows.append((n, min(seconds)))  # whatever else the machine does can only add to the time
if comm.rank == 0:
    print(json.dumps(rows))

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from mpcourse import plot

# %% [markdown]
# **Predict first.** A message of 8 MiB is a million times as long as one of 8 bytes. Does it take a million times as
# long, hundreds of times as long, or about the same time?

# %% tags=["nbval-ignore-output", "answer"]
# answer
# lines = !mpirun -np 2 python scratch/pingpong.py
sizes, seconds = zip(*json.loads(lines[-1]))
plot.message_cost(sizes, seconds, "The time of one message against its length")
print(f"a message of 8 MiB takes {seconds[-1] / seconds[0]:.0f} times as long as one of 8 bytes")

# %% tags=["checked"]
# checked: per byte, the longest message is more than a hundred times cheaper than the shortest
per_byte = [second / size for size, second in zip(sizes, seconds)]
assert per_byte[0] > 100 * per_byte[-1] and seconds[-1] > 2 * seconds[0]

# %% [markdown]
# Two numbers describe the figure. The **latency** alpha is the time that any message takes, even an empty one. Each
# byte adds the time beta, and 1 / beta is the **bandwidth**, in bytes per second. A message of n bytes takes about
# alpha + n beta. This is the alpha-beta model (Roger Hockney, *The communication challenge for MPP*, 1994,
# <https://doi.org/10.1016/S0167-8191(06)80021-9>).
#
# Per byte, the 8 MiB message is more than a hundred times cheaper than the 8-byte one. So one large message is cheaper
# than many small messages with the same number of bytes in total. Lessons 05 and 06 make use of this.
#
# `mpcourse doctor` prints a different value for the bandwidth. It sends only 4 MB at a time, and takes the median of
# the times that it measures. The median rises when the machine is busy. The line in the figure is fitted to the
# shortest time measured for each message length. The line does not pass through all points, because MPI sends short and
# long messages in different ways, each with its own latency and bandwidth. Lesson 05 returns to this.
#
# Now we cut 8 MiB into equal messages and send them one after the other over a link with a known latency and bandwidth.
# How many messages can there be before most of the time is latency? In JupyterLab, move the sliders. Ethernet and
# InfiniBand connect machines ("10 GbE" is Ethernet with 10 gigabits per second). NVLink connects the GPUs of one
# machine.

# %%
from mpcourse.virtual import LINKS


def try_it(link="10 GbE", mib=8):
    at = LINKS[link]
    title = f"{mib} MiB over {link}: {1e6 * at.latency:g} µs latency, {at.bandwidth / 1e9:g} GB/s"
    return plot.split_message(mib * 2**20, at.latency, at.bandwidth, title)


plot.sliders(try_it, link=["1 GbE", "10 GbE", "100 GbE", "InfiniBand FDR", "NVLink 4"], mib=[1, 8, 64, 512])

# %% [markdown]
# Latency is half of the time if the number of bytes in each message equals the latency times the bandwidth. The total
# number of bytes does not matter. A link with more bandwidth needs longer messages, unless its latency is shorter in
# proportion.

# %%
half = {name: LINKS[name].latency * LINKS[name].bandwidth for name in ("1 GbE", "10 GbE", "100 GbE")}
{name: f"{nbytes / 1e3:.1f} kB" for name, nbytes in half.items()}

# %% [markdown]
# ## GPUs that are not there
#
# There are two ways to use several **devices** (GPUs, or CPU cores in their place). The first is to start a rank for
# each device. The second is to start work on all devices from a single process. Your computer does not need a GPU,
# because `virtual_gpus` simulates GPUs. A **virtual GPU** computes with real tensors, raises an error where a real GPU
# would raise one, and has a clock that predicts how long the real GPU would take.
#
# `box` is the simulated machine. The next cell copies a tensor of a million elements from one GPU to another over
# NVLink 1, the link between two Tesla P100 GPUs.

# %%
import torch

from mpcourse.virtual import virtual_gpus

with virtual_gpus(2, "Tesla P100-SXM2", "NVLink 1") as box:
    x = torch.randn(1_000_000, device="vgpu:0")
    y = x.to("vgpu:1")
    box.synchronize()
    assert torch.equal(x.cpu(), y.cpu())
(move,) = [event for event in box.copies if event.lane == "vgpu:0 -> vgpu:1"]
f"{move.lane}: {move.nbytes} bytes in {1e6 * (move.end - move.start):.0f} µs"

# %% [markdown]
# The copy takes 208 µs: 8 µs of latency, and 200 µs for 4 MB at 20 GB/s. The alpha-beta model describes copies between
# GPUs as well as messages between ranks.
#
# The first error that everybody runs into is that two tensors on different GPUs cannot be added. In the message below,
# the first line is PyTorch's own. The other lines say where each tensor is, and which line of the cell created it.

# %%
with box:
    try:
        x + y
    except RuntimeError as error:
        refusal = str(error)
print(refusal)

# %% [markdown]
# ## How an exercise works
#
# Exercises are files in `exercises/`. Open one, replace its `raise NotImplementedError` with your answer, and check it:
#
# | command | what it does |
# |---|---|
# | `mpcourse check e00` | checks your answer with 2, 1, 3 and 4 ranks |
# | `mpirun -np 2 python exercises/e00_hello.py` | the same check, on the ranks that you started |
# | `mpcourse hint e00` | a hint; each call shows one more |
# | `mpcourse watch e00` | checks again whenever you save |
# | `mpcourse reset e00` | puts the file back as it was, and keeps your text aside |
# | `mpcourse solution e00` | the solution, once you have passed |
# | `mpcourse list`, `mpcourse next` | list all exercises; show which one comes next |
# | `mpcourse progress` | what you have done, and which misconceptions you have had and corrected |
#
# These commands work in a terminal in the course's folder, and in a notebook if you write a `!` in front. Notebooks are
# in `lessons/`, so in a notebook the file is `../exercises/e00_hello.py`.

# %%
# table = !mpcourse list --json
[(row["exercise"], row["title"]) for row in json.loads("\n".join(table))]


# %% [markdown]
# ## A wrong answer
#
# In the first exercise, every rank says hello, and rank 0 collects the greetings. The next cell contains a mistake that
# everybody makes once: two ranks greet each other, and each of them receives before it sends.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/both_listen.py
def greet(comm):
    mine, other = f"rank {comm.rank} of {comm.size}", 1 - comm.rank
    theirs = comm.recv(source=other)
    comm.send(mine, dest=other)
    return [mine, theirs] if comm.rank == 0 else None


# %% [markdown]
# Under plain `mpirun`, this program would hang without any message. The checker ends it, and says which rank waits for
# which.

# %%
# !mpcourse check e00 --file scratch/both_listen.py

# %% [markdown]
# That is a **deadlock**: each rank waits for a message that the other rank would send only later, so neither can go on.
#
# Nothing that you write can hang the checker. Endless loops, exceptions on one rank, and `sys.exit` in the wrong place
# each get a verdict with the rank and the line, and all processes are ended.

# %%
# verdict = !mpcourse check e00 --file scratch/both_listen.py --json
(verdict,) = json.loads("\n".join(verdict))
verdict["kind"], verdict["line"], verdict["why"]

# %% [markdown]
# ## Your turn
#
# Open [`exercises/e00_hello.py`](../exercises/e00_hello.py), write `greet`, save, and run this cell. The exercise takes
# about 10 minutes. `send` and `recv` are enough, for any number of ranks. With the right method of `comm`, one line is
# enough. To find this method, run `!mpcourse hint e00` or `!python -c "from mpi4py import MPI; print(dir(MPI.Comm))"`.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpirun -np 2 python ../exercises/e00_hello.py

# %% [markdown]
# If your answer passes with two ranks, check it with one, three and four ranks, too: run `!mpcourse check e00`.

# %% [markdown]
# ## The same in PyTorch
#
# PyTorch, too, has numbered processes that exchange messages. `torchrun` starts them, and ends all of them when one
# fails, so nothing like `-m mpi4py` is needed. The program below sends 42 from rank 0 to rank 1. The processes find
# each other by the machine's name, which some laptops cannot resolve; `--local-addr localhost` makes them use
# `localhost` instead.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/sent_by_torch.py
import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # for CPUs; "nccl" if each process has a GPU
x = torch.zeros(1)
if dist.get_rank() == 0:
    x += 42
    dist.send(x, dst=1)
else:
    dist.recv(x, src=0)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: x = {x.item():.0f}")
dist.destroy_process_group()

# %%
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/sent_by_torch.py 2> scratch/torchrun.log

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `mpirun -np 2 python train.py` | `torchrun --nproc-per-node 2 train.py`, `srun -n 2` |
# | `python -m mpi4py train.py` ends all ranks after an exception | `torchrun` always does this |
# | rank, size | `RANK`, `WORLD_SIZE`; `torch.distributed.get_rank()` |
# | communicator | process group |
# | `comm.Send(array, dest=1)` | `torch.distributed.send(tensor, dst=1)` |
# | `"vgpu:0"`, `torch.vgpu` | `"cuda:0"`, `torch.cuda` |
#
# ## What you found
#
# - Ranks share no memory. A rank must send what another rank needs, and each send needs exactly one receive.
# - After an exception on one rank, all ranks wait forever, unless Python runs with `-m mpi4py` or under `torchrun`.
# - A message of n bytes takes about alpha + n beta. Latency accounts for most of the time of a short message, and
#   bandwidth limits a long one.
# - The checker names the rank, the line and the misconception, and nothing that you write can hang it.
#
# Next comes [lesson 01](01_one_device.ipynb), which measures the training step that all later lessons split.
