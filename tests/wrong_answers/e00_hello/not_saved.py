# says: Is it saved?
# thinks: The editor saves by itself.
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    raise NotImplementedError("e00_hello: return the list of all ranks' greetings on rank 0, and None on the others")
