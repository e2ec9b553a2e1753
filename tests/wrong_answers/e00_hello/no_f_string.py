# says: the f before the string
# thinks: Braces are filled in without the f in front of the string.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather("rank {comm.rank} of {comm.size}", root=0)
