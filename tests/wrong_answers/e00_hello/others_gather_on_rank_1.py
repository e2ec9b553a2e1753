# says: rank 0 did not. Its root is rank 1
# thinks: The root is who sends.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank == 0:
        return [greeting] + [comm.recv(source=r) for r in range(1, comm.size)]
    return comm.gather(greeting, root=1) and None
