# %% [markdown]
# # 05 All-reduce by hand
#
# **How do ranks agree on a sum?** About 55 minutes to read, and 90 for its exercises.
#
# Each of 256 processes has a gradient of 25 million float32 elements, and all processes need the sum of all gradients.
# That is an all-reduce. If each process sends its gradient to all others, each sends 25.5 GB. In a ring, each process
# sends 0.2 GB. No algorithm needs less, unless something other than the processes, such as a network switch, does the
# additions.
#
# After this lesson you can
#
# - write an all-reduce that works for any number of ranks and any length of the array;
# - explain why a program of two ranks hangs, and find the fault before it causes a hang;
# - predict the time of an all-reduce from the number of its rounds and bytes, and choose an algorithm by this
#   prediction;
# - call the same operations in PyTorch.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("05_mpi_allreduce")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from functools import partial
from pathlib import Path
from textwrap import fill

import numpy as np

from mpcourse import plot
from mpcourse.collectives import ALGORITHMS, hierarchical_allreduce, ring_allreduce, rounds
from mpcourse.collectives.cost import Cost, crossovers, seconds
from mpcourse.virtual import LINKS, MPI, ClusterError, Deadlock, Topology, run

N = 1_000_000  # elements of each rank's array


# %% [markdown]
# ## Ranks in a notebook
#
# `mpirun -np 3 python program.py` starts the same program three times. Each process is a rank. It has a number, memory
# of its own, and a communicator, through which it exchanges messages with the other ranks.
#
# A notebook is a single process, so this lesson uses virtual ranks. `run(program, 3)` calls `program(comm)` on three of
# them, where `comm` has mpi4py's methods. The same function runs under `mpirun`; there, import `MPI` from mpi4py
# instead of from `mpcourse.virtual`.

# %%
def hello(comm):
    if comm.rank == 0:
        for source in range(1, comm.size):
            print(f"rank 0 got {comm.recv(source=source)!r}")
    else:
        comm.send(f"greetings from rank {comm.rank}", dest=0)


run(hello, 3)
None


# %% [markdown]
# The lower-case methods `send` and `recv` take any Python object and pickle it. The upper-case methods send memory as
# it is: `comm.Send(x, dest)` sends the array `x`, and `comm.Recv(y, source)` writes what arrives into the array `y`.
# Training uses the upper-case methods.
#
# MPI has a ready-made call for the all-reduce that this lesson builds by hand. It is a **collective** call, which all
# ranks of a communicator make together.

# %%
def mean_by_call(comm):
    x = np.full(3, comm.rank + 1.0)
    comm.Allreduce(MPI.IN_PLACE, x)  # afterwards x is the sum of all x, on every rank
    return x / comm.size


run(mean_by_call, 3).results


# %% [markdown]
# ## The collectives
#
# Data parallelism needs an all-reduce in each step, and one **broadcast** at the start. Later lessons need three more
# collectives: ZeRO uses **all-gather** and **reduce-scatter**, and mixture-of-experts models use **all-to-all**. The
# next cell runs eight collectives on four ranks. In the figure, each box is one element of a rank's array. Its letter
# and its colour name the rank that it comes from (A is rank 0), and its digit is its place in that rank's array. A
# striped box is a sum over ranks. A white box holds nothing of interest.

# %%
def before_and_after(call, before):
    def program(comm):
        x, y = before[comm.rank].copy(), np.zeros_like(before[comm.rank])
        call(comm, x, y)
        return y

    return before, np.stack(run(program, len(before)).results)


def broadcast(comm, x, y):
    comm.Bcast(x)  # from rank 0, unless the call names another root
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


everywhere = plot.marked(4)  # all ranks have a whole array
root, first = everywhere.copy(), everywhere.copy()
root[1:], first[:, 1:] = 0, 0  # only rank 0 has an array; each rank has one element
given = (
    (broadcast, root), (reduce, everywhere), (scatter, root), (gather, first),
    (all_gather, first), (reduce_scatter, everywhere), (all_reduce, everywhere), (all_to_all, everywhere),
)  # fmt: skip
found = {call.__name__.replace("_", "-"): before_and_after(call, before) for call, before in given}
plot.collectives(found, "What each rank has before the call, and after it")
None

# %% [markdown]
# **Predict first.** An all-reduce can be built from two simpler collectives, called one after the other. There are two
# such pairs. Which are they?

# %% tags=["answer"]
# answer
_, summed = found["all-reduce"]
_, by_root = before_and_after(broadcast, found["reduce"][1])
_, by_shares = before_and_after(all_gather, found["reduce-scatter"][1])
print("reduce, then broadcast:        ", "equal" if (by_root == summed).all() else "different")
print("reduce-scatter, then all-gather:", "equal" if (by_shares == summed).all() else "different")


# %% [markdown]
# <details><summary>Why</summary>
#
# Reduce, then broadcast: one rank gets the whole sum and sends it to all. Reduce-scatter, then all-gather: each rank
# computes the sum of its share, and then all ranks collect the shares. In the first pair, the whole sum passes through
# rank 0; in the second, the ranks divide the work. ZeRO (lesson 10) uses the two halves of the second pair separately.
#
# </details>
#
# ## A deadlock
#
# Two ranks exchange arrays. Each rank sends first, and then receives.

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
# (`cell:4` is line 4 of the cell above. An arrow points from a rank to the rank that it waits for.)
#
# On virtual ranks, `Send` returns when the receiver has begun to receive. Both ranks wait for that moment, and neither
# receives before its own `Send` has returned. So both wait for ever. The MPI standard allows `Send` to wait in this
# way, but does not require it. This makes the fault dangerous: most MPI libraries send short messages by the **eager**
# protocol, in which they copy the message, and `Send` returns at once. For a longer message, `Send` waits for the
# receiver. The same program therefore works with a small model and hangs with a large one.
#
# By default, virtual ranks copy nothing, so they show the fault for messages of any length. With `eager=65536`, `Send`
# does not wait if the message is shorter than 65 536 bytes.

# %%
for n in (1000, 10_000):
    try:
        run(lambda comm, n=n: swap(comm, n), 2, eager=65536)
        print(f"{8 * n:6} bytes: works")
    except Deadlock:
        print(f"{8 * n:6} bytes: hangs")


# %% [markdown]
# MPI has a method that also shows the fault in a real program. `Ssend` always waits for its receiver. Replace each
# `Send` of a program with `Ssend` and run it once with small arrays. If the program runs to its end, it does not rely
# on MPI's copies of short messages.
#
# There are two ways to repair the exchange. `Sendrecv` sends and receives at the same time. The **non-blocking** calls
# `Isend` and `Irecv` only start a transfer, and return at once with a *request*, a handle for the transfer (PyTorch
# calls it `Work`). Until the request's `Wait` has returned, do not change an array that is being sent, and do not read
# an array that is being received.

# %%
def swap_at_once(comm, n):
    mine, theirs, again = np.full(n, float(comm.rank)), np.empty(n), np.empty(n)
    other = 1 - comm.rank
    comm.Sendrecv(mine, other, recvbuf=theirs, source=other)
    requests = [comm.Isend(mine, other), comm.Irecv(again, other)]
    MPI.Request.Waitall(requests)
    return theirs[0], again[0]


run(lambda comm: swap_at_once(comm, 10_000), 2).results


# %% [markdown]
# Exercise [`e05_exchange`](../exercises/e05_exchange.py): each rank sends an array to the next rank, in a circle.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e05_exchange

# %% [markdown]
# Virtual ranks report other mistakes as well. Under real MPI, each of the next four programs ends with an error code,
# hangs, or continues with wrong data.

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
# In the naive algorithm, all ranks send their arrays to rank 0, which adds them and sends the sum back to all. The next
# cell runs it on eight ranks with a million float64 elements each. Each rank has one link of 10 Gbit/s into the
# network. A rank sends one message at a time and receives one at a time, but can do both at once.

# %%
def summing(function, p=8, n=N, link="10 GbE"):
    """Let p ranks sum arrays of n elements by `function`. Return the run once the result has been checked."""

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
print(f"one array over one link: {1e3 * link.seconds(8 * N):.1f} ms, at {link.bandwidth / 1e9:.2f} GB/s")
print(f"the sum: {1e3 * naive.seconds:.0f} ms")
plot.sent(naive.events, "Naive: rank 0 sends and receives seven arrays of 8 MB")
None

# %% [markdown]
# The link of rank 0 is the bottleneck, and the other ranks wait. With 256 ranks, rank 0 would receive and send 255
# arrays.
#
# ## The ring
#
# In a **ring all-reduce**, each rank sends only to the next rank, and the last rank sends to rank 0. Each of the p
# ranks cuts its array x into p chunks. The algorithm has two halves.
#
# - For p - 1 rounds, each rank sends one chunk to the next rank, receives another chunk from the previous rank, and
#   *adds* it to its own copy of the same chunk. This half is a reduce-scatter.
# - For p - 1 more rounds, each rank sends a finished chunk, receives another finished chunk, and *keeps* it. (A
#   finished chunk holds the sum over all ranks.) This half is an all-gather.
#
# The next figure shows the ring for four ranks. A column shows the same chunk on all ranks. A box with several stripes
# is a sum, with one stripe for each rank whose chunk has been added.

# %%
counts = rounds(ring_allreduce, 4)
plot.chunks(counts, title="The ring with four ranks: three rounds that add, three that copy")
None


# %% [markdown]
# Follow chunk 0. In round 1, rank 0 sends its chunk 0 to rank 1, which adds it to its own chunk 0. In round 2, rank 1
# sends this sum of two to rank 2, and in round 3, rank 2 sends a sum of three to rank 3. Now rank 3 holds the finished
# chunk 0. In general, rank r sends chunk r in the first round. In each later round, it sends the chunk to which it
# added in the round before. After round p - 1, each rank holds one finished chunk, and from then on finished chunks
# travel round the ring.
#
# Step through the rounds with the sliders. Try other numbers of ranks and other algorithms, too.

# %% tags=["nbval-ignore-output"]
def one_round(algorithm="ring", ranks=4, after=1):
    counts = rounds(ALGORITHMS[algorithm], ranks)
    after = min(after, len(counts) - 1)
    return plot.chunks(counts, [after], f"{algorithm}, {ranks} ranks: after round {after} of {len(counts) - 1}")


plot.sliders(one_round, algorithm=list(ALGORITHMS), ranks=[2, 3, 4, 5, 6, 7, 8], after=list(range(15)))

# %% [markdown]
# **Predict first.** Let x have n bytes. With eight ranks, each rank sends an eighth of x in each round. How many bytes
# does a rank send in all? How many would it send with 256 ranks?

# %% tags=["answer"]
# answer
ring = summing(ring_allreduce)
print(f"naive {1e3 * naive.seconds:.0f} ms, ring {1e3 * ring.seconds:.1f} ms")
for name, done in (("naive", naive), ("ring", ring)):
    print(f"{name}: the busiest rank sends {done.traffic.sum(axis=1).max() / N / 8:.2f} n")
plot.sent(ring.events, "Ring: every rank sends 14 MB to the next rank")
None

# %% tags=["checked"]
# checked: on eight ranks the ring is more than seven times as fast, and each rank sends 1.75 n
assert naive.seconds > 7 * ring.seconds
assert ring.traffic.sum(axis=1).tolist() == [1.75 * 8 * N] * 8

# %% [markdown]
# <details><summary>Why</summary>
#
# Each rank sends 2 (p - 1) chunks of n / p bytes, that is, **2 n (p - 1) / p** bytes in all. With 8 ranks this is 1.75
# n, and with 256 ranks it is only 1.99 n. Patarasuk and Yuan proved that this is optimal. In every algorithm that
# leaves the additions to the ranks, at least one rank must send this many bytes (*Bandwidth optimal all-reduce
# algorithms for clusters of workstations*, 2009, <https://doi.org/10.1016/j.jpdc.2008.09.002>).
#
# </details>
#
# If p does not divide the number of elements, some chunks are longer than others. If there are fewer elements than
# ranks, some chunks are empty. The next cell counts the bytes that three ranks send.

# %%
print("elements  bytes sent by ranks 0, 1, 2  2 n (p - 1) / p bytes")
for n in (12, 11, 3, 2, 1, 0):
    sent = summing(ring_allreduce, 3, n).traffic.sum(axis=1)
    print(f"{n:7} {sent[0]:9} {sent[1]:6} {sent[2]:6} {8 * 4 * n / 3:20.1f}")

# %% [markdown]
# Exercise [`e05_ring_allreduce`](../exercises/e05_ring_allreduce.py): write the ring. The checker counts every byte.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e05_ring_allreduce

# %% [markdown]
# ## What a message costs
#
# A message of n bytes takes **alpha + n beta** seconds. Alpha is the latency. Beta is the time per byte, the inverse of
# the bandwidth. Adding takes gamma seconds per byte. For an array of n bytes, the ring therefore takes
#
# $$2 (p - 1) \alpha + 2 n \frac{p - 1}{p} \beta + n \frac{p - 1}{p} \gamma$$
#
# The virtual clock computes the time that the messages would take over the given links; it does not measure anything.
# It counts no time for additions. Without the term in gamma, the formula agrees with this clock to within 0.1 %.

# %%
cost = Cost(alpha=link.latency, beta=1 / link.bandwidth)
for p in (2, 3, 7, 8):
    by_clock, by_formula = summing(ring_allreduce, p).seconds, seconds("ring", p, 8 * N, cost)
    assert abs(by_clock / by_formula - 1) < 1e-3
    print(f"{p} ranks: {1e3 * by_clock:.3f} ms on the clock, {1e3 * by_formula:.3f} ms by the formula")
print(f"64 bytes on 256 ranks: {seconds('ring', 256, 64, cost) / cost.alpha:.0f} times the latency")

# %% [markdown]
# The last line shows where the ring is slow. For a short array on 256 ranks, the ring takes 510 latencies and almost no
# other time.
#
# **Recursive doubling** needs only 8 rounds for 256 ranks. In round 1, ranks 0 and 1 exchange their whole arrays and
# add them, and so do ranks 2 and 3, and so on. In round 2, each rank does the same with the rank at distance two, and
# in round 3 with the rank at distance four. After round k, each rank holds the sum of `2**k` arrays. The partner of
# rank r in round k is `r ^ 2**(k - 1)`, where `^` is Python's exclusive or: the two numbers differ in one binary digit.

# %%
plot.chunks(rounds(ALGORITHMS["doubling"], 4, 1), title="Recursive doubling: each round doubles the ranks in the sum")
None

# %%
plot.chunks(rounds(ALGORITHMS["doubling"], 6, 1), title="Six ranks: two of them give their arrays away, and wait")
None

# %% [markdown]
# Six is not a power of two. So ranks 0 and 2 first send their arrays to ranks 1 and 3. Then four ranks are left (1, 3,
# 4 and 5), which exchange as above. In the last round, ranks 1 and 3 send the sum back. (Ranks 4 and 5 can already
# exchange in round 1, because they need nothing from the others.)
#
# Recursive doubling has few rounds, but in each of them a rank sends all n bytes. **Rabenseifner's algorithm** has few
# rounds and sends few bytes. In round 1, each rank sends one half of its array to its neighbour, and adds the half that
# it receives to the half that it keeps. In round 2, it splits this half in the same way with the rank at distance two,
# and in round 3 it splits the remaining quarter with the rank at distance four. These rounds are a reduce-scatter. An
# all-gather in the reverse order completes the all-reduce (Rolf Rabenseifner, *Optimization of Collective Reduction
# Operations*, 2004, <https://doi.org/10.1007/978-3-540-24685-5_1>).

# %%
plot.chunks(rounds(ALGORITHMS["rabenseifner"], 4), title="Rabenseifner: halves, quarters, and back")
None

# %% [markdown]
# The next cell runs five algorithms on 16 ranks with links of 10 Gbit/s, and reads the virtual clock. In the fifth
# algorithm, the **tree**, ranks first add their arrays in pairs, then the sums in pairs, until rank 0 has the total.
# The total goes back along the same path in reverse.

# %%
SIZES = [2**k for k in range(3, 22, 2)]
names = ["naive", "tree", "doubling", "rabenseifner", "ring"]
table = {name: [1e6 * summing(ALGORITHMS[name], 16, nbytes // 8).seconds for nbytes in SIZES] for name in names}
title = "16 ranks: few rounds win for short arrays, few bytes for long ones"
plot.label_bytes(plot.lines(SIZES, table, "bytes", "microseconds", title, log_y=True), SIZES)
print("by formula, 16 ranks:", ", ".join(f"{name} from {nbytes} B on" for nbytes, name in crossovers(16, cost)))

# %% tags=["checked"]
# checked: all formulas hold to within 5 %, and Rabenseifner's algorithm is never slower than the ring here
for name in names[1:]:
    for nbytes, us in zip(SIZES, table[name]):
        assert abs(us / (1e6 * seconds(name, 16, nbytes, cost)) - 1) < 0.05
assert all(a <= b for a, b in zip(table["rabenseifner"], table["ring"]))

# %% [markdown]
# Rabenseifner's algorithm is never slower than the ring in this figure. Libraries use rings nevertheless, for two
# reasons. First, Rabenseifner's algorithm is at its best here, because 16 is a power of two. If the number of ranks is
# not a power of two, some ranks first send their whole array to another rank and get the sum back at the end. These two
# transfers take as long as sending 2 n bytes. The next cell shows this for seven ranks. Second, all links are equally
# fast here, and no two messages share a link. A real network has fast and slow links, and several ranks may share a
# link. How the links join the ranks is the network's **topology**. A ring needs fast links only between neighbours.

# %%
for name in ("rabenseifner", "ring"):
    done = summing(ALGORITHMS[name], 7)
    most = done.traffic.sum(axis=1).max() / N / 8
    print(f"7 ranks, {name:12} {1e3 * done.seconds:.1f} ms; the busiest rank sends {most:.2f} n")

# %% [markdown]
# Exercise [`e05_recursive_doubling`](../exercises/e05_recursive_doubling.py): write it for any number of ranks.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e05_recursive_doubling

# %% [markdown]
# ## Machines
#
# There are four machines with four GPUs each, and one rank for each GPU. NVLink joins the ranks inside a machine. Each
# machine has one link of 10 Gbit/s to the other machines, which its four ranks share. In a ring that follows the rank
# numbers, this link carries one message at a time in each direction. In the last two rounds of recursive doubling, all
# four ranks of a machine exchange with ranks on another machine, so four messages share the link.
#
# **Predict first.** Rabenseifner's algorithm can also begin with the farthest partner and end with the nearest
# (`far_first`). Each rank then sends the same number of bytes in the same number of rounds. Does the order change the
# time? Does it matter whether the first machine has ranks 0 to 3 ("machine by machine") or ranks 0, 4, 8 and 12 ("in
# turn")?

# %% tags=["answer"]
# answer
n = N // 5
by_machine = Topology(nodes=[rank // 4 for rank in range(16)], inside="NVLink 1", between="10 GbE")
in_turn = Topology(nodes=[rank % 4 for rank in range(16)], inside="NVLink 1", between="10 GbE")
far_first = partial(ALGORITHMS["rabenseifner"], far_first=True)
ways = {name: ALGORITHMS[name] for name in ("doubling", "ring", "rabenseifner")}
ways |= {"rabenseifner, far first": far_first, "two levels": hierarchical_allreduce}
took = {}
for name, way in ways.items():
    for placed, topology in (("machine by machine", by_machine), ("in turn", in_turn)):
        done = summing(way, 16, n, topology)
        away = np.not_equal.outer(topology.nodes, topology.nodes)  # messages from one machine to another
        left = [(done.traffic * away)[np.equal(topology.nodes, node)].sum() for node in range(4)]
        took[name, placed] = 1e3 * done.seconds
        print(f"{name:24} {placed:19} {took[name, placed]:5.1f} ms, {max(left) / (8 * n):5.2f} n leave a machine")

# %% tags=["checked"]
# checked: the order costs more than a factor of three, and two levels do not depend on the placement
near, far = (took[name, "machine by machine"] for name in ("rabenseifner", "rabenseifner, far first"))
assert far > 3 * near and took["rabenseifner", "in turn"] > 3 * took["rabenseifner, far first", "in turn"]
two_levels = [took["two levels", placed] for placed in ("machine by machine", "in turn")]
assert max(two_levels) < 1.1 * near and max(two_levels) < 1.1 * min(two_levels)


# %% [markdown]
# <details><summary>Why</summary>
#
# Both the order of the partners and the placement of the ranks matter. The longest messages are half of the array. If
# the nearest partners come first, these messages stay inside a machine, and only eighths and sixteenths leave it. If
# the farthest come first, halves and quarters leave it. Four times as many bytes then cross the network as with the
# nearest first, and the all-reduce takes more than three times as long. If the ranks are assigned to the machines in
# turn, consecutive ranks are on different machines, so far-first is the better order. With this placement, a ring sends
# every message over the network. The MPI library MPICH begins with the nearest partner (Thakur, Rabenseifner and Gropp,
# *Optimization of Collective Communication Operations in MPICH*, 2005, <https://doi.org/10.1177/1094342005051521>).
#
# </details>
#
# A **hierarchical all-reduce** ("two levels") first sums inside each machine. Then one rank of each machine takes part
# in an all-reduce across the machines. Finally this rank broadcasts the result inside its machine. The time does not
# depend on how the ranks are placed. ChainerMN, the data-parallel library of lesson 06, has a communicator
# `hierarchical` that works in this way.
#
# ## Which sum?
#
# Floating-point addition is not associative: (a + b) + c and a + (b + c) may differ in the last bits. The result of an
# all-reduce therefore depends on the order of its additions. The next cell sums the same float32 arrays on seven ranks
# by each of the five algorithms.

# %%
def sums(function, p, n=10_000):
    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(n).astype(np.float32)
        function(comm, x)
        return x

    return run(program, p).results


by_name = {name: sums(function, 7) for name, function in ALGORITHMS.items()}
for name, results in by_name.items():
    alike = all(x.tobytes() == results[0].tobytes() for x in results)
    differ = int((results[0] != by_name["naive"][0]).sum())
    print(f"{name:13} same bits on all ranks: {alike}. {differ:4} of 10000 elements differ from the naive sum")

# %% tags=["checked"]
# checked: each sum is right to rounding, three algorithms add in the same order, and two in orders of their own
exact = sum(np.random.default_rng(r).standard_normal(10_000).astype(np.float32).astype(float) for r in range(7))
assert all(np.abs(results[0] - exact).max() < 7 * 2**-23 * 20 for results in by_name.values())
tree = by_name["tree"][0]
assert all(by_name[name][0].tobytes() == tree.tobytes() for name in ("doubling", "rabenseifner"))
assert all(4000 < (by_name[name][0] != tree).sum() < 6000 for name in ("naive", "ring"))


# %% [markdown]
# Two properties must be kept apart.
#
# - **All ranks get the same bits.** All five algorithms have this property. Either one rank computes the sum of an
#   element and the others get a copy, or two partners add the same two values, and a + b is b + a. A ring in which each
#   rank adds the arrays in the order of their arrival does not have this property, as the next cell shows. With such a
#   sum, the replicas of a model drift apart.
# - **Each run gives the same bits.** This holds as long as the order of the additions stays the same. The tree,
#   recursive doubling and Rabenseifner's algorithm add in the same order; the naive sum and the ring differ from them
#   in about half of the elements. A library that adds in the order of arrival may not repeat its own result. If a
#   library chooses its algorithm by the array's length, the same element may get different bits in an array of a
#   different length. The MPI standard recommends that the same call gives the same bits again, but does not require it
#   (MPI 4.1, section 6.9.1, <https://www.mpi-forum.org/docs/mpi-4.1/mpi41-report.pdf>).

# %%
def each_in_its_own_order(comm, x):
    """Let all arrays travel round the ring. Each rank adds them as they pass."""
    own = x.copy()
    for _ in range(comm.size - 1):
        comm.Sendrecv_replace(own, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
        x += own


results = sums(each_in_its_own_order, 7)
print(f"ranks 0 and 3 differ in {int((results[0] != results[3]).sum())} of 10000 elements")

# %% [markdown]
# ## The same in PyTorch
#
# `torch.distributed` has the same collectives. `torchrun` starts the processes, as `mpirun` does. The backend "gloo"
# works on CPUs. The backend "nccl" works on NVIDIA's GPUs: the collective calls stay the same, but each process selects
# a GPU of its own and puts its tensors there. Here two real processes run the program with gloo.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/collectives.py
import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # or "nccl"
rank, size = dist.get_rank(), dist.get_world_size()

x = torch.arange(8.0) * (rank + 1)
summed = x.clone()
dist.all_reduce(summed)  # in place, on every rank

share, whole = torch.empty(8 // size), torch.empty(8)
dist.reduce_scatter_single(share, x)  # the two halves
dist.all_gather_single(whole, share)

work = dist.all_reduce(x, async_op=True)  # non-blocking: returns a Work, MPI's request
work.wait()
if rank == 0:
    print(summed.tolist(), torch.equal(summed, whole), torch.equal(summed, x))
dist.destroy_process_group()

# %%
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/collectives.py 2> scratch/torchrun.log

# %% [markdown]
# In PyTorch 2.13, reduce-scatter and all-gather have new names. Most programs still use the old names,
# `reduce_scatter_tensor` and `all_gather_into_tensor`. Three differences from MPI are worth knowing.
#
# - With gloo, `dist.send` waits for the receiver whatever the message's length, as `Ssend` does. The `swap` above,
#   written with `dist.send`, hangs at any length. Use `dist.batch_isend_irecv` where MPI has `Sendrecv`.
# - With NCCL, a call only enqueues work on a stream of the GPU. `work.wait()` makes the current stream wait, but not
#   the host.
# - If one rank does not call a collective, the others wait until a timeout and then fail (by default after 30 minutes
#   with gloo, and 10 with NCCL). With the environment variable `TORCH_DISTRIBUTED_DEBUG=DETAIL`, PyTorch compares the
#   ranks' calls and names the rank whose call differs.
#
# ## The reference implementation
#
# These are the library's functions, without their docstrings. The links open the files.

# %%
from mpcourse.collectives import ring_allgather, ring_reduce_scatter
from mpcourse.common.source import reference

reference(ring_allreduce, ring_reduce_scatter, ring_allgather)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `ring_allreduce` | NCCL's ring; before it Baidu's [1] and Horovod's [2] |
# | `recursive_doubling_allreduce`, `rabenseifner_allreduce` | `MPI_Allreduce`, which chooses by the array's length |
# | `tree_allreduce` | the idea of NCCL's double binary trees [3], two trees that work at the same time |
# | `hierarchical_allreduce` | ChainerMN's `hierarchical`; NCCL's tree between machines, with a chain inside each |
# | `ring_reduce_scatter`, `ring_allgather` | the two halves, which ZeRO and FSDP use separately |
# | `allreduce(comm, x, cost=...)` | the tuning tables of Open MPI, MPICH and NCCL |
# | the figure of a deadlock | PyTorch's flight recorder, which prints where each rank was before a timeout |
#
# 1. Andrew Gibiansky, *Bringing HPC Techniques to Deep Learning*, 2017,
#    <https://andrew.gibiansky.com/blog/machine-learning/baidu-allreduce/>
# 2. Alexander Sergeev and Mike Del Balso, *Horovod: fast and easy distributed deep learning in TensorFlow*, 2018,
#    <https://arxiv.org/abs/1802.05799>
# 3. Sylvain Jeaugey, *Massively Scale Your Deep Learning Training with NCCL 2.4*, 2019,
#    <https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/>
#
# NVIDIA's benchmark `nccl-tests` reports a *bus bandwidth*: 2 n (p - 1) / p bytes divided by the time. In a ring, this
# is the number of bytes that each link carries per second
# (<https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md>). This lesson leaves out all-reduces in which
# the network's switches do the additions (NVIDIA's SHARP).
#
# ## Problems
#
# **1.** A model has 7 billion parameters, and its gradients are bfloat16. 64 GPUs are joined by links of 50 GB/s in
# each direction. What is the least time that a ring all-reduce of the gradients can take?
#
# **2.** How short must an array be for recursive doubling to beat the ring on 64 ranks, if alpha is 20 us and a link
# carries 10 GB/s? Leave out the additions.

# %% tags=["answer"]
# answer
bytes_ = 7e9 * 2
print(f"1. 2 n (p - 1) / p beta = 2 * 14 GB * 63 / 64 / 50 GB/s = {2 * bytes_ * 63 / 64 / 50e9:.2f} s")
alpha, beta, p = 20e-6, 1 / 10e9, 64
n = alpha * (2 * (p - 1) - 6) / (beta * (6 - 2 * (p - 1) / p))
print(f"2. 6 (alpha + n beta) < 126 alpha + 2 n 63/64 beta, so n < 120 alpha / (4.03 beta) = {n / 1e6:.1f} MB")

# %% [markdown]
# ## What you found
#
# - An all-reduce is a reduce-scatter followed by an all-gather. In a ring, each rank sends 2 n (p - 1) / p bytes. No
#   algorithm that leaves the additions to the ranks needs fewer.
# - `Send` may wait for its receiver. A program in which all ranks send first works only while its messages are short.
# - A round costs alpha and a byte costs beta. Recursive doubling needs few rounds, the ring sends few bytes, and
#   Rabenseifner's algorithm combines both if the number of ranks is a power of two.
# - The topology decides which partners should exchange the longest messages. The time of a hierarchical all-reduce does
#   not depend on how the ranks are placed.
# - Floating-point sums depend on the order of additions. Every rank must get the same bits.
#
# The appendix [05, this machine](appendix/05_this_machine.ipynb) measures alpha, beta and gamma of your machine and
# compares the algorithms with MPI's `Allreduce` and gloo.
#
# Next comes lesson 06 on data parallelism. It shows how ChainerMN, one of the first libraries for data parallelism,
# uses an all-reduce.
