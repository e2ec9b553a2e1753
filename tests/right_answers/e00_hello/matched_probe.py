# right: probes for any message and receives the one that was matched
"""Exercise e00: every rank says hello, rank 0 collects."""

from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank != 0:
        comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
        return None
    greetings = {0: f"rank {comm.rank} of {comm.size}"}
    while len(greetings) < comm.size:
        status = MPI.Status()
        message = comm.mprobe(status=status)
        greetings[status.source] = message.recv()
    return [greetings[r] for r in sorted(greetings)]
