# says: need not be the slower one for a short message
# thinks: the link with less bandwidth is the slow one.
"""Exercise e08: an epoch, predicted."""

import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    a, b = min(links, key=lambda link: link[1], default=(0.0, 1.0))
    return steps * (compute + 2 * (ranks - 1) * (a + nbytes / ranks / b))
