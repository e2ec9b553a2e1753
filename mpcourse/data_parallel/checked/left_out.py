"""Checks whether ranks average gradients of the same batch. A batch that only some ranks have left out is noticed."""

from collections.abc import Callable, Iterable

import torch

from mpcourse.common.errors import RankFailed

SHIFT = 1 << 20  # packs two numbers into one: batches, and calls


def has_gradient(p: torch.Tensor) -> bool:
    """Return whether a parameter has a gradient that is not zero.

    p: the parameter.
    """
    return p.grad is not None and bool(p.grad.any())


class LeftOut:
    """Counts of the batches whose gradients this rank dropped after backward, to be compared between ranks.

    alone: whether ranks step by themselves for now, so that each may leave out any batch.
    """

    def __init__(self) -> None:
        self.alone = False
        self._averaged: set[torch.Tensor] = set()  # parameters whose gradients were averaged since the last drop
        self._batches = self._calls = self._means = 0

    def drop(self, parameters: Iterable[torch.Tensor], computed: Callable[[torch.Tensor], bool] = has_gradient) -> None:
        """Count gradients that are about to be dropped: if they were never averaged, their batch is left out.

        parameters: their gradients are dropped.
        computed: takes a parameter, returns whether backward has computed its gradient.
        """
        dropped = set(parameters)
        self._calls += 1
        self._batches += not self.alone and any(computed(p) for p in dropped - self._averaged)
        self._averaged -= dropped

    def since_last_mean(self, parameters: Iterable[torch.Tensor]) -> int:
        """Return in one number what `compare` needs of this rank; its gradients are about to be averaged.

        parameters: their gradients are averaged.
        """
        own = self._batches * SHIFT + self._calls
        self._averaged.update(parameters)
        self._batches, self._calls, self._means = 0, 0, self._means + 1
        return own

    def compare(self, by_rank: list[int]) -> None:
        """Raise RankFailed, on all ranks, where only some of them have left out a batch.

        by_rank: what `since_last_mean` returned on each rank.

        Ranks that dropped gradients equally often have left out the same batches, even where one of them had none.
        """
        batches, calls = zip(*(divmod(number, SHIFT) for number in by_rank), strict=True)
        if len(set(batches)) > 1 and len(set(calls)) > 1:
            told = ", ".join(f"{n} on rank {rank}" for rank, n in enumerate(batches))
            raise RankFailed(
                f"in step {self._means} ranks average gradients of different batches. Batches left out by zero_grad "
                f"after backward since the step before: {told}. All ranks leave a batch out, or none does"
            )
