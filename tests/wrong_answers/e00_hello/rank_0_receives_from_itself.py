# says: receives from itself
# thinks: Rank 0's own greeting also arrives as a message, although it never sends one.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [comm.recv(source=r) for r in range(comm.size)]
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    return None
