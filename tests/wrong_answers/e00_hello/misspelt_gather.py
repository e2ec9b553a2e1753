# says: Did you mean comm.gather?
# thinks: A slip of the finger.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gathr(f"rank {comm.rank} of {comm.size}")
