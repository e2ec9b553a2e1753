# says: gather is a collective call
# thinks: Gather is something that rank 0 does, so only rank 0 calls it.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return None
