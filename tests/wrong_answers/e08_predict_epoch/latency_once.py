# says: has its latency, not only the first
# thinks: the latency of a stream counts once.
"""Exercise e08: an epoch, predicted."""

import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    ring = max((a + 2 * nbytes * (ranks - 1) / ranks / b for a, b in links), default=0.0)
    return steps * (compute + ring * (ranks > 1))
