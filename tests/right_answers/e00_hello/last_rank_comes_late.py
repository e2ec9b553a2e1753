# right: one rank comes late
"""Exercise e00: every rank says hello, rank 0 collects."""

import time


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == comm.size - 1:
        time.sleep(0.3)
    return comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
