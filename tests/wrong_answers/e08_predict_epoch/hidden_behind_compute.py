# says: Nothing is hidden here
# thinks: communication overlaps.
"""Exercise e08: an epoch, predicted."""

import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * max(compute, 2 * (ranks - 1) * slowest)
