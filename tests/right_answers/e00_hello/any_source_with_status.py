# right: receives in any order and places each greeting by the status's source
"""Exercise e00: every rank says hello, rank 0 collects."""

from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = [None] * comm.size
    if comm.rank != 0:
        comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
        return None
    greetings[0] = f"rank {comm.rank} of {comm.size}"
    status = MPI.Status()
    for _ in range(comm.size - 1):
        greeting = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
        greetings[status.Get_source()] = greeting
    return greetings
