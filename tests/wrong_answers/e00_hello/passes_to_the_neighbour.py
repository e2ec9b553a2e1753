# says: Greetings are missing
# thinks: If everyone hands its greeting to the rank before it, all of them end up at rank 0.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    from_next = comm.recv(source=comm.rank + 1) if comm.rank + 1 < comm.size else None
    if comm.rank > 0:
        comm.send(greeting, dest=comm.rank - 1)
        return None
    return [greeting] if from_next is None else [greeting, from_next]
