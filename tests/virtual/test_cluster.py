"""Virtual ranks: the same results as under mpirun, clocks that follow the model, and mistakes that are named."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from mpcourse.collectives import rabenseifner_allreduce
from mpcourse.virtual import MPI, ClusterError, Deadlock, Link, Topology, compute, run
from mpcourse.virtual.ranks.topology import Incoming
from tests.conftest import load_script

PROGRAMS = Path(__file__).parents[1] / "programs" / "mpi_programs.py"
TUTORIALS = PROGRAMS.with_name("mpi_tutorials.py")
ALPHA, BETA = 1e-6, 1e-9
LINK = Link("test", 1 / BETA, ALPHA)


def load_programs(file=PROGRAMS):
    with MPI.as_mpi4py():
        return load_script(file)


# -- the same as mpi4py --


@pytest.mark.parametrize("make", [lambda: torch.ones(2), lambda: np.ones(2), lambda: [1.0], lambda: {1: [1.0]}])
@pytest.mark.parametrize("call", ["bcast", "allreduce", "allgather"])
def test_what_a_rank_was_given_as_an_object_is_its_own(make, call):
    def program(comm):
        got = comm.allreduce(make(), op=lambda x, y: x) if call == "allreduce" else getattr(comm, call)(make())
        inner = got[0] if call == "allgather" else got
        inner = inner[1] if isinstance(inner, dict) else inner
        comm.Barrier()
        inner[0] += comm.rank + 1
        comm.Barrier()
        return float(inner[0])

    assert run(program, 3).results == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_programs_give_the_same_on_virtual_ranks_and_under_mpirun(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", PROGRAMS, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    real, programs = json.loads(done.stdout), load_programs()
    assert len(real) >= 25
    for program in programs.PROGRAMS:
        results = [programs.plain(result) for result in run(program, size).results]
        assert json.loads(json.dumps(results)) == real[program.__name__], program.__name__


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_programs_of_tutorials_give_the_same_on_virtual_ranks_and_under_mpirun(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", PROGRAMS, TUTORIALS, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    real, plain = json.loads(done.stdout), load_programs().plain
    for program in load_programs(TUTORIALS).PROGRAMS:
        results = [plain(result) for result in run(program, size).results]
        assert json.loads(json.dumps(results)) == real[program.__name__], program.__name__


def test_methods_have_mpi4pys_signatures():
    # In a process of its own, for that imports the real MPI.
    code = """
import inspect, json
from mpi4py import MPI
from mpcourse.virtual.ranks.comm import VirtualComm
wrong = {}
for name, method in inspect.getmembers(VirtualComm, inspect.isfunction):
    real = getattr(MPI.Intracomm, name, None)
    if name.startswith("_") or real is None:
        continue
    theirs = [p for p in inspect.signature(real).parameters]
    ours = [p for p in inspect.signature(method).parameters]
    if ours != theirs:
        wrong[name] = [ours, theirs]
ours = [name for name in vars(VirtualComm) if not name.startswith("_")]
print(json.dumps([wrong, [name for name in ours if not hasattr(MPI.Intracomm, name) and name != "theirs"]]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    wrong, unknown = json.loads(done.stdout)
    assert wrong == {} and unknown == ["compute"]


def test_the_kernel_does_not_become_a_rank():
    code = """
import sys
from mpcourse.virtual import MPI, run
assert run(lambda comm: comm.allreduce(1, op=MPI.SUM), 3).results == [3, 3, 3]
with MPI.as_mpi4py():
    from mpi4py import MPI as seen
    assert seen is MPI
    assert run(lambda comm: MPI.COMM_WORLD is comm and seen.COMM_WORLD.rank == comm.rank, 2).results == [True, True]
assert "mpi4py.MPI" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_method_that_is_not_offered_says_so():
    with pytest.raises(AttributeError, match=r"Intracomm has no Win_create, neither"):
        run(lambda comm: comm.Win_create(), 1)


# -- time --


def ring(comm, x):
    p, r = comm.size, comm.rank
    chunks = np.array_split(x, p)
    landing = np.empty_like(chunks[0])
    for i in range(p - 1):
        theirs = chunks[(r - i - 1) % p]
        comm.Sendrecv(chunks[(r - i) % p], (r + 1) % p, 0, landing[: len(theirs)], (r - 1) % p, 0)
        theirs += landing[: len(theirs)]
    for i in range(p - 1):
        comm.Sendrecv(chunks[(r + 1 - i) % p], (r + 1) % p, 0, chunks[(r - i) % p], (r - 1) % p, 0)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 64])
def test_a_ring_takes_what_the_formula_says(size):
    n = 100_000

    def program(comm):
        x = np.full(n, comm.rank + 1.0)
        ring(comm, x)
        return x

    done = run(program, size, LINK)
    assert all((x == size * (size + 1) / 2).all() for x in done.results)
    formula = 2 * (size - 1) * ALPHA + 2 * 8 * n * (size - 1) / size * BETA
    assert done.seconds == pytest.approx(formula, rel=1e-3)
    assert (done.messages.sum(axis=1) == 2 * (size - 1)).all()
    assert done.traffic.sum() == 2 * (size - 1) * 8 * n
    neighbours = [(r, (r + 1) % size) for r in range(size)]
    assert {(a, b) for a, b in zip(*done.traffic.nonzero(), strict=True)} == set(neighbours)


def test_256_ranks_ring_allreduce():
    def program(comm):
        x = np.full(100_000, comm.rank + 1.0)
        ring(comm, x)
        return (x == 256 * 257 / 2).all()

    done = run(program, 256, LINK)
    assert all(done.results)
    formula = 2 * 255 * ALPHA + 2 * 8e5 * 255 / 256 * BETA
    assert done.seconds == pytest.approx(formula, rel=1e-3)


def test_runs_are_deterministic():
    def program(comm):
        found = []
        if comm.rank == 0:
            for _ in range(3 * (comm.size - 1)):
                status = MPI.Status()
                comm.recv(source=MPI.ANY_SOURCE, status=status)
                found.append(status.source)
        else:
            for k in range(3):
                comm.compute(0.001 * ((7 * comm.rank + 3 * k) % 5))
                comm.send(k, 0)
        return found

    first, second = run(program, 6), run(program, 6)
    assert first.results == second.results and first.clock == second.clock and first.events == second.events


def test_any_source_takes_what_was_sent_first_in_time():
    def program(comm):
        if comm.rank == 0:
            statuses = [MPI.Status() for _ in range(comm.size - 1)]
            for status in statuses:
                comm.recv(source=MPI.ANY_SOURCE, status=status)
            return [status.source for status in statuses]
        comm.compute(1.0 / comm.rank)  # the last rank is the first
        comm.send(None, 0)
        return None

    assert run(program, 5).results[0] == [4, 3, 2, 1]


@pytest.mark.parametrize("late, order", [(0.0, [3, 3, 2, 2, 1, 1]), (5.0, [3, 2, 1, 3, 2, 1])])
def test_a_probe_finds_what_was_sent_first_in_time_also_among_sendrecvs(late, order):
    # A Sendrecv does not wait for its turn: rank 1's is known before earlier ones of others.
    def program(comm):
        x, found = np.zeros(1), []
        for _ in range(2 if comm.rank else 0):
            comm.compute(1.0 / comm.rank**2)
            comm.Sendrecv(x, 0, 0, np.zeros(1), source=0)
        comm.compute(0.0 if comm.rank else late)
        for _ in range(0 if comm.rank else 6):
            status = MPI.Status()
            comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            found.append(status.source)
            comm.Recv(x, status.source)
            comm.Send(x, status.source)
        return found

    assert run(program, 4, LINK).results[0] == order


def test_any_source_does_not_take_what_a_rank_that_ran_ahead_will_send_later():
    # Ranks 1 and 2 exchange without waiting for others' turns; what they send rank 0 is later than rank 3's message.
    def program(comm):
        x = np.zeros(1)
        if comm.rank == 0:
            status, found = MPI.Status(), []
            for _ in range(3):
                comm.Recv(x, MPI.ANY_SOURCE, status=status)
                found.append(status.source)
            return found
        if comm.rank == 3:
            comm.compute(0.5)
            comm.Send(x, 0)
            return None
        comm.compute(1.0)
        comm.Sendrecv(x, 0 if comm.rank == 1 else 1, 0, np.zeros(1), 2 if comm.rank == 1 else MPI.PROC_NULL)
        if comm.rank == 2:
            comm.Send(x, 0)
        return None

    assert run(program, 4).results[0][0] == 3


def test_a_message_costs_alpha_plus_n_beta_and_waits_for_both_sides():
    def program(comm):
        if comm.rank == 0:
            comm.compute(0.5)
            comm.Send(np.zeros(1000), 1)
        else:
            comm.compute(0.2)
            comm.Recv(np.zeros(1000), 0)

    done = run(program, 2, LINK)
    assert done.clock == pytest.approx([0.5 + ALPHA + 8000 * BETA] * 2)
    (message,) = [e for e in done.events if e.kind == "copy"]
    assert (message.lane, message.nbytes, message.issued) == ("rank 0 -> rank 1", 8000, 0.5)
    assert message.asked.startswith("test_cluster.py:")
    assert [(e.lane, e.name) for e in done.events if e.kind == "wait"] == [("rank 1", "Recv"), ("rank 0", "Send")]


def test_a_rank_receives_one_message_at_a_time():
    def gather(comm):
        if comm.rank == 0:
            places = [np.zeros(1000) for _ in range(1, comm.size)]
            MPI.Request.Waitall([comm.Irecv(place, r) for r, place in enumerate(places, 1)])
        else:
            comm.Send(np.zeros(1000), 0)

    assert run(gather, 5, LINK).seconds == pytest.approx(4 * (ALPHA + 8000 * BETA))


def test_an_eager_send_does_not_wait():
    def program(comm):
        if comm.rank == 0:
            comm.Send(np.zeros(10), 1)
        else:
            comm.compute(1.0)
            comm.Recv(np.zeros(10), 0)

    assert run(program, 2, LINK, eager=81).clock[0] == 0.0
    assert run(program, 2, LINK, eager=80).clock[0] > 1.0


def test_nonblocking_messages_hide_behind_computing():
    def program(comm):
        x, y = np.zeros(10**6), np.zeros(10**6)
        other = 1 - comm.rank
        requests = [comm.Irecv(y, other), comm.Isend(x, other)]
        comm.compute(1.0)
        MPI.Request.Waitall(requests)

    assert run(program, 2, LINK).seconds == 1.0


@pytest.mark.parametrize("wait", ["Waitany", "Waitsome", "Waitall", "Testall", "Testany"])
def test_nobody_waits_for_a_null_request(wait):
    def program(comm):
        x, null = np.full(1, float(comm.rank)), MPI.REQUEST_NULL
        if comm.rank:
            comm.Send(x, 0)
            return None
        requests = [null, comm.Irecv(x, 1)]
        found = []
        while not found or found[-1] in (False, (-32766, False)):  # Tests ask until it is there
            found.append(getattr(MPI.Request, wait)(requests))
        none = getattr(MPI.Request, wait)([null, null])
        return found[-1], none, x[0], null.Wait(), null.Test()

    want = {
        "Waitany": (1, MPI.UNDEFINED),
        "Waitsome": ([1], None),
        "Waitall": (True, True),
        "Testall": (True, True),
        "Testany": ((1, True), (MPI.UNDEFINED, True)),
    }
    assert run(program, 2).results[0] == (*want[wait], 1.0, True, True)


def test_ranks_of_a_node_share_its_link():
    nodes = Topology(nodes=(0, 0, 1, 1), inside=Link("inside", 1e12, 0), between=LINK)

    def program(comm):
        x = np.zeros(10**6)
        if comm.rank < 2:
            comm.Send(x, comm.rank + 2)
        else:
            comm.Recv(x, comm.rank - 2)

    alone = ALPHA + 8e6 * BETA
    assert run(program, 4, nodes).seconds == pytest.approx(2 * alone)
    assert run(program, 4, LINK).seconds == pytest.approx(alone)

    def near(comm):
        x = np.zeros(10**6)
        comm.Send(x, 1) if comm.rank == 0 else comm.rank == 1 and comm.Recv(x, 0)

    assert run(near, 4, nodes).seconds == pytest.approx(8e6 * 1e-12)
    assert run(lambda comm: comm.Split_type(MPI.COMM_TYPE_SHARED).size, 4, nodes).results == [2, 2, 2, 2]
    assert run(lambda comm: MPI.Get_processor_name(), 4, nodes).results == ["node0", "node0", "node1", "node1"]


def test_a_collective_call_is_as_slow_as_the_slowest_link_between_the_ranks_of_its_communicator():
    nodes = Topology(nodes=(0, 0, 1, 1), inside=Link("inside", 1e12, 0), between=LINK)
    x = np.zeros(10**6)

    def program(comm):
        near, taken = comm.Split_type(MPI.COMM_TYPE_SHARED), []
        for each in (comm, near, comm, near):
            each.Barrier()  # its ranks go on alike from here
            begun = MPI.Wtime()
            each.Bcast(x, 0)
            taken.append(MPI.Wtime() - begun)
        return taken

    # Four ranks scatter in two steps, and gather in three, three quarters of x each; two send all of it in one.
    far, near = 5 * ALPHA + 2 * 0.75 * 8e6 * BETA, 8e6 * 1e-12
    for taken in run(program, 4, nodes).results:
        assert taken == pytest.approx([far, near] * 2)


@pytest.mark.parametrize(("far_first", "carried"), [(False, 1), (True, 2)])
def test_messages_come_into_a_node_when_its_link_is_free_whoever_receives_first(far_first, carried):
    """By hand: near first, each node sends a quarter of x four times; far first, a half of it four times."""
    nodes = Topology(nodes=(0, 0, 1, 1), inside=Link("inside", 1e18, 0), between=Link("between", 1e8, 0))

    def program(comm):
        x = np.full(10**6, 1.0)
        rabenseifner_allreduce(comm, x, far_first=far_first)
        assert (x == 4).all()

    assert run(program, 4, nodes).seconds == pytest.approx(carried * 8e6 / 1e8, rel=1e-6)


def test_the_link_into_a_node_fills_the_first_gap_that_is_long_enough():
    link = Incoming()
    assert link.book(10.0, 5.0) == 10.0  # busy from 10 to 15
    assert link.book(0.0, 4.0) == 0.0  # it comes before, though it is received later
    assert link.book(1.0, 7.0) == 15.0  # there are only six seconds between
    assert link.book(2.0, 6.0) == 4.0  # they are just enough
    assert (link.starts, link.ends) == ([0.0], [22.0])
    assert link.book(30.0, 1.0) == 30.0 and link.book(3.0, 9.0) == 31.0


def test_a_rank_computes_or_waits_all_the_time_in_a_ring():
    def program(comm):
        comm.compute(2e-4 * (1 + comm.rank % 2))
        ring(comm, np.ones(50_001))

    done = run(program, 4)
    for rank, end in enumerate(done.clock):
        own = sorted((e.start, e.end) for e in done.events if e.lane == f"rank {rank}")
        assert own[0][0] == 0 and own[-1][1] == end
        assert all(before[1] == after[0] for before, after in itertools.pairwise(own))


def test_one_slow_link():
    slow = Topology(between=LINK, links={(0, 1): Link("slow", 1e6, 0)})

    def program(comm):
        comm.Send(np.zeros(125), 1 - comm.rank) if comm.rank == 0 else comm.Recv(np.zeros(125), 0)

    assert run(program, 2, slow).seconds == pytest.approx(1e-3)


def test_wtime_is_the_ranks_clock_and_compute_is_nothing_on_real_ranks():
    def program(comm):
        compute(comm, 2.5)
        return MPI.Wtime()

    assert run(program, 2).results == [2.5, 2.5]
    compute(object(), 2.5)
    with pytest.raises(ValueError, match="computes for 0 seconds or more"):
        run(lambda comm: comm.compute(-1), 1)


def test_a_collective_call_ends_for_all_at_once_after_the_last_has_come():
    def program(comm):
        comm.compute(float(comm.rank))
        comm.Barrier()

    assert run(program, 4, LINK).clock == pytest.approx([3 + 2 * ALPHA] * 4)


# -- mistakes --


def zeros(n=2, dtype=np.float64):
    return np.zeros(n, dtype)


def no_receive(comm):
    if comm.rank == 0:
        comm.Send(zeros(), 1)


def wrong_tag(comm):
    comm.Send(zeros(), 1, 3) if comm.rank == 0 else comm.Recv(zeros(), 0, 4)


def truncated(comm):
    comm.Send(zeros(5), 1) if comm.rank == 0 else comm.Recv(zeros(3), 0)


def datatypes(comm):
    comm.Send(zeros(5), 1) if comm.rank == 0 else comm.Recv(zeros(5, np.float32), 0)


def other_collective(comm):
    comm.Bcast(zeros()) if comm.rank == 0 else comm.Allreduce(MPI.IN_PLACE, zeros())


def other_order(comm):
    for name in ("bcast", "allreduce") if comm.rank else ("allreduce", "bcast"):
        getattr(comm, name)(1)


def other_root(comm):
    comm.bcast(1, root=comm.rank)


def other_counts(comm):
    comm.Allreduce(MPI.IN_PLACE, zeros(2 + comm.rank))


def other_operation(comm):
    comm.allreduce(1, op=MPI.MAX if comm.rank else MPI.SUM)


def not_contiguous(comm):
    x = np.zeros((4, 4))
    comm.Send(x[:, 1], 1) if comm.rank == 0 else comm.Recv(x[1], 0)


def left_early(comm):
    if comm.rank == 1:
        comm.recv(source=0)


def never_waited(comm):
    comm.Isend(zeros(), 1) if comm.rank == 0 else comm.Recv(zeros(), 0)


def changed(comm):
    x = zeros()
    if comm.rank == 0:
        request = comm.Isend(x, 1)
        x += 1
        request.Wait()
    else:
        comm.Recv(x, 0)


def changed_in_a_sum(comm):
    x = zeros()
    request = comm.Iallreduce(MPI.IN_PLACE, x)
    x += 1
    request.Wait()


def changed_pieces(comm):
    x = zeros(comm.size)
    request = comm.Iscatter(x if comm.rank == 0 else None, zeros(1))
    x[1] = 1
    request.Wait()


def both_cases(comm):
    comm.send(zeros(), 1) if comm.rank == 0 else comm.Recv(zeros(), 0)


def to_itself(comm):
    comm.send(1, comm.rank)


def all_send_first(comm):
    comm.Send(zeros(), (comm.rank + 1) % comm.size)
    comm.Recv(zeros(), (comm.rank - 1) % comm.size)


def all_receive_first(comm):
    comm.Recv(zeros(), (comm.rank - 1) % comm.size)
    comm.Send(zeros(), (comm.rank + 1) % comm.size)


def only_rank_0(comm):
    return comm.allreduce(1) if comm.rank == 0 else None


def polls_for_ever(comm):
    while not comm.Iprobe():
        pass


def no_such_rank(comm):
    comm.send(1, 5)


def negative_tag(comm):
    comm.send(1, 0, tag=-5)


def no_buffer(comm):
    comm.Send(3.5, 1 - comm.rank)


def requires_grad(comm):
    comm.Send(torch.ones(2, requires_grad=True), 1 - comm.rank)


def read_only(comm):
    comm.Recv(b"abc", 1 - comm.rank)


def same_memory(comm):
    x = zeros()
    comm.Allreduce(x, x)


def does_not_divide(comm):
    comm.Allgather(zeros(1), zeros(3))


def aborts(comm):
    comm.Abort(7) if comm.rank else comm.recv()


MISTAKES = {
    no_receive: ("deadlock", "Rank 0 sends to rank 1, which has returned without receiving it"),
    wrong_tag: ("deadlock", "Rank 0 sent with tag 3", "rank 1 waits for tag 4"),
    truncated: ("truncated", "has room for 3 float64", "sent 5 float64"),
    datatypes: ("datatypes", "expects float32", "sent float64"),
    other_collective: ("collectives", "rank 1 calls Allreduce", "where rank 0 calls Bcast"),
    other_order: ("collectives", "rank 1 calls bcast", "where rank 0 calls allreduce", "collective call 1"),
    other_root: ("collectives", "root=0 and root=1"),
    other_counts: ("counts", "has 2 and 3 elements"),
    other_operation: ("collectives", "the operations SUM and MAX"),
    not_contiguous: ("buffer", "rank 0", "not contiguous", "np.ascontiguousarray"),
    left_early: ("deadlock", "Rank 1 waits for a message from rank 0, which has returned without sending it"),
    never_waited: ("never waited", "rank 0's Isend(dest=1, tag=0)"),
    changed: ("changed", "its buffer was changed before its Wait"),
    changed_in_a_sum: ("changed", "Iallreduce(), test_cluster.py:", "its buffer was changed before its Wait"),
    changed_pieces: ("changed", "rank 0's Iscatter(), test_cluster.py:", "its buffer was changed before its Wait"),
    both_cases: ("datatypes", "one of them is upper-case", "rank 1's Recv", "rank 0's send"),
    to_itself: ("deadlock", "Rank 0 sends to itself"),
    all_send_first: ("deadlock", "circle: rank 0 -> rank 1 -> rank 0", "Each of them sends first"),
    all_receive_first: ("deadlock", "Each of them receives before it sends"),
    only_rank_0: ("deadlock", "allreduce is a collective call", "rank 1 did not"),
    polls_for_ever: ("deadlock", "waits in Iprobe(source=ANY_SOURCE, tag=ANY_TAG)"),
    no_such_rank: ("misuse", "dest=5, but there are ranks 0 to 1"),
    negative_tag: ("misuse", "tag=-5"),
    no_buffer: ("buffer", "a float is no buffer"),
    requires_grad: ("buffer", "send x.detach()"),
    read_only: ("buffer", "read-only"),
    same_memory: ("buffer", "say MPI.IN_PLACE"),
    does_not_divide: ("counts", "3 elements, which 2 ranks cannot share alike"),
    aborts: ("misuse", "rank 1 called Abort(7)"),
}


@pytest.mark.parametrize("program", MISTAKES, ids=lambda p: p.__name__)
def test_a_mistake_is_named_with_its_line(program):
    kind, *phrases = MISTAKES[program]
    with pytest.raises(ClusterError) as caught:
        run(program, 2)
    assert caught.value.kind == kind
    for phrase in phrases:
        assert phrase in str(caught.value)
    lines = range(program.__code__.co_firstlineno, program.__code__.co_firstlineno + 12)
    assert kind == "misuse" or any(f"test_cluster.py:{line}" in str(caught.value) for line in lines)
    assert threading.active_count() < 20, "ranks still run"


@pytest.mark.parametrize("program", [truncated, other_counts, all_send_first, not_contiguous], ids=lambda p: p.__name__)
def test_every_rank_is_told(program):
    told = {}

    def watched(comm):
        try:
            program(comm)
        except ClusterError as error:
            told[comm.rank] = str(error)
            raise

    with pytest.raises(ClusterError) as caught:
        run(watched, 2)
    assert told == {0: str(caught.value), 1: str(caught.value)}


def test_a_deadlock_has_its_circle_and_all_who_wait():
    def program(comm):
        if comm.rank == 0:
            comm.Recv(zeros(), 3)
        else:
            comm.Recv(zeros(), comm.rank % 3 + 1)  # 1 -> 2 -> 3 -> 1

    with pytest.raises(Deadlock) as caught:
        run(program, 4)
    assert sorted(caught.value.cycle) == [1, 2, 3]
    assert [(w.rank, w.peers) for w in caught.value.waits] == [(0, (3,)), (1, (2,)), (2, (3,)), (3, (1,))]


def test_small_messages_pass_where_sends_are_eager_and_the_same_program_hangs_where_they_are_not():
    run(all_send_first, 3, eager=100)
    with pytest.raises(Deadlock):
        run(all_send_first, 3)


def test_a_rank_that_raises_ends_all_and_says_which_it_was():
    ended = []

    def program(comm):
        try:
            if comm.rank == 1:
                raise ZeroDivisionError("mine")
            comm.barrier()
        finally:
            ended.append(comm.rank)

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        run(program, 3)
    notes = caught.value.__notes__
    assert re.fullmatch(r"on virtual rank 1 of 3, test_cluster\.py:\d+", notes[0]) and len(notes) == 3
    assert sorted(ended) == [0, 1, 2]


def test_ctrl_c_ends_all_ranks():
    def program(comm):
        while True:
            comm.Sendrecv(zeros(), (comm.rank + 1) % comm.size, 0, zeros(), (comm.rank - 1) % comm.size, 0)

    before = threading.active_count()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(program, 3)
    timer.join()
    assert threading.active_count() == before and run(lambda comm: comm.rank, 2).results == [0, 1]


def test_a_received_array_is_not_there_before_wait():
    def program(comm):
        x = np.zeros(1)
        if comm.rank == 0:
            comm.Send(np.ones(1), 1)
            return None
        request = comm.Irecv(x, 0)
        comm.compute(1.0)
        before = x[0]
        request.Wait()
        return before, x[0]

    assert run(program, 2).results[1] == (0, 1)


def test_bad_arguments_of_run():
    with pytest.raises(ValueError, match="1 rank or more"):
        run(print, 0)
    with pytest.raises(ValueError, match="a number of bytes"):
        run(print, 2, eager=-1)
    with pytest.raises(ValueError, match="nodes for 2 ranks, the run has 3"):
        run(print, 3, Topology(nodes=(0, 1)))
    with pytest.raises(ValueError, match="a link 0 -> 5, the run has ranks 0 to 1"):
        run(print, 2, Topology(links={(0, 5): "1 GbE"}))
    with pytest.raises(RuntimeError, match="virtual ranks cannot start virtual ranks"):
        run(lambda comm: run(print, 2), 2)
    with pytest.raises(RuntimeError, match="no virtual ranks are running"):
        MPI.Wtime()
    assert run(lambda comm: comm.rank, 2).results == [0, 1]  # and after all that they still start


def test_random_numbers_outside_go_on_as_if_nothing_had_run():
    torch.manual_seed(0)
    np.random.seed(0)
    wanted = torch.rand(2), np.random.rand(2)
    torch.manual_seed(0)
    np.random.seed(0)
    run(lambda comm: (torch.rand(5), np.random.rand(5)), 2)
    assert torch.equal(torch.rand(2), wanted[0]) and (np.random.rand(2) == wanted[1]).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_receive_from_anybody_is_served_while_its_rank_is_busy_sending(size):
    def program(comm):
        into, right = np.empty(1), (comm.rank + 1) % comm.size
        request = comm.Irecv(into)
        comm.Send(np.array([float(comm.rank)]), right)
        request.Wait()
        return into[0]

    assert run(program, size).results == [(rank - 1) % size for rank in range(size)]


def test_a_receive_from_anybody_takes_what_was_sent_first_though_it_is_asked_late():
    def program(comm):
        if comm.rank == 0:
            into = np.empty(1)
            request = comm.Irecv(into)
            comm.Recv(np.empty(0), 3)
            request.Wait()
            return into[0], comm.recv()
        comm.compute({1: 2.0, 2: 1.0, 3: 9.0}[comm.rank])
        if comm.rank == 2:
            comm.Send(np.array([2.0]), 0)
        elif comm.rank == 1:
            comm.send("late", 0)
        else:
            comm.Send(np.empty(0), 0)

    assert run(program, 4).results[0] == (2.0, "late")


def test_memory_that_is_in_use_is_not_to_be_used_again():
    def posted_twice(comm):
        into = np.empty(2)
        requests = [comm.Irecv(into[i : i + 1 + i], 1 - comm.rank, i) for i in range(2)]
        requests.append(comm.Irecv(into[1:], 1 - comm.rank, 2))
        return requests

    def sent_and_received(comm):
        x = np.zeros(3)
        request = comm.Isend(x, 1 - comm.rank)
        comm.Recv(x, 1 - comm.rank)
        request.Wait()

    def at_once(comm):
        x = np.zeros(3)
        comm.Sendrecv(x, 1 - comm.rank, recvbuf=x, source=1 - comm.rank)

    for program, call in ((posted_twice, "Irecv"), (sent_and_received, "Isend"), (at_once, "Sendrecv_replace")):
        with pytest.raises(ClusterError) as caught:
            run(program, 2)
        assert caught.value.kind == "changed" and call in str(caught.value)


def test_a_request_under_way_is_not_to_be_freed():
    def program(comm):
        comm.Isend(np.zeros(3), 1 - comm.rank).Free()
        comm.Recv(np.zeros(3), 1 - comm.rank)

    with pytest.raises(ClusterError, match="freed and not waited for"):
        run(program, 2)


def test_receives_from_anybody_take_messages_in_the_order_in_which_they_began():
    def program(comm, last):
        if comm.rank:
            comm.compute(comm.rank // 3)  # two send at once
            for k in range(1 + (comm.rank == last)):
                comm.Send(np.full(3, comm.rank + 10.0 * k), 0)
            return None
        rows = [np.zeros(3) for _ in range(4)]
        requests = [comm.Irecv(row, MPI.ANY_SOURCE) for row in rows[:2]]
        comm.compute(0.5)
        requests.append(comm.Irecv(rows[2], last or MPI.ANY_SOURCE))  # two messages are there, for the two before
        MPI.Request.Waitall(requests)
        comm.Recv(rows[3], MPI.ANY_SOURCE)
        return [row[0] for row in rows]

    assert run(lambda comm: program(comm, 0), 5).results[0] == [1, 2, 3, 4]
    assert run(lambda comm: program(comm, 2), 4).results[0] == [1, 2, 12, 3]
