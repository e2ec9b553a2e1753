# says: gather(root=1) collects on rank 1
# thinks: The last rank collects, because it comes when all others are done.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.size}", root=comm.size - 1)
