# says: use the `comm` it is given
# thinks: Messages always travel through COMM_WORLD; comm is only for asking rank and size.
"""Exercise e00: every rank says hello, rank 0 collects."""

from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = MPI.COMM_WORLD.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return greetings if comm.rank == 0 else None
