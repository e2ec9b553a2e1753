# right: works on a duplicate of the communicator and frees it
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    private = comm.Dup()
    try:
        return private.gather("rank {} of {}".format(private.rank, private.size), root=0)
    finally:
        private.Free()
