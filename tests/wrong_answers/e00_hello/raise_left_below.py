# says: the raise is still there at line 9 of
# thinks: The answer goes above the line that is there; a return is not needed.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}")
    raise NotImplementedError("e00_hello: return the list of all ranks' greetings on rank 0, and None on the others")
