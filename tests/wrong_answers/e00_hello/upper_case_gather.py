# says: the lower-case ones move any object
# thinks: Gather and gather are the same method.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.Gather(f"rank {comm.rank} of {comm.size}", root=0)
