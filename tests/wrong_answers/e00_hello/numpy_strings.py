# says: the lower-case ones move any object
# thinks: numpy arrays can be sent, whatever is in them.
"""Exercise e00: every rank says hello, rank 0 collects."""

import numpy as np


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = np.array([f"rank {comm.rank} of {comm.size}"])
    greetings = np.empty(comm.size, dtype=greeting.dtype)
    comm.Gather(greeting, greetings, root=0)
    return list(greetings) if comm.rank == 0 else None
