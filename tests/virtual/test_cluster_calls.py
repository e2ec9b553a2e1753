"""Calls of virtual ranks that programs of others used and that gave wrong values, moved the clock or took for ever."""

import itertools
import pickle
import random
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from mpcourse.virtual import MPI, Deadlock, compute, run
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.threads import Turns


def both(program, size=2, **options):
    """Return what `program` returns on each of `size` virtual ranks."""
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
    switch, switches, asked = Turns.switch, [], []
    monkeypatch.setattr(Turns, "switch", lambda self, me, to: switches.append(to) or switch(self, me, to))

    def program(c):
        while not c.Iprobe(source=1 - c.rank):
            asked.append(c.rank)

    with pytest.raises(ClusterError, match="They ask again and again"):
        run(program, 2, max_polls=5000)
    assert len(switches) < len(asked) / 10 > 900


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


@pytest.mark.parametrize("between", [lambda c: None, lambda c: time.sleep(0.01), lambda c: c.compute(1e-3)])
def test_polls_that_nobody_answers_are_a_deadlock(between):
    def program(c):
        q = c.irecv(source=1 - c.rank)
        while not q.Test():
            between(c)

    with pytest.raises(Deadlock, match="asking alone sends nothing"):
        run(program, 2, max_polls=5000)


@pytest.mark.parametrize("ask", ["Iprobe", "Test", "Testany"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_rank_may_ask_twelve_thousand_times_in_vain_and_go_on(ask, size):
    def program(c):
        if c.rank:
            return c.recv(source=0, tag=1)
        q = c.irecv(tag=2)
        polls = {"Iprobe": c.Iprobe, "Test": q.Test, "Testany": lambda: MPI.Request.Testany([q])[1]}
        assert not any(polls[ask]() for _ in range(12_000))
        q.Cancel()
        q.wait()
        asked = MPI.Wtime()
        for rank in range(1, c.size):
            c.send(asked, rank, 1)
        return asked

    assert both(program, size) == pytest.approx([12_000 * MPI.Wtick()] * size)


@pytest.mark.parametrize("max_polls, right", [(30_000, False), (100_000, True)])
def test_a_program_says_how_often_its_ranks_may_ask_in_vain(max_polls, right):
    def program(c):
        q = c.irecv(source=0, tag=2)
        assert not any(q.Test() for _ in range(40_000))
        q.Cancel()
        q.wait()

    with nullcontext() if right else pytest.raises(Deadlock, match="asking alone sends nothing"):
        run(program, 1, max_polls=max_polls)
    with pytest.raises(ValueError, match="once or more, not 0 times"):
        run(program, 1, max_polls=0)


@pytest.mark.parametrize("readings", [1, 2])
@pytest.mark.parametrize("seconds", [1e-3, 1.0, 60.0])
def test_a_rank_that_asks_for_some_time_gives_up(readings, seconds):
    """A minute of asking on its clock is no minute of asking here."""

    def program(c):
        start = MPI.Wtime()
        while not c.Iprobe():
            waited = max(MPI.Wtime() - start for _ in range(readings))
            if waited > seconds:
                break
        return waited

    assert all(seconds < waited < 1.1 * seconds for waited in both(program))


def test_the_clock_is_later_at_each_reading():
    def program(c):
        times = [MPI.Wtime() for _ in range(20)]
        c.Barrier()
        times += [MPI.Wtime(), MPI.Wtime()]
        q = c.irecv(source=c.rank)
        for _ in range(100):
            q.Test()
            times += [MPI.Wtime(), MPI.Wtime()]
        q.Cancel()
        q.wait()
        return times

    for times in both(program):
        assert all(a < b for a, b in itertools.pairwise(times))


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
        return none == MPI.COMM_NULL, copy == MPI.COMM_NULL, copy == MPI.COMM_NULL, bool(none), bool(copy), bool(c)

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
    def refused(c):
        with pytest.raises(ClusterError):
            call(c)

    def program(c):
        thread = threading.Thread(target=refused, args=(c,))
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


def test_a_rank_is_finalized_when_it_has_said_so_and_may_not_speak_afterwards():
    def program(c):
        before = MPI.Is_finalized()
        c.Barrier()
        MPI.Finalize()
        return before, MPI.Is_finalized(), MPI.Is_initialized()

    def speaks(c):
        MPI.Finalize()
        c.Barrier()

    assert both(program) == [(False, True, True)] * 2
    with pytest.raises(ClusterError, match=r"test_cluster_calls.py:\d+: this comes after MPI.Finalize\(\)"):
        both(speaks)


# -- buffers --


def test_the_gradient_of_a_sum_is_no_buffer_until_it_is_contiguous():
    """Autograd expands one number to a shape; mpi4py raises "buffer is not contiguous"."""
    x = torch.ones(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(x.sum(), x)

    def program(c, array):
        y = np.empty((2, 3), np.float32)
        c.Send(array, 1) if c.rank == 0 else c.Recv(y, 0)
        return y.tolist()

    for array in (gradient, gradient.numpy()):
        with pytest.raises(ClusterError, match="not contiguous") as caught:
            both(lambda c, array=array: program(c, array))
        assert caught.value.kind == "buffer"
    assert both(lambda c: program(c, gradient.contiguous().numpy()))[1] == [[1.0] * 3] * 2


def test_irecv_has_room_for_32_kb_or_for_its_buffer():
    """As mpi4py's: a pickled object of 32768 bytes comes, and one of 32769 is truncated."""

    def program(c, excess, *buffer):
        of_pickle = len(pickle.dumps(bytes(30_000), pickle.HIGHEST_PROTOCOL)) - 30_000
        room = len(buffer[0]) if buffer and not isinstance(buffer[0], int) else buffer[0] if buffer else 32768
        x = bytes(room - of_pickle + excess)
        if c.rank == 0:
            return c.send(x, 1)
        return c.irecv(*buffer, source=0).wait() == x

    for buffer in ((), (bytearray(50_000),), (50_000,), (np.zeros(50_000, np.uint8),)):
        assert both(lambda c, buffer=buffer: program(c, 0, *buffer))[1]
        with pytest.raises(ClusterError, match=r"has room for \d+ bytes.* irecv\(bytearray\(\d+\)\)") as caught:
            both(lambda c, buffer=buffer: program(c, 1, *buffer))
        assert caught.value.kind == "truncated"


def test_other_receives_of_objects_have_room_for_any_but_where_a_buffer_is_given():
    def program(c, receive, *buffer):
        q = c.isend(bytes(100_000), 1 - c.rank)
        got = c.recv(*buffer) if receive == "recv" else c.sendrecv(None, MPI.PROC_NULL, 0, *buffer)
        q.wait()
        return len(got)

    for receive in ("recv", "sendrecv"):
        assert both(lambda c, r=receive: program(c, r)) == [100_000] * 2
        with pytest.warns(UserWarning, match="deprecated"), pytest.raises(ClusterError, match="truncated"):
            both(lambda c, r=receive: program(c, r, bytearray(1000)))


def test_a_message_that_was_found_by_a_probe_is_received_though_it_is_given_up():
    def program(c):
        if c.rank == 0:
            return MPI.Request.waitall([c.isend(n, 1) for n in (1, 2)])
        while not c.Iprobe(source=0):
            pass
        first = c.irecv(source=0)
        first.Cancel()  # too late
        status = MPI.Status()
        return first.wait(status), status.Is_cancelled(), c.recv(source=0)

    assert both(program)[1] == (1, False, 2)


NONBLOCKING = {
    "Irecv": lambda c, x, y: c.Irecv(y[:2], 1 - c.rank),
    "Ibcast": lambda c, x, y: c.Ibcast(y[:2] if c.rank else x, 0),
    "Igather": lambda c, x, y: c.Igather(x, y, 1),
    "Iscatter": lambda c, x, y: c.Iscatter(np.ones(4), y[:2], 0),
    "Iallgather": lambda c, x, y: c.Iallgather(x, y),
    "Ialltoall": lambda c, x, y: c.Ialltoall(np.ones(4), y),
    "Ireduce": lambda c, x, y: c.Ireduce(x, y[:2], root=1),
    "Iallreduce": lambda c, x, y: c.Iallreduce(x, y[:2]),
    "Iscan": lambda c, x, y: c.Iscan(x, y[:2]),
    "Ireduce_scatter_block": lambda c, x, y: c.Ireduce_scatter_block(np.ones(4), y[:2]),
}


@pytest.mark.parametrize("call", NONBLOCKING)
def test_a_buffer_that_is_received_into_holds_nothing_new_before_wait_and_may_not_be_written(call):
    """A real MPI writes it at any time until then, so whoever reads or writes it earlier has a fault."""

    def program(c, writes):
        x, y = np.ones(2), np.full(4, 7.0)
        q = NONBLOCKING[call](c, x, y)
        if call == "Irecv":
            c.Send(x, 1 - c.rank)
        c.compute(1.0)
        c.Barrier()
        before = y.tolist()
        if writes and c.rank == 1:
            y[0] = 8.0
        q.Wait()
        return before, float(y[0])

    before, after = both(lambda c: program(c, False))[1]
    assert before == [7.0] * 4 and after in (1.0, 2.0)
    with pytest.raises(ClusterError, match=rf"{call}.*its buffer was changed before its Wait") as caught:
        both(lambda c: program(c, True))
    assert caught.value.kind == "changed"


@pytest.mark.parametrize("call", ["Gatherv", "Allgatherv", "Alltoallv", "Igatherv"])
def test_places_to_receive_into_may_not_overlap(call):
    def program(c, begins):
        counts = [2, 2]
        into = [np.zeros(4), (counts, begins)]
        if call == "Alltoallv":
            c.Alltoallv([np.ones(4), counts], into)
        elif call == "Allgatherv":
            c.Allgatherv(np.ones(2), into)
        else:
            q = getattr(c, call)(np.ones(2), into if c.rank == 0 else None)
            q and q.Wait()

    both(lambda c: program(c, [2, 0]))
    with pytest.raises(ClusterError, match="places of ranks 0 and 1 overlap: both have element 1") as caught:
        both(lambda c: program(c, [0, 1]))
    assert caught.value.kind == "counts"


ALIASED = {
    "Allgather": lambda c, x: c.Allgather(x[c.rank : c.rank + 1], x),
    "Allgather, another place": lambda c, x: c.Allgather(x[:1], x),
    "Gather": lambda c, x: c.Gather(x[:1] if c.rank == 0 else np.ones(1), x),
    "Scatter": lambda c, x: c.Scatter(x, x[:1]),
    "Alltoall": lambda c, x: c.Alltoall(x, x),
    "Reduce_scatter_block": lambda c, x: c.Reduce_scatter_block(x, x[:1]),
    "Allreduce": lambda c, x: c.Allreduce(x, x),
    "Scan": lambda c, x: c.Scan(x, x),
}


@pytest.mark.parametrize("case", ALIASED)
def test_memory_is_not_sent_and_received_into_in_one_call(case):
    with pytest.raises(ClusterError, match=r"sendbuf and recvbuf are the same memory: say MPI.IN_PLACE") as caught:
        both(lambda c: ALIASED[case](c, np.arange(2.0)))
    assert caught.value.kind == "buffer"


def test_parts_of_one_array_may_be_sent_and_received_into():
    def program(c):
        x = np.arange(8.0)
        c.Alltoallv([x, ([1, 1], [0, 4])], [x, ([1, 1], [2, 6])])
        c.Allgather(x[:2], x[4:])
        return x.tolist()

    assert both(program) == [[0, 1, 0, 3, 0, 1, 0, 1], [0, 1, 4, 3, 0, 1, 0, 1]]


def test_elements_travel_as_they_lie_in_memory():
    """As in mpi4py, so what is in Fortran's order comes transposed."""

    def program(c):
        f = np.asfortranarray(np.arange(4.0).reshape(2, 2))
        into, rows = np.zeros((2, 2)), np.zeros((2, 2, 2))
        c.Sendrecv(f, 1 - c.rank, 0, into, 1 - c.rank)
        c.Allgather(f, rows)
        return [each.tolist() for each in (into, *rows)]

    assert both(program) == [[[[0, 2], [1, 3]]] * 3] * 2


# -- reductions --


def test_the_largest_of_numbers_and_nan_is_a_number():
    def program(c, op, dtype):
        x, y = np.full(3, np.nan if c.rank == nan else c.rank, dtype), np.zeros(3, dtype)
        c.Allreduce(x, y, op)
        return y.tolist()

    for nan in range(3):
        largest, smallest = max({0, 1, 2} - {nan}), min({0, 1, 2} - {nan})
        for dtype in ("f4", "f8"):
            assert both(lambda c, d=dtype: program(c, MPI.MAX, d), 3) == [[largest] * 3] * 3
            assert both(lambda c, d=dtype: program(c, MPI.MIN, d), 3) == [[smallest] * 3] * 3

    def all_nan(c):
        y = np.zeros(1)
        c.Allreduce(np.full(1, np.nan), y, MPI.MAX)
        return np.isnan(y[0])

    assert both(all_nan) == [True, True]


def joined(x, y):
    return f"({x} {y})"


def test_objects_are_reduced_in_mpi4pys_order():
    def program(c):
        me = str(c.rank)
        return [c.allreduce(me, joined), c.reduce(me, joined, root=2), c.scan(me, joined), c.exscan(me, joined)]

    every, at_root, scan, exscan = zip(*both(program, 5), strict=True)
    assert set(every) == {"(((0 1) (2 3)) 4)"} and at_root == (None, None, every[0], None, None)
    assert scan == ("0", "(0 1)", "((0 1) 2)", "((0 1) (2 3))", "(((0 1) (2 3)) 4)")
    assert exscan == (None, "0", "(0 1)", "((0 1) 2)", "((0 1) (2 3))")


def test_nan_among_objects_counts_as_in_mpi4py():
    def program(c, op, at):
        x = np.nan if c.rank == at else float(c.rank)
        return repr(c.allreduce((x, c.rank) if op in (MPI.MAXLOC, MPI.MINLOC) else x, op))

    found = {op: [both(lambda c, o=op, at=at: program(c, o, at), 4)[0] for at in range(4)]
             for op in (MPI.MAX, MPI.MIN, MPI.MAXLOC, MPI.MINLOC)}  # fmt: skip
    assert found == {
        MPI.MAX: ["nan", "3.0", "1.0", "2.0"], MPI.MIN: ["nan", "0.0", "0.0", "0.0"],
        MPI.MAXLOC: ["(nan, 0)", "(3.0, 3)", "(1.0, 1)", "(2.0, 2)"],
        MPI.MINLOC: ["(nan, 0)", "(0.0, 0)", "(0.0, 0)", "(0.0, 0)"],
    }  # fmt: skip
