# right: isend and irecv on every rank, rank 0 also to itself, all waited for
"""Exercise e00: every rank says hello, rank 0 collects."""

from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    sent = comm.isend(f"rank {comm.rank} of {comm.size}", dest=0)
    if comm.rank != 0:
        sent.wait()
        return None
    greetings = MPI.Request.waitall([comm.irecv(source=r) for r in range(comm.size)])
    sent.wait()
    return list(greetings)
