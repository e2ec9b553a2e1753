# says: Scatter hands out, gather collects
# thinks: scatter and gather are two names for moving one object per rank to the root.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.scatter([f"rank {comm.rank} of {comm.size}"] * comm.size, root=0)
