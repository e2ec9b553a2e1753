# says: exactly 'rank 0 of
# thinks: A greeting needs the word hello.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"Hello from rank {comm.rank} of {comm.size}", root=0)
