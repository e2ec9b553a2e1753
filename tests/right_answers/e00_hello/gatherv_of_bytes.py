# right: Gather of the lengths, then Gatherv of the bytes
"""Exercise e00: every rank says hello, rank 0 collects."""

import numpy as np
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    mine = np.frombuffer(f"rank {comm.rank} of {comm.size}".encode(), dtype=np.uint8)
    lengths = np.zeros(comm.size, dtype=np.int32)
    comm.Gather(np.array([mine.size], dtype=np.int32), lengths, root=0)
    text = np.zeros(int(lengths.sum()), dtype=np.uint8)
    comm.Gatherv(mine, [text, lengths, MPI.BYTE] if comm.rank == 0 else None, root=0)
    if comm.rank != 0:
        return None
    ends = np.cumsum(lengths)
    return [bytes(text[end - n : end]).decode() for n, end in zip(lengths, ends)]
