# says: Did you mean comm.Get_rank?
# thinks: Python's methods are in lower case.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.get_rank()} of {comm.get_size()}")
