# right: one bcast per rank, each with another root
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = [
        comm.bcast(f"rank {comm.rank} of {comm.size}" if comm.rank == r else None, root=r) for r in range(comm.size)
    ]
    return greetings if comm.rank == 0 else None
