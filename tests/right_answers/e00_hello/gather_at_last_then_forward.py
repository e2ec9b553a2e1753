# right: gathers on the last rank, which sends the list on to rank 0
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    last = comm.size - 1
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=last)
    if last == 0:
        return greetings
    if comm.rank == last:
        comm.send(greetings, dest=0)
    return comm.recv(source=last) if comm.rank == 0 else None
