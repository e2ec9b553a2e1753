"""What context parallelism costs: bytes that a rank sends, the share of causal work, and when messages are hidden."""

from mpcourse.context_parallel.tokens import LAYOUTS, seen


def sent_by_attention(
    way: str, size: int, length: int, batch: int, heads: int, groups: int, head: int, itemsize: int
) -> tuple[float, float]:
    """Return the bytes that each rank sends for one attention: (forward, backward).

    way: "ring", "gather" or "ulysses".
    size: ranks, which have equally many tokens.
    length: tokens of the whole sequence.
    batch, heads, groups, head: sequences, heads of queries, heads of keys and values, elements of a head.
    itemsize: bytes of an element. Gradients of keys and values travel in 4 bytes at least, except by "ulysses".

    n is the size of one rank's keys and values. Ring: (p - 1) n forward; keys, values and their gradients, 2 (p - 1) n,
    backward. Gather: the same bytes. Ulysses: (p - 1) / p of q, k, v and the result, in each direction.
    """
    own = batch * length / size * head
    if way == "ulysses":
        sent = (size - 1) / size * own * itemsize * (2 * heads + 2 * max(groups, size))
        return sent, sent
    keys_and_values = (size - 1) * own * 2 * groups
    return keys_and_values * itemsize, keys_and_values * (itemsize + max(itemsize, 4))


def causal_share(layout: str, size: int, length: int) -> float:
    """Return how fast a causal ring is at best: the time of work that all ranks share equally, over that of the ring.

    layout: a name of LAYOUTS.
    size: ranks, which have equally many tokens.
    length: tokens of the whole sequence.

    In each step a rank's queries meet the keys of one rank, and all ranks wait for the one with the most pairs, because
    they pass their keys on to each other.
    """
    parts = LAYOUTS[layout](length, size)

    def pairs(rank: int, source: int) -> float:
        found = 0.0
        for part in seen(parts[rank], parts[source]):
            queries, keys = part.queries.stop - part.queries.start, part.keys.stop - part.keys.start
            found += queries * (queries + 1) / 2 if part.causal else queries * keys
        return found

    slowest = sum(max(pairs(rank, (rank - step) % size) for rank in range(size)) for step in range(size))
    return length * (length + 1) / 2 / size / slowest


def hidden_from(flops: float, bandwidth: float, groups: float = 1.0, itemsize: int = 2) -> float:
    """Return from how many tokens a rank on the keys and values travel behind the products of forward.

    flops: FLOP/s that a GPU reaches.
    bandwidth: bytes a second to the next rank.
    groups: heads of keys and values for each head of queries.
    itemsize: bytes of an element.

    c tokens of width h: 4 c² h FLOPs for the scores and the weighted sum, and 2 c h `groups` elements to send. Ring
    Attention, section 3, counts 2 bytes an element: c >= flops / bandwidth.
    """
    return flops / bandwidth * groups * itemsize / 2
