# says: at the same time: it takes as long as the slowest
# thinks: first inside, then between.
"""Exercise e08: an epoch, predicted."""

import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = sum((a + nbytes / ranks / b for a, b in links))
    return steps * (compute + 2 * (ranks - 1) * slowest)
