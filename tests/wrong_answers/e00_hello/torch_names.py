# says: the names that a communicator has
# thinks: The names are those of torch.distributed.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.world_number}")
