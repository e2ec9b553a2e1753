# says: comm.size may be any
# thinks: There are always two ranks, 0 and 1.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank == 1:
        comm.send(greeting, dest=0)
    if comm.rank == 0:
        return [greeting, comm.recv(source=1)]
    return None
