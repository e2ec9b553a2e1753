# says: sends to itself
# needs: MPICH
# thinks: A blocking send to oneself is safe (it is only as long as MPI buffers small messages).
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    if comm.rank == 0:
        return [comm.recv(source=r) for r in range(comm.size)]
    return None
