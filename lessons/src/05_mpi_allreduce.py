# %% [markdown]
# # 05 All-reduce by hand
#
# **How do ranks agree on a sum?** About 35 minutes to read, and 90 for its exercises.
#
# Each of 256 processes has a gradient of 25 million elements of float32, and all of them need the sum of all gradients.
# That is an all-reduce. If each process sends its gradient to all others, each sends 25 GB. In a ring each sends 0.2
# GB, and no algorithm in which only the processes add needs less.
#
# On the way the lesson shows how processes communicate, why they hang, and what a message costs.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("05_mpi_allreduce")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import json
from functools import partial
from pathlib import Path
from textwrap import fill

import numpy as np

from mpcourse import plot
from mpcourse.collectives import ALGORITHMS, hierarchical_allreduce, ring_allreduce, rounds
from mpcourse.collectives.cost import Cost, crossovers, seconds
from mpcourse.virtual import LINKS, MPI, ClusterError, Deadlock, Topology, run

N = 1_000_000  # elements a rank


# %% [markdown]
# ## A rank
#
# `mpirun -np 3 python program.py` starts the same program three times. Each process is a rank: it has a number, memory
# of its own, and a communicator, through which it exchanges messages.
#
# A notebook is one process. So here ranks are virtual: `run(program, 3)` calls `program(comm)` on three virtual ranks,
# and `comm` has mpi4py's methods. The same function runs under mpirun. If it uses `MPI`, import that from mpi4py then,
# in place of `mpcourse.virtual`.

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
# `comm.Recv(y, source)` writes into `y`. Training uses the second kind. A message carries a number, its tag (0 by
# default); a receive accepts any tag unless one is given.
#
# MPI has a call for what this lesson builds by hand. It is a **collective** call: all ranks make it together.

# %%
def mean_by_call(comm):
    x = np.full(3, comm.rank + 1.0)
    comm.Allreduce(MPI.IN_PLACE, x)  # the sum of all x, on all ranks; torch.distributed.all_reduce does the same
    return x / comm.size


assert all((x == 2.0).all() for x in run(mean_by_call, 3).results)


# %% [markdown]
# ## Eight collectives
#
# Data parallelism needs the all-reduce, and a **broadcast** in the beginning. ZeRO (lesson 11) and other kinds of
# parallelism need the others: **reduce**, **scatter**, **gather**, **all-gather**, **reduce-scatter** and
# **all-to-all**. The next cell runs them on four ranks. In the picture each box is an element of a rank's array. Its
# colour and its letter are the rank that it comes from (A is rank 0), its digit the place that it had there. A striped
# box is a sum over ranks. A white box holds nothing that matters.

# %%
def before_and_after(call, before):
    def program(comm):
        x, y = before[comm.rank].copy(), np.zeros_like(before[comm.rank])
        call(comm, x, y)
        return y

    return before, np.stack(run(program, len(before)).results)


def broadcast(comm, x, y):
    comm.Bcast(x)  # rank 0 is the root, unless another one is named
    y[:] = x


def reduce(comm, x, y):
    comm.Reduce(x, y if comm.rank == 0 else None)


def scatter(comm, x, y):
    comm.Scatter(x if comm.rank == 0 else None, y[:1])


def gather(comm, x, y):
    comm.Gather(x[:1], y if comm.rank == 0 else None)


def all_gather(comm, x, y):
    comm.Allgather(x[:1], y)


def reduce_scatter(comm, x, y):
    comm.Reduce_scatter_block(x, y[:1])


def all_reduce(comm, x, y):
    comm.Allreduce(x, y)


def all_to_all(comm, x, y):
    comm.Alltoall(x, y)


each = plot.marked(4)
root, one = each.copy(), each.copy()
root[1:], one[:, 1:] = 0, 0  # what rank 0 alone has; and an element of each rank
given = (
    (broadcast, root), (reduce, each), (scatter, root), (gather, one),
    (all_gather, one), (reduce_scatter, each), (all_reduce, each), (all_to_all, each),
)  # fmt: skip
found = {call.__name__.replace("_", "-"): before_and_after(call, before) for call, before in given}
plot.collectives(found, "What each rank has before the call, and after it")
None

# %% [markdown]
# **Predict first.** An all-reduce can be made of two other collectives, one after the other. There are two such pairs.
# Which?

# %%
_, summed = found["all-reduce"]
_, by_root = before_and_after(broadcast, found["reduce"][1])
_, by_shares = before_and_after(all_gather, found["reduce-scatter"][1])
assert (by_root == summed).all() and (by_shares == summed).all()
print("reduce, then broadcast; and reduce-scatter, then all-gather")


# %% [markdown]
# In the first pair all of the sum has to be added up by rank 0 and leave it again. In the second pair each rank adds up
# a share. ZeRO uses the two halves of the second pair separately.
#
# ## A deadlock
#
# Two ranks exchange arrays. Each of them sends first, and then receives.

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
for line in str(stuck).splitlines():
    print(fill(line, 100))

# %%
plot.deadlock(stuck)
None

# %% [markdown]
# (`cell:4` is line 4 of the cell that was run. An arrow leads to the rank that is waited for.)
#
# On virtual ranks `Send` returns once its receiver has begun to receive. Both ranks wait for that, and neither of them
# receives before its own `Send` has returned. MPI's standard allows a `Send` to wait for its receiver.
#
# The standard does not require it to wait, and that is the danger. Most implementations of MPI copy a short message and
# let the sender continue, which is called the **eager** protocol. Only a longer message waits for its receiver, which
# is called **rendezvous**. So the same program works until it is used for a larger model. Virtual ranks copy nothing by
# default. With `eager=n`, messages of fewer than n bytes do not wait.

# %%
works = run(lambda comm: swap(comm, 1000), 2, eager=65536)
assert works.results == [1.0, 0.0]
try:
    run(lambda comm: swap(comm, 10_000), 2, eager=65536)
except Deadlock:
    print("8 kB pass by luck; 80 kB hang")


# %% [markdown]
# There are two ways out. `Sendrecv` sends and receives at the same time. The **non-blocking** `Isend` and `Irecv` only
# start a transfer, and return a request at once (in PyTorch that is the `Work` that `async_op=True` returns). Until the
# request's `Wait` has returned, do not change the array that is sent, nor read the one that is received.

# %%
def swap_at_once(comm, n):
    mine, theirs, again = np.full(n, float(comm.rank)), np.empty(n), np.empty(n)
    other = 1 - comm.rank
    comm.Sendrecv(mine, other, recvbuf=theirs, source=other)
    requests = [comm.Isend(mine, other), comm.Irecv(again, other)]
    MPI.Request.Waitall(requests)
    return theirs[0], again[0]


assert run(lambda comm: swap_at_once(comm, 10_000), 2).results == [(1.0, 1.0), (0.0, 0.0)]


# %% [markdown]
# Exercise [`e05_exchange`](../exercises/e05_exchange.py): each rank sends an array to the next one, in a circle.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e05_exchange

# %% [markdown]
# Virtual ranks name other mistakes, too. With real MPI these end with an error code, hang, or continue with wrong data.

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
        print(fill(f"{program.__name__}: {str(error).splitlines()[-1]}", 100), end="\n\n")


# %% [markdown]
# ## The naive all-reduce
#
# All ranks send their arrays to rank 0, which adds them up and sends the sum to all. The next cell does so with eight
# ranks and a million elements on each. Each rank has one link into the network, of 10 Gbit/s each way (**full
# duplex**): it sends one message at a time and receives one at a time, and may do both at once.

# %%
def summing(function, p=8, n=N, link="10 GbE"):
    """All ranks sum arrays of n elements by `function`; the run, once its result has been checked."""

    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(n)
        function(comm, x)
        return x

    done = run(program, p, link)
    want = sum(np.random.default_rng(rank).standard_normal(n) for rank in range(p))
    assert all(np.allclose(x, want, atol=1e-12) for x in done.results)
    return done


naive = summing(ALGORITHMS["naive"])
link = LINKS["10 GbE"]
print(f"one array over this link: {1e3 * link.seconds(8 * N):.1f} ms ({link.bandwidth / 1e9:.2f} GB/s net)")
print(f"the sum: {1e3 * naive.seconds:.0f} ms")
plot.traffic(naive.events, "Reduce and broadcast, naively: everything passes rank 0")
None

# %% [markdown]
# Rank 0 sends and receives seven arrays. Its link is the bottleneck, and the others wait. With 256 ranks it would be
# 255 arrays.
#
# ## The ring
#
# Each of p ranks has an array x, which it cuts into p chunks. In a **ring all-reduce** each rank sends to the next one
# only, and the last one to rank 0.
#
# - In p - 1 rounds each rank sends a chunk to the next rank, receives another chunk from the rank before, and **adds**
#   it to its own. This half is a reduce-scatter.
# - In p - 1 more rounds each rank sends a complete chunk, receives another one, and **keeps** it. This half is an
#   all-gather.
#
# In the picture a box is a chunk, and a column holds the same chunk of all ranks. A stripe in a box stands for a rank
# whose elements are in that chunk's sum.

# %%
counts = rounds(ring_allreduce, 4)
assert (counts[-1] == 1).all()
plot.chunks(counts, title="The ring with four ranks: three rounds that add, three that copy")
None


# %% [markdown]
# In round 1 rank 0 sends its chunk 0 to rank 1. In round 2 rank 1 sends its chunk 0, which is the sum of two now, to
# rank 2, and so on. After round 3 each rank holds one complete chunk. From then on complete chunks are sent.
#
# Step through the rounds with the sliders, also with other numbers of ranks and other algorithms.

# %% tags=["nbval-ignore-output"]
def one_round(algorithm="ring", ranks=4, after=1):
    counts = rounds(ALGORITHMS[algorithm], ranks)
    after = min(after, len(counts) - 1)
    return plot.chunks(counts, [after], f"{algorithm}, {ranks} ranks: after round {after} of {len(counts) - 1}")


plot.sliders(one_round, algorithm=list(ALGORITHMS), ranks=[2, 3, 4, 5, 6, 7, 8], after=list(range(15)))

# %% [markdown]
# **Predict first.** Let x have n bytes. With eight ranks every rank sends an eighth of x in every round. How many bytes
# does a rank send in all, and how many would it send with 256 ranks?

# %%
ring = summing(ring_allreduce)
print(f"naive {1e3 * naive.seconds:.0f} ms, ring {1e3 * ring.seconds:.1f} ms")
for name, done in (("naive", naive), ("ring", ring)):
    print(f"{name}: the busiest rank sends {done.traffic.sum(axis=1).max() / N / 8:.2f} n")
assert naive.seconds > 7 * ring.seconds
assert ring.traffic.sum(axis=1).tolist() == [1.75 * 8 * N] * 8
plot.traffic(ring.events, "The ring: every rank sends the same, to the next one only")
None

# %% [markdown]
# Each rank sends 2 (p - 1) chunks of n / p bytes: **2 n (p - 1) / p** bytes. With 8 ranks that is 1.75 n, with 256 it
# is 1.99 n, so it hardly grows. In any algorithm in which only the ranks add, the rank that sends most sends at least
# as much (Patarasuk & Yuan, 2009).
#
# If x has fewer than p elements, or p does not divide their number, some chunks are empty, or longer than others. The
# next cell counts the bytes that three ranks send.

# %%
print("elements  bytes sent by ranks 0, 1, 2  2 n (p - 1) / p bytes")
for n in (12, 11, 3, 2, 1, 0):
    sent = summing(ring_allreduce, 3, n).traffic.sum(axis=1)
    assert sent.sum() == 4 * n * 8 and all(abs(s - 8 * 4 * n / 3) <= 2 * 8 for s in sent)
    print(f"{n:7} {sent[0]:9} {sent[1]:6} {sent[2]:6} {8 * 4 * n / 3:20.1f}")

# %% [markdown]
# Exercise [`e05_ring_allreduce`](../exercises/e05_ring_allreduce.py): write it. The checker counts every byte.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e05_ring_allreduce

# %% [markdown]
# ## What a message costs
#
# Sending n bytes takes **alpha + n beta** seconds: the latency alpha, and the inverse bandwidth beta for each byte.
# Adding a byte takes gamma. So for an x of n bytes the ring takes
#
# $$2 (p - 1) \alpha + 2 n \frac{p - 1}{p} \beta + n \frac{p - 1}{p} \gamma$$
#
# The virtual clock agrees to within 0.1 %. (Adding takes no time on it.)

# %%
cost = Cost(alpha=link.latency, beta=1 / link.bandwidth)
for p in (2, 3, 7, 8):
    by_clock, by_formula = summing(ring_allreduce, p).seconds, seconds("ring", p, 8 * N, cost)
    assert abs(by_clock / by_formula - 1) < 1e-3
    print(f"{p} ranks: {1e3 * by_clock:.3f} ms on the clock, {1e3 * by_formula:.3f} ms by formula")
assert round(seconds("ring", 256, 64, cost) / cost.alpha, 1) == 510

# %% [markdown]
# For short arrays the ring is slow: with 64 bytes on 256 ranks it takes 510 times the latency, and hardly anything
# else.
#
# **Recursive doubling** takes 8 rounds on 256 ranks. In the first round neighbours exchange all of x and add, in the
# second round ranks two apart do, in the third ranks four apart. After k rounds each rank has the sum of 2^k ranks'
# arrays.

# %%
plot.chunks(rounds(ALGORITHMS["doubling"], 4, 1), title="Recursive doubling: each round doubles who is in the sum")
None

# %%
plot.chunks(rounds(ALGORITHMS["doubling"], 6, 1), title="Six ranks: two give their arrays away, and wait")
None

# %% [markdown]
# Six is no power of two. So ranks 0 and 2 send their arrays to 1 and 3. Four ranks are left, 1, 3, 4 and 5, which
# exchange as above (4 and 5 already in round 1, for they need nothing of the others). In the last round 1 and 3 send
# the sum back. It does not matter which ranks give their arrays away.
#
# Recursive doubling has few rounds and sends many bytes: n in each round. A **tree** adds up pairs, then pairs of
# pairs, up to rank 0, and sends the sum down in the same way, which takes twice as many rounds.
#
# **Rabenseifner's algorithm** (2004) has few rounds and sends few bytes. In the first round each rank splits x in
# halves with its neighbour: it sends one half, and adds what it receives to the other. In the next round it splits its
# half with a rank two apart, then its quarter with a rank four apart, and so on. That makes a reduce-scatter, and an
# all-gather in the reverse order follows.

# %%
plot.chunks(rounds(ALGORITHMS["rabenseifner"], 4), title="Rabenseifner: halves, quarters, and back")
None

# %% [markdown]
# The next cell runs all five algorithms on 16 ranks with 10 Gbit/s, and reads the virtual clock.

# %%
SIZES = [2**k for k in range(3, 22, 2)]
names = ["naive", "tree", "doubling", "rabenseifner", "ring"]
table = {name: [1e6 * summing(ALGORITHMS[name], 16, nbytes // 8).seconds for nbytes in SIZES] for name in names}
title = "16 ranks: few rounds win for short arrays, few bytes for long ones"
plot.label_bytes(plot.lines(SIZES, table, "bytes", "microseconds", title, log_y=True), SIZES)
None

# %%
for name in names[1:]:
    for nbytes, us in zip(SIZES, table[name]):
        assert abs(us / (1e6 * seconds(name, 16, nbytes, cost)) - 1) < 0.05
assert all(a <= b for a, b in zip(table["rabenseifner"], table["ring"]))
print("by formula, 16 ranks:", ", ".join(f"{name} from {nbytes} B on" for nbytes, name in crossovers(16, cost)))

# %% [markdown]
# Why are rings used at all, if Rabenseifner's algorithm is never slower here? The first reason is that this p is a
# power of two. Otherwise some ranks send all of their array to another rank first, and get the sum back in the end. All
# ranks wait for that, and it takes the time of 2 n bytes. The second reason is that here any two ranks have the same
# link between them. Real networks have fast and slow links, some of which ranks share: that is the network's
# **topology**. A ring needs fast links between neighbours only.

# %%
for name in ("rabenseifner", "ring"):
    done = summing(ALGORITHMS[name], 7)
    print(f"7 ranks, {name:12} {1e3 * done.seconds:.1f} ms, busiest sends {done.traffic.sum(1).max() / N / 8:.2f} n")
assert done.seconds < 0.6 * summing(ALGORITHMS["rabenseifner"], 7).seconds

# %% [markdown]
# Exercise [`e05_recursive_doubling`](../exercises/e05_recursive_doubling.py): write it, for any number of ranks.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e05_recursive_doubling

# %% [markdown]
# ## Nodes
#
# Four machines (nodes) have four GPUs each, and a rank for each GPU. Ranks of one machine are joined by NVLink. Each
# machine has one link of 10 Gbit/s to the others, which its four ranks share. In a ring in the order of ranks this link
# carries one message a round. In the last two rounds of recursive doubling all four ranks exchange with another machine
# at once, so four messages share the link. The next cell runs several algorithms with 200 000 elements on each rank,
# which are n bytes.
#
# **Predict first.** In Rabenseifner's algorithm partners may also be paired in the opposite order, the farthest first
# (`far_first`). Every rank then sends as many bytes in as many rounds. Does the order change the time? And does it
# matter which machine has which ranks?

# %%
nodes = Topology(nodes=[rank // 4 for rank in range(16)], inside="NVLink 1", between="10 GbE")
far_first = partial(ALGORITHMS["rabenseifner"], far_first=True)
ways = {name: ALGORITHMS[name] for name in ("doubling", "ring", "rabenseifner")}
ways |= {"rabenseifner, far first": far_first, "two levels": hierarchical_allreduce}
in_turn = Topology(nodes=[rank % 4 for rank in range(16)], inside="NVLink 1", between="10 GbE")
took = {}
for name, way in ways.items():
    for placed, topology in (("machine by machine", nodes), ("in turn", in_turn)):
        done = summing(way, 16, N // 5, topology)
        away = np.not_equal.outer(topology.nodes, topology.nodes)  # from one machine to another
        left = [(done.traffic * away)[np.equal(topology.nodes, node)].sum() for node in range(4)]
        wire = max(left) / (8 * N // 5)
        took[name, placed] = 1e3 * done.seconds
        print(f"{name:24} ranks {placed:19} {took[name, placed]:5.1f} ms, {wire:5.2f} n leave a machine")
near, far = (took[name, "machine by machine"] for name in ("rabenseifner", "rabenseifner, far first"))
assert far > 3 * near and took["rabenseifner", "in turn"] > 3 * took["rabenseifner, far first", "in turn"]
two_levels = [took["two levels", placed] for placed in ("machine by machine", "in turn")]
assert max(two_levels) < 1.1 * near and max(two_levels) < 1.1 * min(two_levels)


# %% [markdown]
# Both matter. The longest messages are half the array. With the nearest partners first they stay inside a machine, and
# only eighths and sixteenths leave it. With the farthest first, halves and quarters leave it: four times the bytes, and
# more than three times the time (the latency of the rounds does not grow). So the order of the rounds has to suit the
# topology. Nearest first is the published order, and MPICH's. It is of use only if ranks are numbered machine by
# machine. If a launcher places ranks on machines in turn, the partner with the nearest number is on another machine. A
# ring then sends everything over the network.
#
# A **hierarchical all-reduce** ("two levels") does not depend on how ranks are numbered. It sums inside each machine;
# then one rank of each machine exchanges with those of the others; then it broadcasts the sum inside each machine.
# ChainerMN's communicator of that name does this.
#
# ## Which sum?
#
# Floating-point addition is not associative: (a + b) + c and a + (b + c) may differ in the last bits. So the result of
# an all-reduce depends on the order in which the ranks' values are added. The next cell sums the same arrays on seven
# ranks by each of the five algorithms.

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
tree = by_name["tree"][0]
assert all(by_name[name][0].tobytes() == tree.tobytes() for name in ("doubling", "rabenseifner"))
assert all(4000 < (by_name[name][0] != tree).sum() < 6000 for name in ("naive", "ring"))


# %% [markdown]
# There are two properties, and they are not the same.
#
# - **All ranks get the same bits.** The five algorithms have this property: each element is added up in one place and
#   copied, or both partners add the same two values, and a + b is b + a. A ring in which every rank adds all arrays in
#   the order of their arrival does not have it, as the next cell shows. With such a sum the replicas of a model slowly
#   become different.
# - **Each run gives the same bits.** This holds as long as the order of the additions is the same. Another algorithm
#   may add in another order. Of the five here three add in the same order (the tree, doubling and Rabenseifner's). The
#   results of the naive all-reduce and of the ring differ from theirs in about half of the elements. So a library that
#   chooses its algorithm by size, or adds in the order of arrival, may not repeat its own result. MPI's standard
#   recommends that the same call gives the same bits again, but does not require it.

# %%
def each_in_its_own_order(comm, x):
    """All arrays go round, and each rank adds them as they pass."""
    own = x.copy()
    for _ in range(comm.size - 1):
        comm.Sendrecv_replace(own, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
        x += own


results = sums(each_in_its_own_order, 7)
differ = int((results[0] != results[3]).sum())
print(f"ranks 0 and 3 differ in {differ} of 10000 elements")
assert differ > 100

# %% [markdown]
# ## This machine
#
# Now the ranks are real. Two processes measure their own alpha, beta and gamma: from long messages that go to and fro,
# from adding, and from some all-reduces. Then they all-reduce arrays of many sizes: by doubling, by the ring, by MPI's
# own `Allreduce`, by gloo, which PyTorch uses on CPUs, and by the course's own `allreduce`, of which more below. In
# each of three runs these take turns. (With two ranks the ring sends as many bytes as doubling, in one message more,
# and each rank adds only half of the elements. So by the formula it saves n gamma / 2 and loses alpha.)

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)
# !mpcourse bench crossovers --np 2 --runs 3 --json > scratch/crossovers.json

# %% tags=["nbval-ignore-output"]
records = json.loads(Path("scratch/crossovers.json").read_text())["records"]
measured, runs = ({r["what"]: r[which] for r in records} for which in ("median", "runs"))
mine = Cost(
    alpha=1e-6 * measured["alpha: a message"],
    beta=1e-9 / measured["1/beta: sending"],
    gamma=1e-9 / measured["1/gamma: adding"],
)
print(f"alpha {1e6 * mine.alpha:.1f} us, beta {1e9 * mine.beta:.3f} ns a byte, gamma {1e9 * mine.gamma:.3f} ns a byte")
sizes = sorted({int(what.split()[0]) for what in measured if " B: " in what})
labels = [f"{s} B" if s < 1024 else f"{s // 1024} KiB" if s < 1 << 20 else f"{s >> 20} MiB" for s in sizes]


def drawn(rows, title):
    figure = plot.lines(sizes, rows, "bytes", "microseconds", title, log_y=True)
    plot.label_bytes(figure, sizes)
    return figure.axes[0]


took = {name: [measured[f"{n} B: {name}"] for n in sizes] for name in ("doubling", "ring", "allreduce", "MPI", "gloo")}
formulas = {f"{name}, formula": [1e6 * seconds(name, 2, n, mine) for n in sizes] for name in ("doubling", "ring")}
rows = {name: took[name] for name in ("doubling", "ring")} | formulas
axis = drawn(rows, "Doubling and the ring on two real ranks, measured and by formula")
for line, formula in zip(axis.lines[:2], axis.lines[2:]):
    formula.set(color=line.get_color(), linestyle="--", marker="")
axis.legend(fontsize=8, frameon=False)
by_formula = [n for n, a, b in zip(labels, *formulas.values()) if b < a]
by_clock = [n for n, s in zip(labels, sizes) if max(runs[f"{s} B: ring"]) < min(runs[f"{s} B: doubling"])]
print(f"the ring wins by formula at {', '.join(by_formula) or 'none'}")
print(f"in each of the three runs at {', '.join(by_clock) or 'none'}")
for name in ("doubling", "ring"):
    off = [clock / formula for clock, formula in zip(took[name], formulas[f"{name}, formula"])]
    print(f"{name:8} measured / formula:", ", ".join(f"{n} {factor:.1f}" for n, factor in zip(labels, off)))

# %% [markdown]
# The formula has the same three parameters for all sizes. The last two lines show by which factor it is off, which was
# up to about three in our runs. Part of alpha is the time of Python around a message. The formula leaves out that
# MPI changes its protocol with the size (eager, rendezvous), nor what a new receive buffer costs; that of doubling is
# twice as long as that of the ring. Long arrays exceed the cores' caches, and a byte then costs more than the formula's
# beta and gamma. Where the ring wins at smaller sizes than by formula, look at doubling's factor there. The two are
# told apart only where one of them wins in each of the three runs.
#
# How fast are libraries? The course's `allreduce` chooses recursive doubling, the ring or Rabenseifner's algorithm by
# their formulas, and sends long arrays in pieces of half a megabyte, so that each piece can be added while it is in the
# core's cache.

# %% tags=["nbval-ignore-output"]
rows = {name: took[name] for name in ("allreduce", "MPI", "gloo")}
drawn(rows, "Two real ranks: the course's allreduce, MPI's and gloo's")
print("size        MPI / allreduce (three runs)   gloo / allreduce (three runs)")
for label, size in zip(labels, sizes):
    shown = ""
    for other in ("MPI", "gloo"):
        ratios = sorted(b / a for a, b in zip(runs[f"{size} B: allreduce"], runs[f"{size} B: {other}"]))
        shown += f"{ratios[1]:15.2f} ({ratios[0]:.2f} to {ratios[2]:.2f})"
    print(f"{label:>9} {shown}")

# %% [markdown]
# A ratio below 1 means that the library was faster than `allreduce`. Up to 256 KiB MPI was, by a factor of 1.3 to 3.5
# in our runs. For short arrays that is the time of Python around a message. At some hundred KiB it is also that
# `allreduce` chose doubling by its formula where the ring was faster by the clock. gloo exchanges through TCP sockets
# even on one machine, and a call passes several threads: that takes a fraction of a millisecond. MPI and `allreduce`
# use memory that both processes share.
#
# `mpcourse bench allreduce --np 2` goes up to 40 MB, and measures what copying alone takes.

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.collectives import ring_allgather, ring_reduce_scatter
from mpcourse.common.source import reference

reference(ring_allreduce, ring_reduce_scatter, ring_allgather)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `ring_allreduce` | NCCL's ring; Baidu's and Horovod's first all-reduce (2017) |
# | `recursive_doubling_allreduce`, `rabenseifner_allreduce` | inside MPI_Allreduce, picked by size |
# | `tree_allreduce` | the idea of NCCL's double binary trees (2.4, 2019), which are two trees, and pipelined |
# | `hierarchical_allreduce` | ChainerMN's `hierarchical` communicator; NCCL's tree across nodes, a chain inside each |
# | `ring_reduce_scatter`, `ring_allgather` | the two halves; ZeRO and FSDP use each alone |
# | `allreduce(comm, x, cost=...)` | the tuning tables of Open MPI, MPICH and NCCL |
# | the deadlock's picture | PyTorch's flight recorder for NCCL, which tells after a timeout who was where |
# | the error for different collective calls | `TORCH_DISTRIBUTED_DEBUG=DETAIL`, which compares the calls of all ranks |
#
# For an all-reduce `nccl-tests` prints a *bus bandwidth*: 2 n (p - 1) / p bytes divided by the time, which is what a
# link carries in a ring.
#
# What is missing here: sums in the network's switches (SHARP), and collectives that GPUs run without their host.
# All-reduces that run during the backward pass are a subject of lesson 06, and the effect of one slow rank is one of
# lesson 07.
#
# Next comes lesson 06, data parallelism: what ChainerMN built on an all-reduce.
