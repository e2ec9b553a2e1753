"""Exercise e00: every rank says hello, rank 0 collects.

`mpirun -np 2 python exercises/e00_hello.py` starts this file twice. The two processes are called ranks. They share
no memory. One rank can give data to another only in a message through the communicator `comm`.

    comm.rank   this process's number: 0, 1, ..., comm.size - 1
    comm.size   the number of processes

Check it with `mpcourse check e00`, or run it yourself under mpirun as above. Stuck? `mpcourse hint e00`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def greet(comm):
    """Collect one greeting from every rank on rank 0.

    comm: an mpi4py communicator. Every rank calls this function.
    Returns on rank 0: a list or tuple of strings, in the order of ranks. For two ranks it is
    ["rank 0 of 2", "rank 1 of 2"]. There may be more than ten ranks. Every rank makes its own greeting, which
    reaches rank 0 in messages through `comm`.
    Returns on every other rank: None.
    """
    # solution: return the list of all ranks' greetings on rank 0, and None on the others
    return comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    # end of solution
