# says: Did you mean comm.rank?
# thinks: Upper-case methods are the fast ones, so it is Rank too.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.Rank} of {comm.size}")
