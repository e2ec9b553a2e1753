"""A model whose parts are on several ranks, in any graph: ChainerMN's MultiNodeChainList."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.model_parallel.point_to_point import pseudo_connect, received, send

Ranks = int | Sequence[int] | None


@dataclass(frozen=True)
class Link:
    """One part of a model, on this rank.

    module: takes one tensor or more, and returns one or a tuple of several.
    ranks_in: the ranks whose results it takes, in this order; None: the inputs.
    ranks_out: the ranks that take its results; None: they are the output.
    """

    module: nn.Module
    ranks_in: tuple[int, ...] | None
    ranks_out: tuple[int, ...] | None


class MultiNodeChainList(nn.Module):
    """This rank's parts of a model that is spread over several ranks; every rank makes its own.

    comm: mpi4py's communicator, or a virtual rank's.

        model = MultiNodeChainList(comm)                         # on rank 0
        model.add_link(first, rank_in=None, rank_out=1)          # its input -> rank 1
        model.add_link(third, rank_in=1, rank_out=None)          # rank 1 -> the output

        model = MultiNodeChainList(comm)                         # on rank 1
        model.add_link(second, rank_in=0, rank_out=0)

    Forward runs the parts in the order in which they were added, and backward in the opposite order, whatever autograd
    would choose. So two ranks that list their common messages in the same order cannot wait for each other. Source:
    ChainerMN (chainermn/links/multi_node_chain_list.py).
    """

    def __init__(self, comm: Comm) -> None:
        super().__init__()
        self.comm = comm
        self.parts = nn.ModuleList()
        self.links: list[Link] = []

    def add_link(self, module: nn.Module, rank_in: Ranks = None, rank_out: Ranks = None) -> None:
        """Add a part to this rank. No message is sent.

        module: takes one tensor or more, and returns one or a tuple of several.
        rank_in: the rank, or ranks, whose results it takes; None: what the model is called with.
        rank_out: the rank, or ranks, that take its results; None: they are what the model returns.

        A rank may name itself: the part that names it as rank_in comes later.
        Raises ValueError for a number that is no rank, and for a second output.
        """
        ranks_in, ranks_out = self._checked(rank_in), self._checked(rank_out)
        if ranks_out is None and any(link.ranks_out is None for link in self.links):
            raise ValueError(f"rank {self.comm.rank} has two parts with rank_out=None: a model has one output")
        self.parts.append(module)
        self.links.append(Link(module, ranks_in, ranks_out))

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Run this rank's parts. All ranks of the model call it.

        inputs: tensors, for the parts whose rank_in is None; none on ranks without such a part.
        Returns the output where this rank has it, elsewhere a delegate: the number 0, whose `backward()` takes part in
        the other ranks' backward pass.
        Raises RuntimeError for results for this rank itself that no later part takes.
        """
        me = self.comm.rank
        kept: deque[tuple[torch.Tensor, ...]] = deque()  # results for parts on this rank
        output: Any = None
        delegate = torch.zeros((), requires_grad=True)
        for link in self.links:
            xs: list[torch.Tensor] = list(inputs) if link.ranks_in is None else []
            for rank in link.ranks_in or ():
                if rank == me:
                    xs += self._from_oneself(kept)
                else:
                    arrived, delegate = received(self.comm, rank, delegate)
                    xs += arrived
            result = link.module(*xs)
            results = (result,) if isinstance(result, torch.Tensor) else tuple(result)
            for rank in link.ranks_out or ():
                if rank == me:
                    kept.append(results)
                else:
                    delegate = send(results, self.comm, rank, delegate=delegate)
            if link.ranks_out is None:
                output = results
        if kept:
            raise RuntimeError(f"rank {me} has results for itself that no later part takes: add one with rank_in={me}")
        if output is None:
            return delegate
        connected = pseudo_connect(delegate, *output)
        return connected[0] if len(connected) == 1 else connected

    def _from_oneself(self, kept: deque[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
        if not kept:
            me = self.comm.rank
            raise RuntimeError(
                f"a part of rank {me} takes results of rank {me}, but no part before it has rank_out={me}"
            )
        return kept.popleft()

    def _checked(self, ranks: Ranks) -> tuple[int, ...] | None:
        if ranks is None:
            return None
        named = (ranks,) if isinstance(ranks, int) else tuple(ranks)
        for rank in named:
            if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self.comm.size:
                raise ValueError(f"there is no rank {rank!r}: this communicator has ranks 0 to {self.comm.size - 1}")
        if not named:
            raise ValueError("an empty list of ranks: None means the model's input or output")
        return named
