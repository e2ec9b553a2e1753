# right: receives from the last rank first and turns the list round
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank:
        comm.send(f"rank {comm.rank} of {comm.size}", 0)
    else:
        greetings = []
        for r in range(comm.size - 1, 0, -1):
            greetings.append(comm.recv(source=r))
        greetings.append(f"rank {comm.rank} of {comm.size}")
        greetings.reverse()
        return greetings
