# says: the raise is still there at line 8 of
# thinks: The answer goes below the line that is there, which does no harm.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    raise NotImplementedError("e00_hello: return the list of all ranks' greetings on rank 0, and None on the others")
    return comm.gather(f"rank {comm.rank} of {comm.size}")
