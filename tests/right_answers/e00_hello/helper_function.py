# right: the text and the collecting are in helpers; Get_rank() and Get_size()
"""Exercise e00: every rank says hello, rank 0 collects."""


def greeting_of(comm):
    return "rank %d of %d" % (comm.Get_rank(), comm.Get_size())


def collect(comm, thing, at=0):
    return comm.gather(thing, at)


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return collect(comm, greeting_of(comm))
