# says: of an earlier call
# thinks: The function is called only once, so the list may live outside of it.
"""Exercise e00: every rank says hello, rank 0 collects."""

greetings = []


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    greetings.append(greeting)
    for r in range(1, comm.size):
        greetings.append(comm.recv(source=r))
    return greetings
