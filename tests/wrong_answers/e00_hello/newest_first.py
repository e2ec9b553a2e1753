# says: order of ranks
# thinks: The order in the list does not matter, so each new greeting goes in front.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    greetings = [greeting]
    for r in range(1, comm.size):
        greetings.insert(0, comm.recv(source=r))
    return greetings
