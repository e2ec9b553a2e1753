# right: sendrecv round the ring, size - 1 times; every rank then has all, and the others return None
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    greetings = [None] * comm.size
    here = comm.rank
    greetings[here] = f"rank {comm.rank} of {comm.size}"
    for _ in range(comm.size - 1):
        greetings[(here - 1) % comm.size] = comm.sendrecv(greetings[here], dest=right, source=left)
        here = (here - 1) % comm.size
    return greetings if comm.rank == 0 else None
