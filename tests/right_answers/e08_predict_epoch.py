"""Unusual right answers to e08_predict_epoch. What a cell holds is told in tests/answers.py."""

# %% closed_form_by_link
# thinks: It works out the whole ring for each kind of link in use and takes the slower one, for all rounds are alike.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if math.gcd(ranks, nodes) != nodes:
        raise ValueError(f"{ranks} ranks, {nodes} nodes")

    def ring(alpha, bandwidth):
        return 2 * (ranks - 1) * alpha + 2 * nbytes * (ranks - 1) / ranks / bandwidth

    rings = [0.0]
    if ranks != nodes:
        rings.append(ring(*inside))
    if nodes != 1:
        rings.append(ring(*between))
    return math.ceil(examples / batch / ranks) * (compute + max(rings))


# %% numpy_number
# thinks: The slowest message is a numpy maximum over the links in use, and the numpy number that comes back is a
#   float, too.
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


# %% ring_rank_by_rank
# thinks: It goes round the ring rank by rank to find the slowest message, and adds up the epoch step by step.
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
