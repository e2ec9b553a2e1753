# says: Get_rank() and Get_size() with parentheses
# thinks: Get_rank is a number, not a method that must be called.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.Get_rank} of {comm.Get_size}", root=0)
