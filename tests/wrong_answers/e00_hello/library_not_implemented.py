# says: raised NotImplementedError at line
# thinks: A codec makes bytes of the greeting. (The class is a pattern, and its method raises the stub's exception.)
"""Exercise e00: every rank says hello, rank 0 collects."""

import codecs


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(codecs.Codec().encode(f"rank {comm.rank} of {comm.size}"))
