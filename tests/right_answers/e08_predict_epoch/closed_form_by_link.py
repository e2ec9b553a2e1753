"""Exercise e08: 2 (p - 1) alpha + 2 n (p - 1) / p beta of each link, and the larger of both."""

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
