"""Gradients that are not finite: one of them would spoil the mean, and so the model, on all ranks."""

import cmath
from collections.abc import Mapping

import torch


def looks_finite(t: torch.Tensor) -> bool:
    """Return whether no element is NaN or infinite: in one pass over t where its sum is finite, else in two.

    t: a tensor of any shape, dtype and device.
    """
    return cmath.isfinite(t.sum().item()) or bool(t.isfinite().all())


class Sample:
    """A copy of a vector, or of the first row of anything larger, to detect later whether it was changed.

    t: a tensor of any shape, dtype and device.
    """

    def __init__(self, t: torch.Tensor) -> None:
        self.copy = self._row(t).clone()

    def differs(self, t: torch.Tensor) -> bool:
        """Return whether t has changed since; NaN equals NaN.

        t: of the same shape, dtype and device.
        """
        now = self._row(t)
        return not bool(((now == self.copy) | ((now != now) & (self.copy != self.copy))).all())

    @staticmethod
    def _row(t: torch.Tensor) -> torch.Tensor:
        return t.detach()[:1] if t.dim() > 1 else t.detach()


def first_not_finite(values: Mapping[str, torch.Tensor | None]) -> str | None:
    """Return the name of the first tensor that is not finite, or None where all are.

    values: tensors, by name; None counts as finite.
    """
    return next((name for name, value in values.items() if value is not None and not looks_finite(value)), None)


def not_finite(rank: int, name: str, more: int = 0, what: str = "the gradient of") -> FloatingPointError:
    """Return the error that all ranks raise where something is not finite on one of them.

    rank: the rank that has it.
    name: of the parameter.
    more: number of further ranks on which something is not finite.
    what: how the error calls it, before its name.
    """
    also = f" (and one on {more} more ranks)" if more else ""
    return FloatingPointError(
        f"rank {rank}: {what} {name!r} is not finite{also}. Its mean would spoil the model on all ranks: look "
        "at that rank's loss and examples, or at the learning rate. A GradScaler skips such a step if the optimizer's "
        "mean_gradients() comes before the scaler's unscale_()"
    )
