"""What expert parallelism sends, and how long it takes."""

import math


def sent_by_dispatch(tokens: int, k: int, size: int, width: int, itemsize: int) -> float:
    """Return the bytes that a rank sends in one dispatch, or in one combine, if all experts have equally many tokens.

    tokens: of one rank.
    k: experts of a token.
    size: ranks of the expert axis. A p-th of a rank's choices stays on it.
    width: numbers that represent a token.
    itemsize: bytes of a number.

    A layer has one dispatch and one combine in forward, and as many in backward.
    """
    return tokens * k * (size - 1) / size * width * itemsize


def dispatch_seconds(nbytes: float, bandwidth: float, latency: float) -> float:
    """Return the seconds of a dispatch or a combine: a latency, and the bytes over the bandwidth.

    nbytes: that a rank sends.
    bandwidth: bytes a second out of a rank.
    latency: seconds until the first byte arrives, for all messages together.
    """
    return latency + nbytes / bandwidth


def chosen_nodes(k: int, experts: int, nodes: int) -> float:
    """Return on how many nodes the experts of a token are, on average, if they are chosen at random without repeating.

    k: experts of a token.
    experts: their number, a multiple of the nodes.
    nodes: with equally many experts each.
    """
    elsewhere = experts - experts // nodes
    return nodes * (1 - math.comb(elsewhere, k) / math.comb(experts, k))
