"""Calls of virtual ranks that programs of others used and that gave wrong values, moved the clock or took for ever."""

import random
import threading
import time

import numpy as np
import pytest

from mpcourse.virtual import MPI, compute, run
from mpcourse.virtual.cluster.errors import ClusterError
from mpcourse.virtual.cluster.threads import Turns


def both(program, size=2, **options):
    """What `program` returns on each of `size` virtual ranks."""
    return run(program, size, **options).results


@pytest.mark.parametrize("name", ["Scatter", "Iscatter", "Scatterv", "Iscatterv"])
def test_a_scatter_delivers_what_the_root_gave_though_it_changes_it_at_once(name):
    def program(c):
        x, y = np.arange(c.size * 3.0) + 10 * c.rank, np.full(3, -1.0)
        q = getattr(c, name)(x, y, root=1)
        if name.startswith("I"):
            q.Wait()
        return y.tolist()

    assert both(program, 3) == [[10.0, 11.0, 12.0], [13.0, 14.0, 15.0], [16.0, 17.0, 18.0]]


@pytest.mark.parametrize("call", ["Allreduce", "Reduce", "Scan", "Exscan", "Reduce_scatter_block"])
@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "i", "I", "l", "L"])
@pytest.mark.parametrize("op, expected", [("LAND", [1, 0, 0]), ("LOR", [1, 1, 0]), ("LXOR", [0, 1, 0])])
def test_logical_reductions_give_0_or_1_of_the_same_dtype(call, dtype, op, expected):
    given = [np.array([3, 2, 0], dtype), np.array([5, 0, 0], dtype)]

    def program(c):
        y = np.zeros(3, dtype)
        if call == "Reduce_scatter_block":
            x = np.tile(given[c.rank], 2)
            getattr(c, call)(x, y, op=getattr(MPI, op))
        else:
            getattr(c, call)(given[c.rank], y, op=getattr(MPI, op))
        return y.tolist()

    found = both(program)
    if call == "Exscan":
        assert found[1] == given[0].tolist()  # one part alone is as it was given
    else:
        assert found[0 if call == "Reduce" else 1] == expected


# What MPICH 5.0.2 takes: each reduction of the standard on each kind of number; the rest are errors.
DEFINED = {
    "SUM": "iufc", "PROD": "iufc", "MAX": "iuf", "MIN": "iuf", "LAND": "biu", "LOR": "biu", "LXOR": "biu",
    "BAND": "iu", "BOR": "iu", "BXOR": "iu",
}  # fmt: skip


@pytest.mark.parametrize("op", DEFINED)
@pytest.mark.parametrize("dtype", ["?", "i4", "u8", "f4", "c16"])
def test_reductions_that_mpi_does_not_define_are_refused(op, dtype):
    def program(c):
        y = np.zeros(1, dtype)
        c.Allreduce(np.ones(1, dtype), y, op=getattr(MPI, op))
        return y.dtype.str, y[0]

    if np.dtype(dtype).kind in DEFINED[op]:
        assert both(program)[0][0] == np.dtype(dtype).str
    else:
        with pytest.raises(ClusterError, match=f"MPI has no {op} of "):
            both(program)


@pytest.mark.parametrize("call", ["Allreduce", "Reduce", "Scan", "Exscan", "Reduce_scatter_block"])
def test_reductions_into_another_dtype_are_refused(call):
    with pytest.raises(ClusterError, match="sendbuf is int64 and recvbuf float64") as told:
        both(lambda c: getattr(c, call)(np.arange(4), np.zeros(4 // (2 if "scatter" in call else 1))))
    assert told.value.kind == "datatypes"


@pytest.mark.parametrize("call", ["Gather", "Allgather", "Alltoall", "Scatter"])
def test_other_collective_calls_into_another_dtype_are_refused_too(call):
    with pytest.raises(ClusterError, match="of one datatype"):
        both(lambda c: getattr(c, call)(np.arange(4), np.zeros({"Alltoall": 4, "Scatter": 2}.get(call, 8))))


def test_a_request_that_is_over_is_false_and_equals_request_null():
    def program(c):
        if c.rank == 0:
            c.send("x", 1)
            c.Send(np.ones(1), 1)
            return None
        r = c.irecv(source=0)
        began = bool(r), r == MPI.REQUEST_NULL
        found = r.wait()
        q, polls = c.Irecv(np.zeros(1), 0), 0
        while q:
            q.Test()
            polls += 1
        status = MPI.Status()
        assert r.wait(status) is None and (status.source, status.tag, status.count) == (-2, -1, 0)
        assert not MPI.Request() and MPI.Request() == MPI.REQUEST_NULL and MPI.Request().Wait()
        return began, found, bool(r), r == MPI.REQUEST_NULL, q == r, polls > 0

    assert both(program)[1] == ((True, False), "x", False, True, True, True)


def test_work_between_two_polls_takes_the_time_that_it_takes():
    def program(c):
        if c.rank == 0:
            c.compute(1.0)
            return c.send(None, 1)
        q = c.irecv(source=0)
        for _ in range(400):
            c.compute(1e-3)
            q.Test()
        worked = MPI.Wtime()
        q.wait()
        return worked

    assert both(program)[1] == pytest.approx(0.4, rel=1e-3)


def test_four_thousand_polls_in_vain_are_no_deadlock_and_take_as_long_as_they_take():
    def program(c):
        if c.rank == 0:
            return c.recv(source=1)
        q = c.irecv(source=0)
        assert not any(q.Test() for _ in range(4001))
        c.send(MPI.Wtime(), 0)
        q.Cancel()
        q.wait()

    assert both(program)[0] == pytest.approx(4001e-7, rel=1e-6)


def test_who_polls_for_a_message_under_way_sleeps_until_it_is_there():
    def program(c):
        q, r, polls = c.Isend(np.zeros(125_000), 1 - c.rank), c.Irecv(np.empty(125_000), 1 - c.rank), 0
        while not (q.Test() and r.Test()):
            polls += 1
        return polls

    assert 0 < max(both(program)) < 1000  # a megabyte takes 800 us, in which a rank could ask 8000 times


def test_ranks_that_only_ask_take_turns_in_spells_until_they_are_told_so(monkeypatch):
    switch, switches = Turns.switch, []
    monkeypatch.setattr(Turns, "switch", lambda self, me, to: switches.append(to) or switch(self, me, to))

    def program(c):
        while not c.Iprobe(source=1 - c.rank):
            pass

    with pytest.raises(ClusterError, match="They ask again and again"):
        run(program, 2)
    assert len(switches) < 1000  # of 10,000 calls


def test_who_polls_for_long_notices_within_a_thousandth():
    def program(c):
        if c.rank == 0:
            c.compute(30.0)
            return c.send(None, 1)
        q, polls = c.irecv(source=0), 0
        while not q.Test():
            polls += 1
        return MPI.Wtime(), polls

    seconds, polls = both(program)[1]
    assert 30.0 <= seconds < 30.0 * 1.002 and polls < 40_000


def test_who_polls_several_ranks_in_turn_for_long_finds_each_message_when_it_comes():
    """Beyond the polls that are simulated one by one, a rank sleeps until something is said to it."""

    def program(c):
        if c.rank:
            for n in range(3):
                c.compute(c.rank + n / 10)
                c.send(n, 0)
            return None
        found = []
        while len(found) < 3 * (c.size - 1):
            for rank in range(1, c.size):
                if c.Iprobe(rank):
                    found.append((rank, c.recv(source=rank), round(MPI.Wtime(), 3)))
        return found

    found = both(program, 5)[0]
    assert found == [(1, 0, 1.0), (2, 0, 2.0), (1, 1, 2.1), (3, 0, 3.0), (1, 2, 3.3), (4, 0, 4.0), (2, 1, 4.1),
                     (3, 1, 6.1), (2, 2, 6.3), (4, 1, 8.1), (3, 2, 9.3), (4, 2, 12.3)]  # fmt: skip


def test_a_rank_sleeps_on_its_own_clock():
    def program(c):
        if c.rank == 0:
            c.compute(1000.0)
            return c.send(None, 1)
        q = c.irecv(source=0)
        while not q.Test():
            time.sleep(0.01)
        return MPI.Wtime()

    before, sleep = time.perf_counter(), time.sleep
    assert 1000 <= both(program)[1] < 1000.02
    assert time.perf_counter() - before < 60 and time.sleep is sleep


@pytest.mark.parametrize("nap", [0.0, 0.01])
def test_polls_that_nobody_answers_are_a_deadlock(nap):
    def program(c):
        q = c.irecv(source=1 - c.rank)
        while not q.Test():
            time.sleep(nap)

    with pytest.raises(ClusterError, match="asking alone sends nothing"):
        both(program)


def test_waiting_for_the_clock_ends():
    def program(c):
        start, asked = MPI.Wtime(), 0
        while MPI.Wtime() - start < 0.01:
            asked += 1
        return asked

    assert both(program)[0] == pytest.approx(0.01 / MPI.Wtick(), rel=0.01)
    # Two readings with work between them differ by that work alone.
    assert both(lambda c: [MPI.Wtime(), c.compute(0.5), MPI.Wtime()])[0] == [0.0, None, 0.5]


def test_probing_for_nobody_finds_a_message_of_nobody():
    def program(c):
        told = []
        for ask in (c.Probe, c.Iprobe, c.probe, c.iprobe):
            status = MPI.Status()
            status.tag = 5
            told.append((ask(MPI.PROC_NULL, 3, status), status.source, status.tag, status.count))
        return told

    assert both(program)[0] == [(True, MPI.PROC_NULL, MPI.ANY_TAG, 0)] * 4


def test_no_color_and_a_freed_communicator_are_comm_null():
    def program(c):
        none = c.Split_type(MPI.UNDEFINED)
        copy = c.Dup()
        copy.Free()
        with pytest.raises(ClusterError, match="freed"):
            copy.Get_rank()
        with pytest.raises(ClusterError, match="COMM_NULL"):
            none.Barrier()
        return none == MPI.COMM_NULL, copy == MPI.COMM_NULL, MPI.COMM_NULL == copy, bool(none), bool(copy), bool(c)

    assert both(program) == [(True, True, True, False, False, True)] * 2
    with pytest.raises(ClusterError, match="MPI_COMM_WORLD"):
        both(lambda c: c.Free())


def test_an_empty_list_of_statuses_is_filled():
    def program(c):
        if c.rank == 0:
            return [c.send(n, 1, tag=n) for n in (1, 2)]
        statuses = []
        MPI.Request.Waitall([c.irecv(source=0, tag=n) for n in (2, 1)], statuses)
        return [(s.Get_source(), s.Get_tag()) for s in statuses]

    assert both(program)[1] == [(0, 2), (0, 1)]


def test_bytes_that_are_no_whole_number_of_elements_have_no_count():
    def program(c):
        if c.rank == 0:
            return c.Send(np.zeros(5, np.uint8), 1)
        status = MPI.Status()
        c.Recv(np.zeros(8, np.uint8), 0, status=status)
        return status.Get_count(MPI.INT), status.Get_count(MPI.BYTE), status.Get_count()

    assert both(program)[1] == (MPI.UNDEFINED, 5, 5)


def test_a_displacement_with_a_datatype_that_is_none_counts():
    def program(c):
        x = np.arange(6.0)
        if c.rank == 0:
            return c.Send([x, 2, 2, None], 1)
        c.Recv([x, 2, 4, None], 0)
        return x.tolist()

    assert both(program)[1] == [0, 1, 2, 3, 2, 3]


def test_arrays_whose_bytes_are_in_the_other_order_are_refused():
    with pytest.raises(ClusterError, match="newbyteorder"):
        both(lambda c: c.Allreduce(np.ones(2, ">f8"), np.zeros(2, ">f8")))
    with pytest.raises(ClusterError, match="newbyteorder"):
        both(lambda c: c.Bcast(np.ones((2, 2), ">i4")))


def test_python_s_random_numbers_are_a_rank_s_own():
    def program(c, seeds):
        if seeds:
            random.seed(3)
        found = []
        for _ in range(3):
            found.append(random.random())
            c.Barrier()
        return found

    before = random.getstate()
    a, b = both(lambda c: program(c, True))
    assert a == b == [random.Random(3).random() for _ in range(1)] + a[1:] and len(set(a)) == 3
    a, b = both(lambda c: program(c, False))
    assert not set(a) & set(b)
    assert random.getstate() == before


@pytest.mark.parametrize("call", [lambda c: c.Barrier(), lambda c: c.sendrecv(0, 0, source=0)])
def test_a_thread_of_a_rank_may_not_speak(call):
    def program(c):
        thread = threading.Thread(target=lambda: pytest.raises(ClusterError, call, c))
        thread.start()
        thread.join()

    with pytest.raises(ClusterError, match="from a thread that it has started"):
        both(program)


def test_none_stands_for_in_place_as_in_mpi4py():
    def program(c):
        x = np.full(2, c.rank + 1.0)
        c.Allreduce(None, x)
        return x.tolist()

    assert both(program) == [[3.0, 3.0]] * 2
    with pytest.raises(ClusterError, match="takes the place of sendbuf"):
        both(lambda c: c.Allreduce(np.ones(1), MPI.IN_PLACE))


def test_a_persistent_request_is_started_as_often_as_one_likes():
    def program(c):
        x, y, other = np.zeros(2), np.zeros(2), 1 - c.rank
        requests = [c.Send_init(x, other), c.Recv_init(y, other)]
        assert all(requests) and MPI.Request.Testall(requests)  # none of them is active
        found = []
        for n in range(3):
            x[:] = 10 * c.rank + n
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
            found.append(y[0])
        for each in requests:
            each.Free()
        return found, any(requests)

    assert both(program) == [([10, 11, 12], False), ([0, 1, 2], False)]


def test_a_persistent_request_is_not_started_twice():
    def program(c):
        r = c.Recv_init(np.zeros(1), 1 - c.rank)
        r.Start()
        r.Start()

    with pytest.raises(ClusterError, match="started again before its Wait"):
        both(program)


def test_a_receive_is_given_up():
    def program(c):
        y, status = np.full(1, 7.0), MPI.Status()
        q = c.Irecv(y, 1 - c.rank, tag=1)
        q.Cancel()
        q.Wait(status)
        c.sendrecv(None, 1 - c.rank, source=1 - c.rank)
        return y[0], status.Is_cancelled(), bool(q)

    assert both(program) == [(7.0, True, False)] * 2


def test_some_and_any_of_several_requests():
    def program(c):
        if c.rank == 0:
            for n in (2, 0, 1):
                c.compute(1.0)
                c.send(n * 10, 1, tag=n)
            return None
        requests, found = [c.irecv(source=0, tag=n) for n in range(3)], []
        assert MPI.Request.testany(requests) == (MPI.UNDEFINED, False, None)
        assert MPI.Request.testsome(requests) == ([], [])
        assert not requests[2].Get_status()
        found.append(MPI.Request.waitany(requests))
        c.compute(5.0)
        assert requests[0].Get_status() and requests[0]
        found.append(MPI.Request.waitsome(requests))
        found.append(MPI.Request.waitsome(requests))
        found.append(MPI.Request.testany(requests))
        return found

    assert both(program)[1] == [(2, 20), ([0, 1], [0, 10]), (None, None), (MPI.UNDEFINED, True, None)]


def test_non_blocking_collectives_take_the_link_one_after_the_other_while_ranks_compute():
    """All at once they take as long as blocking ones; beside a longer computation only the last one is seen."""

    def program(comm, computing, call):
        rows, begin = [np.ones(250_000) for _ in range(4)], MPI.Wtime()
        requests = []
        for row in rows:
            compute(comm, computing / 4)
            requests.append(getattr(comm, call)(MPI.IN_PLACE, row))
        for request in filter(None, requests):
            request.Wait()
        return MPI.Wtime() - begin

    def seconds(*asked):
        return max(run(lambda comm: program(comm, *asked), 4).results)

    whole = seconds(0.0, "Allreduce")
    assert seconds(0.0, "Iallreduce") == pytest.approx(whole)
    assert seconds(0.1, "Allreduce") == pytest.approx(0.1 + whole)
    assert seconds(0.1, "Iallreduce") == pytest.approx(0.1 + whole / 4)
