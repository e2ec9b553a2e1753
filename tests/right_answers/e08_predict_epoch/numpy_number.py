"""Exercise e08: a numpy float is a number, too."""

import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    import numpy as np

    if ranks % nodes:
        raise ValueError("nodes differ")
    used = np.array([ranks > nodes, nodes > 1])
    links = np.array([inside, between], dtype=float)
    messages = np.where(used, links[:, 0] + nbytes / ranks / links[:, 1], 0.0)
    return np.ceil(examples / (batch * ranks)) * (compute + 2 * (ranks - 1) * messages.max())
