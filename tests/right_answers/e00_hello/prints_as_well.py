# right: prints on every rank, and has barriers that it does not need
"""Exercise e00: every rank says hello, rank 0 collects."""


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    print(greeting, flush=True)
    comm.Barrier()
    greetings = comm.gather(greeting)
    comm.Barrier()
    if comm.rank == 0:
        print(greetings, flush=True)
    return greetings
