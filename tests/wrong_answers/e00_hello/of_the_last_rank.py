# says: comm.size, the number of ranks
# thinks: The number after `of` is the last rank.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.size - 1}", root=0)
