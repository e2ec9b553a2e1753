# says: Only rank 0 is asked for the list
# thinks: Collecting means that every rank ends up with the list.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.allgather(f"rank {comm.rank} of {comm.size}")
