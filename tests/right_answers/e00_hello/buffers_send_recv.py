# right: upper-case Send and Recv of a bytearray, with the length from Probe
"""Exercise e00: every rank says hello, rank 0 collects."""

from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    text = bytearray(f"rank {comm.rank} of {comm.size}", "ascii")
    if comm.rank != 0:
        comm.Send([text, MPI.CHAR], dest=0)
        return None
    greetings = [text.decode()]
    for r in range(1, comm.size):
        status = MPI.Status()
        comm.Probe(source=r, status=status)
        room = bytearray(status.Get_count(MPI.CHAR))
        comm.Recv([room, MPI.CHAR], source=r)
        greetings.append(room.decode())
    return greetings
