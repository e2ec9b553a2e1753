# says: order of ranks
# thinks: Messages arrive in the order of ranks, so ANY_SOURCE will do.
"""Exercise e00: every rank says hello, rank 0 collects."""

from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    greetings = [greeting]
    for _ in range(comm.size - 1):
        greetings.append(comm.recv(source=MPI.ANY_SOURCE))
    return greetings
