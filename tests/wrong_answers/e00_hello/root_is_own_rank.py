# says: not who calls. rank 0 names 0, rank 1 names 1.
# thinks: Root is the rank that calls, so every rank names itself.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=comm.rank)
    return greetings if comm.rank == 0 else None
