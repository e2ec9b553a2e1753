"""Public reports about MPI and mpi4py, rebuilt small: the right value, or the mistake named.

Reports whose programs have a right value are in programs/reported_mpi.py; here are those that need an explanation.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from mpcourse.virtual import MPI, ClusterError, Deadlock, run
from tests.conftest import load_script

PROGRAMS = Path(__file__).parents[1] / "programs" / "mpi_programs.py"
FILE = PROGRAMS.with_name("reported_mpi.py")
pytestmark = pytest.mark.filterwarnings("ignore:the .buf. argument is deprecated")  # it is the one that is reported
with MPI.as_mpi4py():
    reported, plain = load_script(FILE), load_script(PROGRAMS).plain


@pytest.mark.parametrize("program", reported.PROGRAMS, ids=lambda program: program.__name__)
def test_on_virtual_ranks(program):
    found = [plain(result) for result in run(program, reported.RANKS).results]
    assert json.loads(json.dumps(found)) == reported.EXPECTED[program.__name__]


def test_real_ranks_find_the_same(mpirun):
    done = mpirun(reported.RANKS, "-m", "mpi4py", PROGRAMS, FILE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == reported.EXPECTED


def named(program, *patterns, size=3, error=ClusterError, **options):
    """Return the error that `program` ends in; each of the patterns is in its text."""
    with pytest.raises(error) as raised:
        run(program, size, **options)
    for pattern in patterns:
        assert pattern in str(raised.value)
    return raised.value


# -- who waits for whom --


def test_two_ranks_that_send_first_are_a_deadlock_and_sendrecv_is_none():
    """Two ranks sent large messages to each other and hung; the standard calls such a program wrong for any size.

    http://www.idris.fr/eng/su/shared/mpi_send_recv-eng.html
    """

    def both_send(comm):
        mine, theirs = np.full(100, float(comm.rank)), np.empty(100)
        comm.Send(mine, 1 - comm.rank)
        comm.Recv(theirs, 1 - comm.rank)
        return theirs[0]

    def exchange(comm):
        mine, theirs = np.full(100, float(comm.rank)), np.empty(100)
        comm.Sendrecv(mine, 1 - comm.rank, 0, theirs, 1 - comm.rank, 0)
        return theirs[0]

    named(both_send, "circle: rank 0 -> rank 1 -> rank 0", size=2, error=Deadlock)
    assert run(both_send, 2, eager=10_000).results == [1.0, 0.0]  # "small" messages do not wait for their receiver
    assert run(exchange, 2).results == [1.0, 0.0]


def test_an_exception_on_one_rank_is_raised_and_not_waited_for():
    """A test hung at a barrier, because rank 0 had raised before it and the others waited.

    https://github.com/firedrakeproject/mpi-pytest/issues/12
    """

    def program(comm):
        if comm.rank == 0:
            raise ValueError("Test")
        comm.barrier()

    error = named(program, "Test", size=2, error=ValueError)
    assert any("rank 0" in note for note in error.__notes__)


def test_a_broadcast_on_some_ranks_and_a_sum_on_others_names_both_calls():
    """Four workers restored a checkpoint and broadcast, four others were summing gradients: all of them stalled.

    https://github.com/horovod/horovod/issues/202
    """

    def program(comm):
        if comm.rank < 4:
            comm.Allreduce(np.ones(2), np.empty(2))
        else:
            comm.Bcast(np.ones(2))

    named(program, "rank 4 calls Bcast", "rank 0 calls Allreduce", size=8)


def test_sums_of_two_communicators_in_opposite_orders_are_a_deadlock():
    """Two all-reduces on different communicators hung: rank A launched them in the other order than rank B.

    https://github.com/NVIDIA/nccl/issues/899
    """

    def program(comm):
        both = [comm.Dup(), comm.Dup()]
        for each in both[:: 1 if comm.rank else -1]:
            each.Allreduce(np.ones(3), np.empty(3))

    named(program, "circle: rank 0 -> rank 1 -> rank 0", size=2, error=Deadlock)


def test_one_reduction_less_on_one_rank_names_that_rank():
    """A packing step that fails on the root alone leaves the others at a later barrier for ever.

    https://github.com/mphowardlab/relentless/issues/221
    """

    def program(comm):
        for _ in range(3 - (comm.rank == 1)):
            comm.allreduce(1)

    named(program, "rank 0 waits in allreduce()", "rank 1 did not", error=Deadlock)


# -- lengths and datatypes --


def test_a_truncated_message_tells_both_lengths_the_right_way_round():
    """MPICH said "104 bytes received but buffer size is 104" of a message that did not fit.

    https://github.com/pmodels/mpich/issues/879
    """

    def program(comm):
        if comm.rank == 0:
            comm.Send(np.zeros(13), 1)
        else:
            comm.Recv(np.zeros(6), 0)

    named(program, "truncated", "has room for 6 float64", "sent 13 float64", size=2)


def test_reductions_of_different_lengths_name_the_ranks():
    """`MPI_Reduce` of 5 numbers on one rank and 10 on another was told as "40 bytes received but buffer size is 20".

    https://github.com/sbird/fake_spectra/pull/22
    """

    def program(comm):
        numbers = np.ones(10 if comm.rank == 1 else 5, np.float32)
        comm.Reduce(numbers, np.empty_like(numbers))

    named(program, "rank 0", "rank 1", "5 and 10 elements")


def test_an_allreduce_of_different_shapes_is_refused_and_not_summed_in_part():
    """NCCL's all-reduce with different shapes hangs for some, and gives wrong last elements for others.

    https://github.com/NVIDIA/nccl/issues/1417
    """

    def program(comm):
        numbers = np.ones((2, 3) if comm.rank else (2, 2))
        comm.Allreduce(MPI.IN_PLACE, numbers)

    named(program, "4 and 6 elements", size=2)


def test_a_strided_view_is_refused_and_its_copy_is_sent():
    """Halo exchanges of slices failed: mpi4py sends memory in one piece, so a view with gaps needs a copy.

    https://github.com/ai2cm/fv3gfs-wrapper/pull/60
    """

    def program(comm, contiguous):
        grid = np.arange(12.0).reshape(3, 4)
        if comm.rank == 0:
            comm.Send(np.ascontiguousarray(grid[:, 1]) if contiguous else grid[:, 1], 1)
            return None
        comm.Recv(column := np.empty(3), 0)
        return column.tolist()

    named(lambda comm: program(comm, False), "not contiguous", "np.ascontiguousarray", size=2)
    assert run(lambda comm: program(comm, True), 2).results == [None, [1.0, 5.0, 9.0]]


def test_a_python_number_is_no_buffer():
    """Sums of plain integers by the upper-case method were "all wrong": only lower-case methods take objects.

    https://github.com/UT-CHG/BET/issues/26
    """
    named(lambda comm: comm.Allreduce(comm.rank, np.zeros(1)), "an int is no buffer", "lower-case")
    assert run(lambda comm: comm.allreduce(comm.rank), 3).results == [3, 3, 3]


def test_float32_is_not_received_as_float64():
    """Gradients were sent as float64 for fear that float32 "can't be fully converted": MPI converts nothing.

    https://github.com/hwang595/ps_pytorch/issues/2
    """

    def program(comm):
        if comm.rank == 0:
            comm.Send(np.ones(2, np.float32), 1)
        else:
            comm.Recv(np.zeros(2), 0)

    named(program, "expects float64", "sent float32", size=2)


# -- buffers that are in use --


def test_a_send_buffer_is_not_filled_anew_before_its_wait():
    """A program cycled through send buffers, but used the first one again and again; it worked where MPI copies.

    https://github.com/dealii/dealii/pull/13206
    """

    def program(comm, buffers):
        if comm.rank == 0:
            requests = []
            for i in range(3):
                buffers[i][:] = i
                requests.append(comm.Isend(buffers[i], 1))
            MPI.Request.Waitall(requests)
            return None
        received = np.empty(2)
        return [comm.Recv(received, 0) or received[0] for _ in range(3)]

    named(lambda comm: program(comm, [np.empty(2)] * 3), "its buffer was changed before its Wait", size=2)
    assert run(lambda comm: program(comm, np.empty((3, 2))), 2).results == [None, [0.0, 1.0, 2.0]]


def test_a_request_that_is_thrown_away_is_named():
    """`comm.Isend(...)` without a name for what it returns, and a receive buffer that was too small, crashed Python.

    https://github.com/mpi4py/mpi4py/issues/233
    """

    def program(comm):
        if comm.rank == 0:
            comm.Isend(np.ones(3), 1)
        else:
            comm.Recv(np.empty(3), 0)

    named(program, "Isend(dest=1", "never waited for", size=2)


def test_a_reduction_into_its_own_operand_asks_for_in_place():
    """`comm.Reduce(x, x)` was how a review saved memory. MPI forbids it: one of the two is MPI.IN_PLACE.

    https://github.com/GeoscienceAustralia/PyRate/pull/338
    """
    named(lambda comm: comm.Reduce(numbers := np.ones(2), numbers), "the same memory", "MPI.IN_PLACE")


@pytest.mark.parametrize("call", ["Allgather", "Allgatherv", "Gather", "Scatter", "Alltoall", "Reduce_scatter_block"])
def test_a_collective_call_does_not_send_from_where_it_receives(call):
    """Groups gathered what lay in the receive buffer itself. Newer MPIs raise "Buffers must not be aliased".

    https://github.com/OpenMDAO/OpenMDAO/pull/904
    """

    def program(comm):
        numbers = np.full(comm.size, comm.rank + 1.0)
        mine = numbers[comm.rank : comm.rank + 1]
        sent, received = {
            "Scatter": (numbers, mine),
            "Alltoall": (numbers, numbers),
            "Reduce_scatter_block": (numbers, mine),
        }.get(call, (mine, numbers))
        getattr(comm, call)(sent, received)

    named(program, f"{call}: sendbuf and recvbuf are the same memory", "MPI.IN_PLACE")
