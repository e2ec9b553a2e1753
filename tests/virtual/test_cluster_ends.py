"""How a run ends where it cannot end well: an exception on one rank, and a fault of the cluster itself."""

import threading
import time

import pytest

from mpcourse.virtual import MPI, ClusterError, run
from mpcourse.virtual.ranks import threads, world
from mpcourse.virtual.ranks.threads import Turns

HERE = __name__.rpartition(".")[2]


def line(text):
    """Return the number of the line of this file that ends in a comment."""
    with open(__file__) as file:
        return next(n for n, each in enumerate(file, 1) if each.rstrip().endswith(f"# {text}"))


# -- an exception on one rank --


def notes(program, size, error):
    with pytest.raises(error) as caught:
        run(program, size)
    return caught.value.__notes__


def raises_first(c):
    if c.rank == 0:
        raise ValueError("no such file")  # raises
    if c.rank == 1:
        c.recv(source=0)  # receives
    if c.rank == 2:
        request = c.irecv(source=1, tag=7)
        request.wait()  # waits
    c.Barrier()  # meets


def raises_late(c):
    c.compute(4.0 - c.rank)
    raises_first(c)


def raises_last(c):
    """Let the rank that raises run last."""
    if c.rank == 0:
        c.recv(source=1, tag=3)
    elif c.rank == 1:
        c.send(None, 0, 3)
    raises_first(c)


@pytest.mark.parametrize("program", [raises_first, raises_late, raises_last], ids=lambda f: f.__name__)
def test_beside_an_exception_stands_who_waits_where(program):
    assert notes(program, 4, ValueError) == [
        f"on virtual rank 0 of 4, {HERE}.py:{line('raises')}",
        f"rank 1 waits in recv(source=0, tag=ANY_TAG), {HERE}.py:{line('receives')}, for rank 0",
        f"rank 2 waits in the wait for irecv(source=1, tag=7), {HERE}.py:{line('waits')}, for rank 1",
        f"rank 3 waits in Barrier(), {HERE}.py:{line('meets')}, for ranks 0, 1, 2",
    ]


def test_the_line_of_an_exception_is_the_learners_though_a_library_raises_it():
    def program(c):
        if c.rank == 1:
            c.send(lambda: 0, 0)  # sends what cannot be pickled
        else:
            c.recv(source=1)

    with pytest.raises(Exception, match="pickle") as caught:
        run(program, 2)
    assert caught.value.__notes__[0] == f"on virtual rank 1 of 2, {HERE}.py:{line('sends what cannot be pickled')}"


def test_ranks_that_wait_for_none_end_after_an_exception_too():
    def program(c):
        if c.rank == 0:
            raise ValueError
        while not c.Iprobe(source=0):
            c.sendrecv(None, 3 - c.rank, source=3 - c.rank)

    first, *others = notes(program, 3, ValueError)
    assert first.startswith("on virtual rank 0 of 3") and len(others) == 2


def test_a_mistake_that_follows_from_an_exception_does_not_hide_it():
    def program(c):
        if c.rank == 0:
            raise KeyError("mine")
        c.Barrier() if c.rank == 1 else c.bcast(None)

    with pytest.raises(KeyError, match="mine"):
        run(program, 3)


def test_a_rank_that_raises_while_all_others_return_is_told_with_its_line():
    assert notes(lambda c: 1 / (1 - c.rank), 3, ZeroDivisionError)[0].startswith("on virtual rank 1 of 3, ")


# -- a fault of the cluster --


def talks(c):
    if c.rank == 0:
        c.send(1, 1)  # sends
    elif c.rank == 1:
        c.recv(source=0)  # takes
    c.compute(c.rank)
    c.Barrier()  # ends


@pytest.fixture
def impatient(monkeypatch):
    """Let the last resort come after half a second."""
    monkeypatch.setattr(threads, "LOOK", 0.1)


def lost_turn(monkeypatch, lost):
    """Lose the turn that is given as number `lost`."""
    given, switch = [], Turns.switch

    def broken(self, me, to):
        given.append(to)
        if len(given) == lost:
            self.locks[me].acquire()
        else:
            switch(self, me, to)

    monkeypatch.setattr(Turns, "switch", broken)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_turn_that_is_lost_ends_the_run_and_says_where_each_rank_stands(monkeypatch, impatient, lost):
    lost_turn(monkeypatch, lost)
    before = threading.active_count()
    with pytest.raises(ClusterError, match="fault of mpcourse, not of the program") as caught:
        run(talks, 3)
    assert caught.value.kind == "stalled" and threading.active_count() == before
    stand = {row.split(",")[0].split()[1]: row for row in str(caught.value).splitlines() if row.startswith("  rank")}
    assert stand.keys() == {"0", "1", "2"}
    assert stand["0"].endswith((f"in send(dest=1, tag=0), {HERE}.py:{line('sends')}, for rank 1",
                                f"in send(), {HERE}.py:{line('sends')}"))  # fmt: skip
    monkeypatch.undo()
    assert run(talks, 3).results == [None] * 3


def test_a_rank_whose_thread_dies_in_the_cluster_ends_the_run(monkeypatch, impatient):
    def broken(self, rank):
        raise KeyError("a fault of the cluster")

    def program(c):
        if c.rank:
            c.Recv(bytearray(1))  # gets nothing
        else:
            c.compute(1.0)
            c.Iprobe()

    monkeypatch.setattr(world.World, "_end", broken)
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    with pytest.raises(ClusterError, match=rf"rank 1 waits in Recv\(.*{HERE}.py:{line('gets nothing')}") as caught:
        run(program, 2)
    assert caught.value.kind == "stalled" and "rank 0 has ended in the middle of its program" in str(caught.value)


def test_ranks_that_compute_or_sleep_are_not_stalled(monkeypatch):
    monkeypatch.setattr(threads, "LOOK", 0.02)
    really = time.sleep

    def program(c):
        if c.rank == 1:
            until = time.perf_counter() + 0.3
            while time.perf_counter() < until:  # computes
                pass
        c.Barrier()
        if c.rank == 0:
            really(0.3)  # as a debugger does, which waits for a key
        c.Barrier()
        MPI.COMM_WORLD.Barrier()
        return c.rank

    assert world.IDLE * threads.LOOK < 0.2 and run(program, 3).results == [0, 1, 2]
