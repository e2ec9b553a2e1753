# right: each rank waits for rank 0's word before it sends
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank != 0:
        comm.recv(source=0, tag=1)
        comm.send(f"rank {comm.rank} of {comm.size}", dest=0, tag=2)
        return None
    greetings = [f"rank {comm.rank} of {comm.size}"]
    for r in range(1, comm.size):
        comm.send(None, dest=r, tag=1)
        greetings.append(comm.recv(source=r, tag=2))
    return greetings
