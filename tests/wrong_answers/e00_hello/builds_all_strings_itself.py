# says: without a message
# thinks: Rank 0 knows the size, so it can write all the greetings itself.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [f"rank {r} of {comm.size}" for r in range(comm.size)]
    return None
