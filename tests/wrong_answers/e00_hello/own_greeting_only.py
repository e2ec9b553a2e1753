# says: That is one string. Rank 0 returns the list
# thinks: Each rank returns its greeting, and the launcher makes the list of them.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return f"rank {comm.rank} of {comm.size}"
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    return None
