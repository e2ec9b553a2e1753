# says: share no memory
# thinks: A list at the top of the file is one list that all ranks append to.
"""Exercise e00: every rank says hello, rank 0 collects."""

greetings = []


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings.append(f"rank {comm.rank} of {comm.size}")
    comm.Barrier()
    if comm.rank == 0:
        return list(greetings)
    return None
