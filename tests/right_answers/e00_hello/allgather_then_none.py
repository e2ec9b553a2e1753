# right: allgather, and the other ranks drop the list
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.allgather(f"rank {comm.rank} of {comm.size}")
    if comm.rank == 0:
        return greetings
    return None
