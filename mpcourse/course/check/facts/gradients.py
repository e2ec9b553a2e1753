"""A gradient that is to become the mean over all ranks: what each rank had before, and what each has afterwards."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mpcourse.common.words import named
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.wrong import first_difference

if TYPE_CHECKING:
    import torch

Facts = TypeVar("Facts")
Row = np.ndarray | None
Rows = Mapping[str, Row]  # by the parameter's name


def values_of(parameters: "Mapping[str, torch.Tensor]") -> dict[str, np.ndarray]:
    """Return copies of parameters, or of buffers."""
    return {name: p.detach().numpy().copy() for name, p in parameters.items()}


def gradients_of(parameters: "Mapping[str, torch.Tensor]") -> dict[str, Row]:
    """Return copies of the parameters' gradients; None where there is none."""
    return {name: None if p.grad is None else p.grad.detach().numpy().copy() for name, p in parameters.items()}


def by_rank(everyone: Iterable[Rows], name: str) -> list[Any]:
    """Return what each rank has of one parameter."""
    return [rows[name] for rows in everyone]


def each(facts: Callable[..., Facts], given: Sequence[Rows], results: Sequence[Rows], *more: Any) -> list[Facts]:
    """Return facts of each parameter on each rank. facts: the class, a Gradient; more: its further fields."""
    return [
        facts(rank, name, by_rank(given, name), by_rank(results, name), *more)
        for name in given[0]
        for rank in range(len(given))
    ]


def copies_of(parameters: "Iterable[torch.Tensor]") -> list[Row]:
    """Return the gradients of parameters, as they are now."""
    return [None if p.grad is None else p.grad.detach().numpy().copy() for p in parameters]


@dataclass(frozen=True)
class Gradient:
    """One parameter's gradient, or its values, seen from `rank`.

    given, results: by rank, before and after; None: there is none. tolerance: relative and absolute, of what is right.
    """

    rank: int
    name: str
    given: Sequence[Row]
    results: Sequence[Row]
    tolerance: tuple[float, float]

    size = property(lambda self: len(self.given))
    own = property(lambda self: self.given[self.rank])
    got = property(lambda self: self.results[self.rank])
    had = property(lambda self: [row for row in self.given if row is not None])
    having = property(lambda self: [r for r, row in enumerate(self.given) if row is not None])
    shape = property(lambda self: self.had[0].shape if self.had else ())
    reshaped = property(lambda self: self.had and self.got is not None and self.got.shape != self.shape)
    good = property(lambda self: [r for r, row in enumerate(self.results) if self.right(row)])
    kept = property(lambda self: self.got.dtype == self.own.dtype and np.array_equal(self.got, self.own))
    unchanged = property(lambda self: self.near(self.own))

    @functools.cached_property
    def total(self) -> Any:
        """The sum over ranks, in float64; None where no rank has a gradient."""
        return np.asarray(np.sum(self.had, axis=0, dtype=np.float64)) if self.had else None

    @functools.cached_property
    def mean(self) -> Any:
        """What the gradient must be on all ranks: one that a rank does not have counts as zeros."""
        return None if self.total is None else self.total / self.size

    def right(self, row: Row) -> bool:
        """Return whether a rank with this result has the mean, or None where that is right."""
        return row is self.mean if row is None or self.mean is None else _close(row, self.mean, self.tolerance)

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        """Return where this rank's result is not the mean, as phrases of what was asked and what was found."""
        return first_difference(self.got, self.mean.astype(self.had[0].dtype), self.place, *self.tolerance)

    def near(self, *values: Row) -> bool:
        """Return whether this rank's result is one of `values`, as closely as what is right must be the mean."""
        return any(value is not None and _close(self.got, value, self.tolerance) for value in values)

    @property
    def rounded(self) -> str:
        """What the numbers were rounded to on their way; empty for nothing."""
        scale = np.sum(np.abs(self.had), axis=0) / self.size
        name = shorter_dtype(self.got, self.mean, float(np.finfo(self.got.dtype).eps) / 2, scale)
        return "16 bits" if name.endswith("16") else name

    # What sentences show.

    place = property(lambda self: f"the gradient of {self.name} on rank {self.rank}")
    asked, found = property(lambda self: self.difference[0]), property(lambda self: self.difference[1])
    good_have = property(lambda self: f"{named(self.good).capitalize()} {'has' if len(self.good) == 1 else 'have'}")
    shown = property(lambda self: _first(self.got))
    own_shown = property(lambda self: _first(self.own))


def _first(row: Row) -> str:
    if row is None or not row.size:
        return "None" if row is None else "nothing"
    return f"{float(row.flat[0])!r}" + (" ..." if row.size > 1 else "")


def _close(got: Row, want: np.ndarray, tolerance: tuple[float, float]) -> bool:
    return got is not None and got.shape == want.shape and bool(np.allclose(got, want, *tolerance))
