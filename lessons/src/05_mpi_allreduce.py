# %% [markdown]
# # 05 All-reduce by hand
#
# **How do ranks agree on a sum?** About 60 minutes, and 90 for its exercises.
#
# 256 processes have a gradient each, 25 million numbers. All of them need the sum. If each sends its own to all others,
# each sends 25 GB. A ring does it with 0.2 GB, and no way is there with less. Here it is, in twelve lines.
#
# On the way: how processes talk, why they hang, and what a message costs.

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import json
from pathlib import Path

import numpy as np

from mpcourse import plot
from mpcourse.collectives import ALGORITHMS, hierarchical_allreduce, ring_allreduce, rounds
from mpcourse.collectives.cost import Cost, crossovers, seconds
from mpcourse.virtual import LINKS, ClusterError, Deadlock, Topology, run

N = 1_000_000  # numbers a rank


# %% [markdown]
# ## A rank
#
# `mpirun -np 3 python program.py` starts the same program three times. Each process is a **rank**. It has a number, its
# own memory, and a communicator to talk through.
#
# A notebook is one process. So here ranks are virtual: `run(program, 3)` calls `program(comm)` three times, and `comm`
# has mpi4py's methods. The same function runs under mpirun as it is.

# %%
def hello(comm):
    if comm.rank == 0:
        for source in range(1, comm.size):
            print(f"rank 0 got {comm.recv(source=source)!r}")
    else:
        comm.send(f"greetings from rank {comm.rank}", dest=0)
    return comm.rank


done = run(hello, 3)
assert done.results == [0, 1, 2] and done.messages.sum() == 2


# %% [markdown]
# Lower-case methods send any object, pickled. Upper-case ones send memory as it is: `comm.Send(x, dest)`, and
# `comm.Recv(y, source)` writes into `y`. Training uses the second kind.
#
# ## Two ranks that wait for ever
#
# Two ranks swap arrays. Each sends, then receives.

# %%
def swap(comm, n):
    mine, theirs = np.full(n, float(comm.rank)), np.empty(n)
    other = 1 - comm.rank
    comm.Send(mine, other)
    comm.Recv(theirs, other)
    return theirs[0]


try:
    run(lambda comm: swap(comm, 1000), 2)
except Deadlock as error:
    stuck = error
print(stuck)

# %%
plot.deadlock(stuck)
None

# %% [markdown]
# `Send` may return when the receiver has begun to receive, and not before. Both wait for that, and both receive later.
#
# The dangerous part: most MPIs copy a **short** message and let the sender go on. Then the same program works, until
# somebody trains a larger model. Virtual ranks copy nothing unless they are asked to.

# %%
works = run(lambda comm: swap(comm, 1000), 2, eager=65536)
assert works.results == [1.0, 0.0]
try:
    run(lambda comm: swap(comm, 10_000), 2, eager=65536)
except Deadlock:
    print("8 kB pass by luck; 80 kB hang")


# %% [markdown]
# `Sendrecv` does both at once. So do `Isend` and `Irecv`, which only begin: each returns a request, and the array
# belongs to MPI until the request's `Wait` returns.
#
# Exercise `e05_exchange`: hand an array on to the next rank, in a circle.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e05_exchange

# %% [markdown]
# Other mistakes between ranks are named, too. Each of these is one line of a program, and real MPI would stop with a
# number, hang, or go on with wrong data.

# %%
def too_long(comm):
    if comm.rank == 0:
        comm.Send(np.ones(4), 1)
    else:
        comm.Recv(np.empty(3), 0)


def other_type(comm):
    if comm.rank == 0:
        comm.Send(np.ones(4, np.float32), 1)
    else:
        comm.Recv(np.empty(4), 0)


def no_wait(comm):
    comm.Isend(np.ones(4), 1 - comm.rank)
    comm.Recv(np.empty(4), 1 - comm.rank)


def one_without(comm):
    if comm.rank == 0:
        comm.Barrier()


for program in (too_long, other_type, no_wait, one_without):
    try:
        run(program, 2)
    except ClusterError as error:
        print(f"{program.__name__}: {str(error).splitlines()[-1]}\n")


# %% [markdown]
# ## The sum, as everybody writes it first
#
# All send to rank 0. It adds up, and sends the sum to all. Eight ranks, a million numbers each, 10 Gbit/s between any
# two.

# %%
def summing(function, p=8, n=N, link="10 GbE"):
    """All ranks sum n numbers by `function`; the run, after a look at the result."""

    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(n)
        function(comm, x)
        return x

    done = run(program, p, link)
    want = sum(np.random.default_rng(rank).standard_normal(n) for rank in range(p))
    assert all(np.allclose(x, want, atol=1e-12) for x in done.results)
    return done


naive = summing(ALGORITHMS["naive"])
print(f"{1e3 * naive.seconds:.0f} ms")
plot.traffic(naive.events, "Gather and broadcast: everything passes rank 0")
None

# %% [markdown]
# Rank 0 sends and receives seven arrays. Its link is busy all the time, the others wait. With 256 ranks it would be 255
# arrays.
#
# ## The ring
#
# Cut x into p chunks. Ranks stand in a circle, and each talks to its neighbours only.
#
# - p - 1 rounds: send a chunk to the right, receive another from the left, **add** it.
# - p - 1 rounds: send a complete chunk to the right, receive another, **keep** it.
#
# A box is a chunk. A stripe in it is a rank whose numbers are in that sum. A black frame: changed in this round. A dot:
# complete.

# %%
counts = rounds(ring_allreduce, 4)
assert (counts[-1] == 1).all()
plot.chunks(counts, title="The ring with four ranks: three rounds that add, three that copy")
None


# %% [markdown]
# In round 1 rank 0 hands its chunk 0 to rank 1. In round 2 rank 1 hands the sum of two on, and so on: a sum grows along
# the ring. After round 3 each rank holds one complete chunk. From then on complete chunks travel.
#
# Step through it. Rank numbers that are no power of two are no problem. What does the naive one look like?

# %% tags=["nbval-ignore-output"]
def one_round(algorithm="ring", ranks=4, after=1):
    counts = rounds(ALGORITHMS[algorithm], ranks)
    after = min(after, len(counts) - 1)
    return plot.chunks(counts, [after], f"{algorithm}, {ranks} ranks: after round {after} of {len(counts) - 1}")


plot.sliders(one_round, algorithm=list(ALGORITHMS), ranks=[2, 3, 4, 5, 6, 7, 8], after=list(range(15)))

# %% [markdown]
# What does it cost? Everybody sends in every round, and each message is an eighth of x.

# %%
ring = summing(ring_allreduce)
print(f"naive {1e3 * naive.seconds:.0f} ms, ring {1e3 * ring.seconds:.1f} ms")
for name, done in (("naive", naive), ("ring", ring)):
    print(f"{name}: the busiest rank sends {done.traffic.sum(axis=1).max() / 1e6:.0f} MB")
assert naive.seconds > 7 * ring.seconds
plot.traffic(ring.events, "The ring: every link carries the same")
None

# %% [markdown]
# Each rank sends 2 (p - 1) chunks of n / p numbers: **2 n (p - 1) / p**. For 8 ranks that is 1.75 n, for 256 it is 1.99
# n. It hardly grows. And nobody can do with less: each of the p - 1 other arrays has to get out of a rank somehow
# (Patarasuk & Yuan, 2009).
#
# Lengths that p does not divide, or shorter than p, only make chunks uneven or empty. Counted on three ranks:

# %%
print("numbers   bytes sent by ranks 0, 1, 2      2 n (p - 1) / p")
for n in (12, 11, 3, 2, 1, 0):
    sent = summing(ring_allreduce, 3, n).traffic.sum(axis=1)
    chunks = [n * (i + 1) // 3 - n * i // 3 for i in range(3)]
    assert sent.sum() == 4 * n * 8 and all(abs(s - 8 * 4 * n / 3) <= 2 * 8 for s in sent)
    print(f"{n:7} {sent[0]:9} {sent[1]:6} {sent[2]:6} {8 * 4 * n / 3:20.1f}")

# %% [markdown]
# Exercise `e05_ring_allreduce`: write it. The checker counts every byte.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e05_ring_allreduce

# %% [markdown]
# ## What a message costs
#
# Sending n bytes takes **alpha + n beta** seconds: alpha to get going, beta a byte. Adding a byte takes gamma. So the
# ring takes
#
# $$2 (p - 1) \alpha + 2 n \frac{p - 1}{p} \beta + n \frac{p - 1}{p} \gamma$$
#
# The virtual clock agrees to the last digit (adding takes it no time).

# %%
link = LINKS["10 GbE"]
cost = Cost(alpha=link.latency, beta=1 / link.bandwidth)
for p in (2, 3, 7, 8):
    by_clock, by_formula = summing(ring_allreduce, p).seconds, seconds("ring", p, 8 * N, cost)
    assert abs(by_clock / by_formula - 1) < 1e-3
    print(f"{p} ranks: {1e3 * by_clock:.3f} ms on the clock, {1e3 * by_formula:.3f} ms by formula")

# %% [markdown]
# Now short arrays. 64 bytes over 256 ranks take the ring 510 alphas, and next to nothing else.
#
# **Recursive doubling** takes 8 rounds. In the first one neighbours exchange **all** of x, in the second ranks two
# apart, then four apart. After k rounds each rank has the sum of 2^k.

# %%
plot.chunks(rounds(ALGORITHMS["doubling"], 4, 1), title="Recursive doubling: each round doubles who is in the sum")
None

# %%
plot.chunks(rounds(ALGORITHMS["doubling"], 6, 1), title="Six ranks: two are too many. They give theirs away, and wait")
None

# %% [markdown]
# Few rounds, many bytes: n in each round. **Rabenseifner's** algorithm (2004) has both, 2 lg p rounds and the ring's
# bytes: halves go to the partner, then quarters, and back.
#
# On 16 ranks and 10 Gbit/s, by the virtual clock:

# %%
SIZES = [2**k for k in range(3, 22, 2)]
names = ["naive", "tree", "doubling", "rabenseifner", "ring"]
table = {name: [1e6 * summing(ALGORITHMS[name], 16, nbytes // 8).seconds for nbytes in SIZES] for name in names}
figure = plot.lines(
    SIZES, table, "bytes", "microseconds", "Short arrays: few rounds win. Long ones: few bytes win (16 ranks)"
)
figure.axes[0].set_yscale("log")
figure.axes[0].set_xticks(SIZES, [f"{s} B" if s < 1024 else f"{s // 1024} kB" for s in SIZES], rotation=40)
None

# %%
for name in names[1:]:
    for nbytes, us in zip(SIZES, table[name]):
        assert abs(us / (1e6 * seconds(name, 16, nbytes, cost)) - 1) < 0.05
print("by formula, 16 ranks:", ", ".join(f"{name} from {nbytes} B on" for nbytes, name in crossovers(16, cost)))

# %% [markdown]
# Why is there a ring at all, if Rabenseifner is never slower? The picture knows one link for any two ranks. Real
# networks are wired in a certain way, and the ring asks for neighbours only. With p no power of two, Rabenseifner sends
# twice the bytes. NCCL uses rings and trees.
#
# Exercise `e05_recursive_doubling`: write it, for any number of ranks.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e05_recursive_doubling

# %% [markdown]
# ## Nodes
#
# Four machines with four GPUs each. Inside a machine there is NVLink, between machines 10 Gbit/s, which all four share.
# A ring in the order of ranks crosses four times, with one message at a time. Recursive doubling lets all four talk to
# other machines at once. Here 200 000 numbers a rank.

# %%
nodes = Topology(nodes=[rank // 4 for rank in range(16)], inside="NVLink 1", between="10 GbE")
for name in ("doubling", "rabenseifner", "ring"):
    print(f"{name:13} {1e3 * summing(ALGORITHMS[name], 16, N // 5, nodes).seconds:6.1f} ms")
print(f"two levels    {1e3 * summing(hierarchical_allreduce, 16, N // 5, nodes).seconds:6.1f} ms")


# %% [markdown]
# Two levels: first a sum inside each machine, then one rank of each talks to the others, then back. ChainerMN called
# its version "hierarchical". Lesson 06 builds it.
#
# ## Which sum?
#
# Floating-point addition is not associative. (a + b) + c and a + (b + c) may differ in the last bit. So the order in
# which ranks are added up shows.

# %%
def sums(function, p, n=10_000):
    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(n).astype(np.float32)
        function(comm, x)
        return x

    return run(program, p).results


by_name = {name: sums(function, 7) for name, function in ALGORITHMS.items()}
exact = sum(np.random.default_rng(r).standard_normal(10_000).astype(np.float32).astype(float) for r in range(7))
for name, results in by_name.items():
    alike = all(x.tobytes() == results[0].tobytes() for x in results)
    differ = int((results[0] != by_name["naive"][0]).sum())
    off = float(np.abs(results[0] - exact).max())
    print(f"{name:13} all ranks the same bits: {alike}. Differs from naive in {differ:4} of 10000, off by {off:.0e}")
    assert alike and off < 7 * 2**-23 * 20


# %% [markdown]
# Two promises, and they are not the same.
#
# - **All ranks get the same bits.** All of these algorithms keep it: each number is added up in one place and copied,
#   or both partners add the same two numbers, and a + b is b + a. A ring in which every rank adds up all arrays in
#   the order in which they pass would break it. Then replicas of a model drift apart, slowly.
# - **Each run gives the same bits.** Another algorithm, another number of ranks, another cut: another order, other
#   bits. A library that picks by size, or by who comes first, may not even repeat itself. MPI's standard only
#   recommends it.

# %%
def each_in_its_own_order(comm, x):
    """All arrays go round, and each rank adds them as they pass."""
    own = x.copy()
    for _ in range(comm.size - 1):
        comm.Sendrecv_replace(own, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
        x += own


results = sums(each_in_its_own_order, 7)
differ = int((results[0] != results[3]).sum())
print(f"ranks 0 and 3 differ in {differ} of 10000 numbers")
assert differ > 100

# %% [markdown]
# ## This machine
#
# Now real ranks. Two processes measure their own alpha, beta and gamma: from a ping-pong of long messages, from
# adding, and from some sums. Then they sum arrays of many sizes, by hand, by MPI's own Allreduce and by gloo, which
# PyTorch uses on CPUs. All in one run, in turns.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)
# !mpcourse bench crossovers --np 2 --runs 1 --json > scratch/crossovers.json

# %% tags=["nbval-ignore-output"]
records = json.loads(Path("scratch/crossovers.json").read_text())["records"]
measured = {r["what"]: r["median"] for r in records}
mine = Cost(
    alpha=1e-6 * measured["alpha: a message"],
    beta=1e-9 / measured["1/beta: sending"],
    gamma=1e-9 / measured["1/gamma: adding"],
)
print(f"alpha {1e6 * mine.alpha:.1f} us, beta {1e9 * mine.beta:.3f} ns a byte, gamma {1e9 * mine.gamma:.3f} ns a byte")
sizes = sorted({int(what.split()[0]) for what in measured if " B: " in what})
rows = {}
for name in ("doubling", "ring"):
    rows[name] = [measured[f"{n} B: {name}"] for n in sizes]
    rows[f"{name}, by formula"] = [1e6 * seconds(name, 2, n, mine) for n in sizes]
for name in ("MPI", "gloo"):
    rows[name] = [measured[f"{n} B: {name}"] for n in sizes]
figure = plot.lines(sizes, rows, "bytes", "microseconds", "Two ranks on this machine, by hand and by libraries")
figure.axes[0].set_yscale("log")
figure.axes[0].set_xticks(sizes, [f"{s} B" if s < 1024 else f"{s // 1024} kB" for s in sizes], rotation=40)
for line, formula in (figure.axes[0].lines[:2], figure.axes[0].lines[2:4]):
    formula.set(color=line.get_color(), linestyle="--", marker="")
figure.axes[0].legend(fontsize=8, frameon=False)
None

# %% tags=["nbval-ignore-output"]
for r in records:
    if "is best from" in r["what"]:
        print(f"{r['what']} {r['median']:.0f} B on")

# %% [markdown]
# Three things to see.
#
# - **The left**: by hand we lose to MPI, about by half. It is not the messages. It is Python around them, some
#   microseconds each, and alpha holds that, too.
# - **The middle**: the crossover is somewhere near the predicted one. Near it both take the same, so it hardly matters
#   where exactly it is. With two ranks the ring and Rabenseifner do the same thing.
# - **The right**: long arrays cost bytes, and Python is out of the way. The lines come together.
#
# From megabytes on, by hand wins. `allreduce` sends chunks in pieces of half a megabyte, and adds each piece while it
# is in the core's cache. `mpcourse bench allreduce --np 2` measures it beside MPI and gloo, and what copying alone
# takes.
#
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `ring_allreduce` | NCCL's ring; Baidu's and Horovod's first all-reduce (2017) |
# | `recursive_doubling_allreduce`, `rabenseifner_allreduce` | inside MPI_Allreduce, picked by size |
# | `tree_allreduce` | NCCL's double binary trees (2.4, 2019), with pipelining |
# | `hierarchical_allreduce` | ChainerMN's `hierarchical` communicator; NCCL across nodes |
# | `ring_reduce_scatter`, `ring_allgather` | the two halves; ZeRO and FSDP use each alone |
# | `allreduce(comm, x, cost=...)` | the tuning tables of Open MPI, MPICH and NCCL |
# | the deadlock's picture | `TORCH_DISTRIBUTED_DEBUG`, NCCL's flight recorder, after a timeout |
#
# What is missing here: sums in the network's switches (SHARP), chunks small enough to be under way in all links at
# once, and GPUs that add without asking their host.
#
# Next comes lesson 06: what ChainerMN made of an all-reduce. It is being written.
