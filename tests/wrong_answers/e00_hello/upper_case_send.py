# says: the lower-case ones move any object
# thinks: Send and send are the same method.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank > 0:
        comm.Send(greeting, dest=0)
        return None
    return [greeting] + [comm.recv(source=r) for r in range(1, comm.size)]
