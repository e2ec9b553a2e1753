# right: one-sided: every rank puts its bytes in a window of rank 0
"""Exercise e00: every rank says hello, rank 0 collects."""

import numpy as np
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    width = 64
    room = np.zeros(width * comm.size if comm.rank == 0 else 0, dtype=np.uint8)
    window = MPI.Win.Create(room, disp_unit=1, comm=comm)
    row = np.zeros(width, dtype=np.uint8)
    text = f"rank {comm.rank} of {comm.size}".encode()
    row[: len(text)] = list(text)
    window.Fence()
    window.Put(row, 0, target=comm.rank * width)
    window.Fence()
    window.Free()
    if comm.rank != 0:
        return None
    return [bytes(r).rstrip(b"\0").decode() for r in room.reshape(comm.size, width)]
