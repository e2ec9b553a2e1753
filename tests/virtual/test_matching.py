"""Which receive gets which message, where receives from any source wait and communicators are freed meanwhile."""

import numpy as np
import pytest

from mpcourse.virtual import MPI, ClusterError, Deadlock, run

FREES = ("Free", "Disconnect")
MAKES = ("Dup", "Split")


@pytest.mark.parametrize("free", FREES)
@pytest.mark.parametrize("how", MAKES)
@pytest.mark.parametrize("begin", ["recv", "irecv"])
def test_a_communicator_is_freed_after_a_receive_from_any_source(begin, how, free):
    def program(c):
        d = getattr(c, how)()
        if c.rank == 0:
            c.send("first", 1)
            found = d.recv() if begin == "recv" else d.irecv().wait()
        else:
            found = c.recv(source=0)
            d.send("second", 0)
        getattr(d, free)()
        c.Barrier()
        return found

    assert run(program, 2).results == ["second", "first"]


@pytest.mark.parametrize("source", [MPI.ANY_SOURCE, 1])
def test_a_communicator_is_freed_while_its_messages_are_under_way(source):
    """MPI keeps it until all that was begun on it is over (MPI 4.1, section 7.4.3)."""

    def program(c):
        d = c.Dup()
        into = np.zeros(2)
        if c.rank == 0:
            requests = [d.irecv(source=source), d.Irecv(into, source), d.Ibarrier()]
        else:
            requests = [d.isend("text", 0), d.Isend(np.ones(2), 0), d.Ibarrier()]
        d.Free()
        return MPI.Request.waitall(requests)[0], into.tolist()

    assert run(program, 2).results == [("text", [1, 1]), (None, [0, 0])]


def test_a_receive_on_a_freed_communicator_is_given_up():
    def program(c):
        d = c.Dup()
        q = d.irecv(source=1 - c.rank)
        d.Free()
        q.Cancel()
        q.wait()
        return q == MPI.REQUEST_NULL

    assert run(program, 2).results == [True, True]


def test_a_deadlock_is_explained_though_its_communicator_or_another_one_was_freed():
    def receives(c):
        d = c.Dup()
        q = d.irecv(source=1 - c.rank)
        d.Free()
        q.wait()

    def probes(c):
        c.Dup().Free()
        c.Split().Probe(1 - c.rank)

    def meets(c):
        d = c.Dup()
        q = d.Ibarrier() if c.rank == 0 else None
        d.Free()
        return q and q.Wait()

    for program, text in ((receives, "irecv(source=1"), (probes, "Probe(source=1"), (meets, "Ibarrier()")):
        with pytest.raises(Deadlock) as caught:
            run(program, 2)
        assert text in str(caught.value) and "freed" not in str(caught.value)


@pytest.mark.parametrize("second", ["irecv", "recv", "Waitany"])
def test_what_a_receive_from_any_source_leaves_goes_to_one_that_names_its_source(second):
    def program(c):
        c.Barrier()
        if c.rank == 0:
            c.compute(1e-6)
            return MPI.Request.waitall([c.isend(text, 1, 5) for text in "ab"])
        first = c.irecv()
        if second == "recv":
            return [c.recv(source=0, tag=5), first.wait()]
        other = c.irecv(source=0, tag=5)
        if second == "irecv":
            return [other.wait(), first.wait()]
        found = [MPI.Request.waitany([other, first]) for _ in range(2)]
        return [text for _, text in sorted(found)]

    assert run(program, 2).results[1] == ["b", "a"]


def test_the_first_message_of_a_rank_that_has_run_ahead_goes_to_the_first_receive():
    """A Sendrecv does not wait until the other ranks have come to its time."""

    def program(c):
        rows = np.zeros((2, 1))
        if c.rank == 0:
            c.compute(1.0)
            for k in (1.0, 2.0):
                c.Sendrecv(np.full(1, k), 1, 0, rows[0], 1, 0)
            return None
        requests = [c.Irecv(rows[0]), c.Irecv(rows[1], source=0)]
        for _ in range(2):
            c.Send(np.zeros(1), 0)
        MPI.Request.Waitall(requests)
        return rows.ravel().tolist()

    assert run(program, 2).results[1] == [1, 2]


@pytest.mark.parametrize("tag", [5, MPI.ANY_TAG])
def test_messages_pass_by_a_receive_whose_tag_they_do_not_have(tag):
    """Two receives wait: what fits both goes to the first, what fits one goes to that one."""

    def program(c):
        if c.rank == 0:
            c.compute(1.0)
            return [c.Sendrecv(np.full(1, float(t)), 1, t, np.zeros(1), 1, 0) for t in (5, 6, 5)]
        rows = np.zeros((3, 1))
        requests = [c.Irecv(rows[0], tag=5), c.Irecv(rows[1], source=0), c.Irecv(rows[2], source=0, tag=tag)]
        for _ in range(3):
            c.Send(np.zeros(1), 0)
        MPI.Request.Waitall(requests)
        return rows.ravel().tolist()

    assert run(program, 2).results[1] == [5, 6, 5]


def test_a_message_that_does_not_fit_is_found_also_when_its_sender_has_returned():
    def program(c):
        if c.rank == 0:
            c.compute(1e-6)
            c.Bsend(np.zeros(5), 1)
        else:
            c.Recv(np.zeros(1))

    with pytest.raises(ClusterError, match="truncated"):
        run(program, 2)


def test_a_message_does_not_overtake_one_that_waits_for_its_turn():
    """The second message may still go to the receive from any source, so the third may not go to the last receive."""

    def program(c):
        c.Barrier()
        if c.rank == 0:
            c.compute(1e-6)
            return MPI.Request.waitall([c.isend(text, 1, tag) for text, tag in (("a", 5), ("b", 5), ("c", 6))])
        return MPI.Request.waitall([c.irecv(tag=5), c.irecv(source=0), c.irecv(source=0, tag=6)])

    def blocking(c):
        c.Barrier()
        if c.rank == 0:
            c.compute(1e-6)
            return MPI.Request.waitall([c.isend(text, 1, 5) for text in "abc"])
        c.compute(1e-6)
        first, second = c.irecv(), c.irecv(source=0, tag=5)
        third = c.recv(source=0, tag=5)
        return [first.wait(), second.wait(), third]

    for each in (program, blocking):
        assert run(each, 2).results[1] == ["a", "b", "c"]
