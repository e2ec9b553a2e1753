# says: Every entry is rank 0's
# thinks: bcast brings everyone's object to rank 0.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = []
    for _ in range(comm.size):
        greetings.append(comm.bcast(f"rank {comm.rank} of {comm.size}", root=0))
    return greetings if comm.rank == 0 else None
