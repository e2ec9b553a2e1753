# says: Its root is rank 1, for it says root=1
# thinks: bcast fetches what the root has, and only who wants it calls it.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [f"rank 0 of {comm.size}", comm.bcast(None, root=1)]
    return None
