# says: a list of strings
# thinks: Collecting the rank numbers is collecting the greetings.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(comm.rank, root=0)
