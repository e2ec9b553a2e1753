# right: a recursive tree: halves of the ranks are collected by their first rank
"""Exercise e00: every rank says hello, rank 0 collects."""


def collect(comm, first, end):
    if end - first == 1:
        return [f"rank {comm.rank} of {comm.size}"] if comm.rank == first else None
    middle = (first + end) // 2
    if comm.rank >= middle:
        part = collect(comm, middle, end)
        if comm.rank == middle:
            comm.send(part, dest=first)
        return None
    part = collect(comm, first, middle)
    return part + comm.recv(source=middle) if comm.rank == first else None


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return collect(comm, 0, comm.size) if comm.size > 0 else None
