# says: never received
# thinks: A greeting is for all, so it goes to every other rank, whether or not that one receives.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank == 0:
        return [greeting] + [comm.recv(source=r) for r in range(1, comm.size)]
    for r in range(comm.size):
        if r != comm.rank:
            comm.send(greeting, dest=r)
    return None
