# says: exactly 'rank 0 of
# thinks: Every line of text ends in a newline.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.size}\n", root=0)
