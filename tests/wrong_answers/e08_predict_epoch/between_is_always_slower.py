# says: Do not take for granted
# thinks: a network is slower than a bus.
"""Exercise e08: an epoch, predicted."""

import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    a, b = between if nodes > 1 else inside
    return steps * (compute + 2 * (ranks - 1) * (a + nbytes / ranks / b))
