"""Tokens travel to the ranks that have their experts, and back.

Source: Dmitry Lepikhin and others, GShard, 2020, https://arxiv.org/abs/2006.16668, section 3.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mpcourse.collectives.tensors import all_to_all
from mpcourse.common.comm import Comm

Tensor = torch.Tensor


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        ctx.comm, ctx.sent, ctx.received = comm, sent, received
        return _exchange(comm, rows, sent, received)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return None, _exchange(ctx.comm, gradients[0], ctx.received, ctx.sent), None, None


def exchange(comm: Comm | None, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
    """Send rows to all ranks, and return those that they send to this one, in order of rank. All ranks call it.

    comm: the expert axis's communicator, whose ranks all run backward, too; None: one rank.
    rows: (rows, ...), first those for rank 0, then those for rank 1, and so on.
    sent: how many rows go to each rank.
    received: how many come from each rank.

    Backward sends gradients the other way: it is the same exchange with `sent` and `received` interchanged.
    Raises ValueError where `sent` does not add up to the rows.
    """
    if sum(sent) != len(rows):
        raise ValueError(f"{len(rows)} rows cannot be sent as {list(sent)}")
    return rows if comm is None or comm.size == 1 else _Exchange.apply(comm, rows, list(sent), list(received))


def exchange_counts(comm: Comm | None, counts: Tensor) -> Tensor:
    """Tell each rank how many rows it gets: return (ranks, experts of a rank), int64. All ranks call it.

    comm: the expert axis's communicator; None: one rank.
    counts: int64 (experts,), this rank's rows for each expert; rank r has the r-th part of the experts.
    """
    if comm is None or comm.size == 1:
        return counts[None]
    parts = list(counts.chunk(comm.size))
    return torch.stack(all_to_all(comm, parts, [part.shape for part in parts]))


def _exchange(comm: Comm, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    shapes = [(number, *rows.shape[1:]) for number in received]
    return torch.cat(all_to_all(comm, rows.split(sent), shapes))
