"""Programs from public reports about MPI whose results are right: virtual ranks and real ones must find the same.

Each is for three ranks. `finds` says what rank 0, 1 and 2 return; a docstring says what the user met, and where.
`mpirun -np 3 python tests/programs/mpi_programs.py tests/programs/reported_mpi.py` prints what real ranks find.
"""

import numpy as np
from mpi4py import MPI

RANKS, PROGRAMS, EXPECTED = 3, [], {}


def finds(*by_rank):
    """Say what each rank returns; one value: all ranks return it."""

    def keep(program):
        PROGRAMS.append(program)
        EXPECTED[program.__name__] = list(by_rank) if len(by_rank) == RANKS else list(by_rank) * RANKS
        return program

    return keep


@finds([0.0, 1.0, 2.0], [3.0, 4.0, 5.0, 6.0], [7.0, 8.0])
def counts_of_scatterv_may_be_numpy_arrays(comm):
    """Use counts that are numpy integers, which a version of mpi4py refused.

    https://github.com/mpi4py/mpi4py/issues/430
    """
    counts, begins = np.array([3, 4, 2]), np.array([0, 3, 7])
    mine = np.empty(counts[comm.rank])
    everything = np.arange(9.0) if comm.rank == 0 else None
    comm.Scatterv([everything, counts, begins, MPI.DOUBLE], [mine, counts[comm.rank], MPI.DOUBLE])
    return mine


@finds([[0.0, 0.0, 1.0, 1.0, 2.0, 2.0], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]], None, None)
def columns_that_are_gathered_stand_one_block_after_the_other(comm):
    """Gather blocks of columns into a wider matrix, whose rows the user found mixed up.

    A gather places each rank's memory after that of the rank before; putting columns side by side takes a transpose.
    https://github.com/mpi4py/mpi4py/issues/440
    """
    block = np.full((2, 2), float(comm.rank))
    blocks = np.empty((comm.size, 2, 2)) if comm.rank == 0 else None
    comm.Gather(block, blocks)
    return None if blocks is None else blocks.transpose(1, 0, 2).reshape(2, -1)


@finds([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
def allgather_orders_by_rank_whatever_shape_receives(comm):
    """Receive an array of another shape, whose entries were in an order that the sender did not expect.

    The memory is filled rank by rank; the receiver's shape only says where a row ends.
    https://github.com/UT-CHG/BET/issues/76
    """
    chain = np.full((2, 2), float(comm.rank))
    everybody = np.empty((3, 4))
    comm.Allgather(chain, everybody)
    return everybody


@finds(None, [[0.0, 3.0, 1.0], [4.0, 2.0, 5.0]], None)
def an_array_in_fortran_order_is_sent_as_its_memory_lies(comm):
    """Send a matrix in Fortran order, which arrived as another matrix.

    Its columns lie one after the other in memory, that is what is sent, and the receiver reads rows.
    https://github.com/numba-mpi/numba-mpi/pull/31
    """
    if comm.rank == 0:
        comm.Send(np.asfortranarray(np.arange(6.0).reshape(2, 3)), 1)
    if comm.rank != 1:
        return None
    received = np.empty((2, 3))
    comm.Recv(received, 0)
    return received


@finds(None, [[7, 0, 0, 0], 4], None)
def a_count_of_bytes_sends_so_many_bytes(comm):
    """`[array, n, MPI.BYTE]` of an integer array sent a part of it: n counts what the datatype says.

    https://github.com/mpi4py/mpi4py/issues/575
    """
    if comm.rank == 0:
        comm.Send([np.array([7, 8, 9, 10], np.int32), 4, MPI.BYTE], 1)
    if comm.rank != 1:
        return None
    received, status = np.zeros(4, np.int32), MPI.Status()
    comm.Recv([received, MPI.BYTE], 0, status=status)
    return received, status.Get_count(MPI.BYTE)


@finds(None, [4, 5, 6, 7, -1, -1], None)
def small_integers_arrive_whole_and_write_nothing_else(comm):
    """Two of four int16 were lost, and memory behind them was overwritten, because they were sent as another type.

    https://github.com/helmholtz-analytics/heat/issues/497
    """
    if comm.rank == 0:
        comm.Send(np.array([4, 5, 6, 7], np.int16), 1)
    if comm.rank != 1:
        return None
    received = np.full(6, -1, np.int16)
    comm.Recv(received[:4], 0)
    return received


@finds([[0, 1, 2], [3, 3]])
def allreduce_of_lists_joins_them_and_of_arrays_adds_them(comm):
    """Sum Python objects by their own `+`, which joins lists in the order of ranks.

    https://github.com/mpi4py/mpi4py/issues/156
    """
    return comm.allreduce([comm.rank]), comm.allreduce(np.array([comm.rank, 1]))


@finds(6.0)
def an_array_without_dimensions_is_reduced_as_one_number(comm):
    """Sum scalars, which failed because their shape is empty.

    https://github.com/mpi4jax/mpi4jax/issues/4
    """
    total = np.zeros(())
    comm.Allreduce(np.array(comm.rank + 1.0), total)
    return float(total)


@finds([6.0, 6.0], [2.0, 2.0], [3.0, 3.0])
def a_reduction_in_place_says_so_on_the_root_alone(comm):
    """All ranks gave MPI_IN_PLACE to MPI_Reduce, which aborts: the others receive nothing in whose place it could be.

    https://github.com/pmodels/mpich/issues/759
    """
    numbers = np.full(2, comm.rank + 1.0)
    if comm.rank == 0:
        comm.Reduce(MPI.IN_PLACE, numbers)
    else:
        comm.Reduce(numbers, None)
    return numbers


@finds(None, 10_000, None)
def irecv_with_room_enough_takes_a_large_object(comm):
    """Send a mesh as an object, which was truncated; a buffer for irecv that is large enough mends it.

    https://github.com/phoebe-project/phoebe2/issues/221
    """
    if comm.rank == 0:
        comm.send(np.zeros(10_000), 1)
    return len(comm.irecv(bytearray(1 << 20), source=0).wait()) if comm.rank == 1 else None


@finds(None, [1.00001, 2.0002], None)
def messages_of_one_tag_arrive_in_the_order_in_which_they_were_sent(comm):
    """Two floats sent at once with one tag came out of order between two nodes. MPI forbids that they overtake.

    https://github.com/pmodels/mpich/issues/6584
    """
    if comm.rank == 0:
        MPI.Request.waitall([comm.isend(each, 1, tag=1) for each in (1.00001, 2.0002)])
    return [comm.recv(source=0, tag=1) for _ in range(2)] if comm.rank == 1 else None


@finds(2.0)
def float32_halves_of_a_sum_lose_what_float64_keeps(comm):
    """Sum over ranks in float32, which differed from one process by 0.002 because of another order.

    Adding 1 to 2**24 in float32 changes nothing, adding two ones first does. In float64 the order does not matter.
    https://github.com/mpi4py/mpi4py/issues/5
    """
    numbers = {0: 2.0**24, 1: 1.0, 2: 1.0}
    totals = []
    for dtype in (np.float32, np.float64):
        total = np.zeros(1, dtype)
        comm.Allreduce(np.array([numbers[comm.rank]], dtype), total)
        totals.append(float(total[0]) - 2.0**24)
    assert totals[0] in (0.0, 2.0)  # by the order in which this MPI adds
    return totals[1]
