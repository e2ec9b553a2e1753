"""Exercise e08: who sends to whom, one by one."""

import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    each, rest = divmod(ranks, nodes)
    if rest:
        raise ValueError("nodes differ")
    slowest = 0.0
    for rank in range(ranks if ranks > 1 else 0):
        latency, bandwidth = inside if rank // each == (rank + 1) % ranks // each else between
        slowest = max(slowest, latency + nbytes / ranks / bandwidth)
    seconds = 0.0
    while examples > 0:
        examples -= batch * ranks
        seconds += compute + 2 * (ranks - 1) * slowest
    return seconds
