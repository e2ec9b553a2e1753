"""What expert parallelism sends."""

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


def chosen_nodes(k: int, experts: int, nodes: int) -> float:
    """Return on how many nodes the experts of a token are, on average, if they are chosen at random without repeating.

    k: experts of a token.
    experts: their number, a multiple of the nodes.
    nodes: with equally many experts each.
    """
    elsewhere = experts - experts // nodes
    return nodes * (1 - math.comb(elsewhere, k) / math.comb(experts, k))
