# says: rank 1 called sys.exit(0)
# thinks: A rank that has sent its greeting is done and ends its process.
"""Exercise e00: every rank says hello, rank 0 collects."""

import sys


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    if comm.rank != 0:
        sys.exit(0)
    return greetings
