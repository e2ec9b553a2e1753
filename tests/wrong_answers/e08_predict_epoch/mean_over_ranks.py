# says: however many fast ones there are
# thinks: most messages stay inside.
"""Exercise e08: an epoch, predicted."""

import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    def message(link):
        return link[0] + nbytes / ranks / link[1]

    crossing = nodes if nodes > 1 else 0
    mean = (crossing * message(between) + (ranks - crossing) * message(inside)) / ranks
    return steps * (compute + 2 * (ranks - 1) * mean)
