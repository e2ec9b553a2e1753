# says: Every rank receives before anyone sends
# thinks: The other side must say that it is ready before one sends, and both sides wait for that.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.recv(source=0)
        comm.send(greeting, dest=0)
        return None
    greetings = [greeting]
    for r in range(1, comm.size):
        greetings.append(comm.recv(source=r))
        comm.send("thank you", dest=r)
    return greetings
