# says: use the `comm` it is given
# thinks: Rank and size are those of COMM_WORLD, whatever communicator is passed in.
"""Exercise e00: every rank says hello, rank 0 collects."""

from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    world = MPI.COMM_WORLD
    return comm.gather(f"rank {world.rank} of {world.size}", root=0)
