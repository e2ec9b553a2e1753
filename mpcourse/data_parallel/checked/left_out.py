"""Do ranks average gradients of the same batch? A batch that only some of them have left out is noticed."""

from collections.abc import Callable, Iterable

import torch

from mpcourse.common.errors import RankFailed

SHIFT = 1 << 20  # two numbers in one: batches, and calls


def has_gradient(p: torch.Tensor) -> bool:
    """Whether a parameter's gradient is there, and not zero.

    p: the parameter.
    """
    return p.grad is not None and bool(p.grad.any())


class LeftOut:
    """Counts on one rank the batches whose gradients were dropped after backward, and compares ranks' counts.

    alone: whether ranks step by themselves for now, so that each may leave out what it likes.
    """

    def __init__(self) -> None:
        self.alone = False
        self._averaged: set[torch.Tensor] = set()  # parameters whose gradients were averaged since they were dropped
        self._batches = self._calls = self._means = 0

    def drop(self, parameters: Iterable[torch.Tensor], computed: Callable[[torch.Tensor], bool] = has_gradient) -> None:
        """Gradients are about to be dropped: those that were never averaged belong to a batch that is left out.

        parameters: whose gradients.
        computed: of a parameter, whether backward has computed a gradient of it.
        """
        dropped = set(parameters)
        self._calls += 1
        self._batches += not self.alone and any(computed(p) for p in dropped - self._averaged)
        self._averaged -= dropped

    def since_last_mean(self, parameters: Iterable[torch.Tensor]) -> int:
        """Gradients are about to be averaged: what `compare` needs of this rank, in one number.

        parameters: whose gradients.
        """
        own = self._batches * SHIFT + self._calls
        self._averaged.update(parameters)
        self._batches, self._calls, self._means = 0, 0, self._means + 1
        return own

    def compare(self, by_rank: list[int]) -> None:
        """Raise RankFailed, on all ranks, where only some of them have left out a batch.

        by_rank: what `since_last_mean` returned on each rank.

        Ranks that dropped gradients equally often have left out the same batches, also where one of them had none.
        """
        batches, calls = zip(*(divmod(number, SHIFT) for number in by_rank), strict=True)
        if len(set(batches)) > 1 and len(set(calls)) > 1:
            told = ", ".join(f"{n} on rank {rank}" for rank, n in enumerate(batches))
            raise RankFailed(
                f"in step {self._means} ranks average gradients of different batches. Batches left out by zero_grad "
                f"after backward since the step before: {told}. All ranks leave a batch out, or none does"
            )
