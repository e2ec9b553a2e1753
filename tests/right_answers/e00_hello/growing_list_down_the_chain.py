# right: each rank puts its greeting in front of the list it gets and hands it down
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    later = comm.recv(source=comm.rank + 1) if comm.rank + 1 < comm.size else []
    greetings = [f"rank {comm.rank} of {comm.size}", *later]
    if comm.rank == 0:
        return greetings
    comm.send(greetings, dest=comm.rank - 1)
