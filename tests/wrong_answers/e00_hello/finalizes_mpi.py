# says: MPI.Finalize() was called
# thinks: After the last message one has to close MPI down.
"""Exercise e00: every rank says hello, rank 0 collects."""

from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    MPI.Finalize()
    return greetings
