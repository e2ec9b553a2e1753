# says: gather(root=1) collects on rank 1
# thinks: The root is the first rank, and the first rank is number 1.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.size}", root=1)
