# says: Rank 1 receives from itself
# thinks: Every rank sends, so every rank has to receive as well.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
    greetings = [greeting] + [comm.recv(source=r) for r in range(comm.size) if r != 0]
    return greetings if comm.rank == 0 else None
