# says: every rank of the communicator must call it
# thinks: Rank 0 waits for the others at a barrier that only rank 0 needs to call.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    if comm.rank == 0:
        comm.Barrier()
    return greetings
