"""A layer of experts: a router sends each token to a few of many feed-forward networks, on whichever rank they are."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.collectives.tensors import own_rows, sum_gradients
from mpcourse.common.comm import Comm
from mpcourse.experts.dispatch import exchange, exchange_counts
from mpcourse.experts.routing import Routing, balance_loss, room_for, route

Tensor = torch.Tensor


class Experts(nn.Module):
    """Feed-forward networks of one size: (rows, width), sorted by expert, to the same.

    number: of experts.
    width, hidden: sizes of each: Linear, GELU, Linear.
    """

    def __init__(self, number: int, width: int, hidden: int) -> None:
        super().__init__()
        made = [(nn.Linear(width, hidden), nn.Linear(hidden, width)) for _ in range(number)]
        self.first = nn.Parameter(torch.stack([first.weight.detach() for first, _ in made]))
        self.first_bias = nn.Parameter(torch.stack([first.bias.detach() for first, _ in made]))
        self.second = nn.Parameter(torch.stack([second.weight.detach() for _, second in made]))
        self.second_bias = nn.Parameter(torch.stack([second.bias.detach() for _, second in made]))

    def forward(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Return the results of the rows, each by its expert.

        rows: (rows, width), first those of expert 0, and so on. Nothing is padded, and no row is dropped.
        counts: rows of each expert.
        """
        done = []
        for i, part in enumerate(rows.split(counts)):
            hidden = F.gelu(F.linear(part, self.first[i], self.first_bias[i]))
            done.append(F.linear(hidden, self.second[i], self.second_bias[i]))
        return torch.cat(done)


class Mixed(NamedTuple):
    """What a mixture returns.

    out: (tokens, width).
    balance: the balance loss, a scalar.
    routing: of this rank's tokens.
    """

    out: Tensor
    balance: Tensor
    routing: Routing


class Mixture(nn.Module):
    """A router and its experts, shared by the ranks of an expert axis. Takes this rank's tokens, (tokens, width).

    comm: the expert axis's communicator, all of whose ranks make one together; None: one rank, which has all experts.
    width, hidden: sizes of an expert.
    number: of experts on all ranks together; rank r has the r-th of p equal parts.
    k: experts of a token.
    factor: of capacity: an expert takes `factor` times an equal share of each rank's tokens, and others are dropped:
    their result is zero. None: no token is dropped.
    renormalise: a token's k weights add up to 1.
    counted: ranks whose tokens count together in the balance loss, such as those of all data parallelism; None: comm's.

    Every rank draws all experts from torch's generator and keeps its part, so that the layer does not depend on the
    number of ranks: seed it alike on all of them. `experts` differs from rank to rank, `router` is the same.
    Raises ValueError where the ranks cannot share the experts equally.
    """

    def __init__(
        self, comm: Comm | None, width: int, hidden: int, number: int, k: int = 1, factor: float | None = None,
        *, renormalise: bool = False, counted: Comm | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.comm, self.number, self.k, self.factor, self.renormalise = comm, number, k, factor, renormalise
        self.counted = counted or comm
        self.router = nn.Linear(width, number, bias=False)
        self.experts = Experts(number, width, hidden)
        own = own_rows(comm, number, "experts")
        for name, whole in list(self.experts.named_parameters()):
            setattr(self.experts, name, nn.Parameter(whole.detach()[own].clone()))

    def forward(self, x: Tensor) -> Mixed:
        room = None if self.factor is None else room_for(len(x), self.number, self.k, self.factor)
        routing = route(self.router(x), self.k, room, renormalise=self.renormalise)
        return Mixed(self._experts(x, routing), balance_loss(routing, self.counted), routing)

    def _experts(self, x: Tensor, routing: Routing) -> Tensor:
        kept = routing.kept.flatten().nonzero()[:, 0]  # choices, numbered token by token
        chosen = routing.chosen.flatten()[kept]
        by_expert = chosen.argsort(stable=True)
        choices, tokens = kept[by_expert], kept[by_expert] // self.k
        counts = torch.bincount(chosen, minlength=self.number)
        # Rows go to the ranks of their experts. There they arrive rank by rank, and are sorted by expert.
        arriving = exchange_counts(self.comm, counts).to(x.device)
        sent, received = counts.view(len(arriving), -1).sum(1).tolist(), arriving.sum(1).tolist()
        rows = exchange(self.comm, x[tokens], sent, received)
        each = torch.arange(arriving.shape[1], device=x.device).repeat(len(arriving))
        expert = each.repeat_interleave(arriving.flatten())
        sorted_here = expert.argsort(stable=True)
        results = self.experts(rows[sorted_here], arriving.sum(0).tolist())
        results = exchange(self.comm, results[sorted_here.argsort()], received, sent)
        weighted = results * routing.weights.flatten()[choices, None]
        return torch.zeros_like(x).index_add(0, tokens, weighted)


def expert_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of all experts, which are not the same on all ranks of an expert axis.

    module: its `Mixture` layers are searched.
    """
    return [p for m in module.modules() if isinstance(m, Mixture) for p in m.experts.parameters()]


def average_gradients(comm: Comm | None, replicas: Comm | None, module: nn.Module) -> None:
    """Average gradients over all ranks that have the same parameter. All ranks call it after backward.

    comm: all ranks, each with its own tokens and the mean loss of these; None: one rank.
    replicas: the ranks among them that have the same experts; None: this rank alone.
    module: its `Mixture` layers are searched.

    A router and every other parameter are on all p ranks: their gradients are the means of p. An expert has met the
    tokens of all ranks of its expert axis already, so its gradient is a sum over these. It is added up over the
    replicas, and then also divided by p, not by the number of replicas.
    """
    if comm is None:
        return
    experts = expert_parameters(module)
    of_experts = {id(p) for p in experts}
    sum_gradients(comm, [p for p in module.parameters() if id(p) not in of_experts], comm.size)
    sum_gradients(replicas, experts, comm.size)
