"""Thousands of open messages: each call takes as long as with a few, and each message finds its receive."""

import sys

import numpy as np
import pytest

from mpcourse.virtual import MPI, run


def many_open(c, n):
    other = 1 - c.rank
    x, y = np.arange(2.0 * n).reshape(n, 2), np.zeros((n, 2))
    requests = [c.Irecv(y[i], other, tag=i) for i in range(n)]
    requests += [c.Isend(x[i], other, tag=i) for i in reversed(range(n))]
    MPI.Request.Waitall(requests)
    assert (x == y).all()


def many_for_anyone(c, n):
    if c.rank:
        return MPI.Request.waitall([c.isend(i, 0) for i in range(n)])
    return sorted(c.recv(source=MPI.ANY_SOURCE) for _ in range(n * (c.size - 1)))


def steps(program, n, size=2):
    """How many functions are called: the time it takes, on a machine that others use."""
    found = 0

    def count(frame, event, argument):
        nonlocal found
        found += event == "call"

    def counted(c):
        sys.setprofile(count)
        try:
            program(c, n)
        finally:
            sys.setprofile(None)

    run(counted, size, record=False)
    return found


@pytest.mark.parametrize("program, size", [(many_open, 2), (many_for_anyone, 2), (many_for_anyone, 4)])
def test_nothing_is_quadratic_in_open_messages(program, size):
    assert steps(program, 800, size) < 2.5 * steps(program, 400, size)


def one_after_the_other(c, n):
    if c.rank == 0:
        for i in range(n):
            c.send(i, 1, tag=i)
        return
    requests = [c.irecv(source=0, tag=i) for i in range(n)]
    found = [MPI.Request.waitany(requests) for _ in range(n)]
    assert found == [(i, i) for i in range(n)]


def test_waitany_looks_at_each_open_request_once():
    assert steps(one_after_the_other, 400) < 400 * 400


@pytest.mark.parametrize("ask", ["Testany", "Testsome"])
def test_asking_in_vain_takes_as_long_for_many_requests_as_for_a_few(ask):
    def asked(n):
        def program(c, times):
            requests = [c.irecv(source=1 - c.rank, tag=i) for i in range(n)]
            for _ in range(times):
                getattr(MPI.Request, ask)(requests)
            MPI.Request.waitall(requests + [c.isend(None, 1 - c.rank, tag=i) for i in range(n)])

        return steps(program, 400) - steps(program, 200)

    assert asked(200) < 1.2 * asked(10)


def test_a_message_that_woke_a_receive_which_has_another_goes_to_the_next():
    def program(c):
        if c.rank:
            c.isend("a", 0, tag=2).wait()
            c.isend("b", 0, tag=2).wait()
            return c.send("c", 0, tag=6)
        requests = [c.irecv(tag=6), c.irecv(tag=2), c.irecv(tag=2)]
        while not MPI.Request.Testall(requests[1:]):
            pass
        return requests[0].wait()

    def own(c):
        """Both are there before anybody has looked."""
        requests = [c.irecv(tag=6), c.irecv(tag=2), c.irecv(tag=2)]
        requests += [c.issend("a", 0, tag=2), c.issend("b", 0, tag=2)]
        while not MPI.Request.Testall(requests[1:]):
            pass
        return MPI.Request.waitall([c.isend("c", 0, tag=6), requests[0]])[1]

    assert run(program, 2).results == ["c", None]
    assert run(own, 1).results == ["c"]


def test_making_a_communicator_of_all_ranks_is_not_quadratic_in_their_number():
    def parts(c, n):
        for made in (c.Split(0, c.rank), c.Dup()):
            assert (made.rank, made.size) == (c.rank, c.size)

    assert steps(parts, 1, 256) < 5 * steps(parts, 1, 64)


def test_a_list_of_what_nobody_can_change_is_each_ranks_own():
    def program(c):
        got = c.allgather((c.rank, "a", (None, 1.5)))
        assert got == [(rank, "a", (None, 1.5)) for rank in range(c.size)]
        got.append(c.rank)
        c.Barrier()
        return got[c.size :]

    assert run(program, 3).results == [[0], [1], [2]]


def test_a_part_has_its_ranks_in_the_order_of_their_keys():
    def program(c):
        part = c.Split(c.rank % 2, -c.rank)
        return part.rank, part.allgather(c.rank)

    assert run(program, 5).results == [(2, [4, 2, 0]), (1, [3, 1]), (1, [4, 2, 0]), (0, [3, 1]), (0, [4, 2, 0])]
