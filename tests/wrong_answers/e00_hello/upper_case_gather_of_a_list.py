# says: the lower-case ones move any object
# thinks: Gather fills a list.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = [None] * comm.size
    comm.Gather([f"rank {comm.rank} of {comm.size}"], greetings, root=0)
    return greetings if comm.rank == 0 else None
