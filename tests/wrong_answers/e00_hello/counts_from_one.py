# says: Ranks count from 0
# thinks: The first rank is number 1.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank + 1} of {comm.size}", root=0)
