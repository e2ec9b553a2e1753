"""Which experts a token goes to, how many tokens an expert takes, and the loss that spreads the tokens evenly.

Sources: Noam Shazeer and others, Outrageously Large Neural Networks, 2017, https://arxiv.org/abs/1701.06538 (top-k);
William Fedus and others, Switch Transformers, 2021, https://arxiv.org/abs/2101.03961, sections 2.1 and 2.2 (capacity
and the loss).
"""

import math
from typing import NamedTuple

import torch

from mpcourse.collectives.tensors import all_reduce
from mpcourse.common.comm import Comm

Tensor = torch.Tensor


class Routing(NamedTuple):
    """Where tokens go.

    chosen: int64 (tokens, k), each token's experts, the most probable first.
    weights: (tokens, k), by which their results are multiplied. The router learns through them.
    kept: bool (tokens, k), False where an expert had no room.
    probabilities: (tokens, experts), the router's.
    """

    chosen: Tensor
    weights: Tensor
    kept: Tensor
    probabilities: Tensor


def route(logits: Tensor, k: int = 1, room: int | None = None, *, renormalise: bool = False) -> Routing:
    """Choose k experts for each token.

    logits: (tokens, experts), of the router.
    k: experts of a token.
    room: tokens that an expert takes of these; None: all. First choices come before second ones, and earlier tokens
    before later ones.
    renormalise: a token's k weights add up to 1, as in Mixtral. Otherwise they are the probabilities, as in Switch.
    Raises ValueError for more choices than experts.
    """
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"a token goes to {k} experts, and there are {logits.shape[1]}")
    probabilities = logits.softmax(-1)
    weights, chosen = probabilities.topk(k, -1)
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    kept = torch.ones_like(chosen, dtype=torch.bool)
    if room is not None:
        in_line = chosen.T.flatten()  # all first choices, then all second ones
        asked = torch.nn.functional.one_hot(in_line, logits.shape[1])
        place = (asked.cumsum(0) - 1).gather(1, in_line[:, None])[:, 0]
        kept = (place < room).view(k, -1).T
    return Routing(chosen, weights, kept, probabilities)


def room_for(tokens: int, experts: int, k: int = 1, factor: float = 1.25) -> int:
    """Return how many tokens an expert takes: `factor` times an equal share, rounded up.

    tokens: that are routed together, those of one rank.
    experts: on all ranks together.
    k: experts of a token.
    factor: the capacity factor.
    """
    return math.ceil(factor * tokens * k / experts)


def balance_loss(routing: Routing, comm: Comm | None = None) -> Tensor:
    """Return experts x sum of (share of tokens) x (mean probability), 1 if all experts have equally many tokens.

    routing: of this rank's tokens. Choices that found no room count, too.
    comm: ranks whose tokens count together; all call this, with equally many tokens. None: this rank's alone.

    Shares are counts, so they have no gradient. The loss lowers the probabilities of experts that have many tokens.
    With `comm`, the shares are those of all ranks, and the probabilities are this rank's. So the mean of this loss over
    the ranks is the loss of all tokens, and the same holds for its gradient.
    """
    experts = routing.probabilities.shape[1]
    counts = torch.bincount(routing.chosen.flatten(), minlength=experts).to(routing.probabilities.dtype)
    counts = all_reduce(comm, counts)
    return experts * (counts / counts.sum() * routing.probabilities.mean(0)).sum()
