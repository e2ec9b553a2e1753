"""What a model takes: one tensor, or what a user's function makes."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_flatten, tree_map

from mpcourse.common.errors import UserError
from mpcourse.predict.load import blame

Arguments = tuple[tuple, dict[str, Any]]


class Example(Protocol):
    """How a batch is made."""

    @property
    def tokens(self) -> bool:
        """Whether it holds numbers of tokens."""
        ...

    @property
    def length(self) -> int:
        """How many tokens an example has; 0 where it holds none."""
        ...

    def batch(self, size: int, dtype: torch.dtype) -> Arguments:
        """Return what a model takes, positions and keywords.

        size: examples.
        dtype: of floating-point numbers.
        """
        ...


@dataclass(frozen=True)
class Input:
    """One example of a model's input, a single tensor.

    shape: of one example, without the batch.
    tokens: whether it holds numbers of tokens, int64. False: floating point.
    """

    shape: tuple[int, ...]
    tokens: bool

    @property
    def length(self) -> int:
        """How many tokens an example has; 0 where it holds none."""
        return self.shape[0] if self.tokens else 0

    def batch(self, size: int, dtype: torch.dtype) -> Arguments:
        """Make a batch without data, on the meta device.

        size: examples.
        dtype: of its elements, where they are not tokens.
        """
        of = torch.int64 if self.tokens else dtype
        return (torch.empty(size, *self.shape, dtype=of, device="meta"),), {}


@dataclass(frozen=True)
class Inputs:
    """Inputs of a model, of any number and kind.

    make: takes a number of examples, returns a batch: a tensor, a tuple of what forward takes, or a dict by its names.
    """

    make: Callable[[int], Any]

    @property
    def tokens(self) -> bool:
        """Whether the first tensor holds integers, as numbers of tokens are."""
        return not self._first().is_floating_point()

    @property
    def length(self) -> int:
        """How many tokens an example has; 0 where it holds none."""
        first = self._first()
        return first.shape[1] if self.tokens and first.dim() > 1 else 0

    def _first(self) -> torch.Tensor:
        args, kwargs = self.batch(1, torch.bfloat16)
        found = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        if not found:
            raise UserError(f"{getattr(self.make, '__name__', 'the function')}(1) returned no tensor")
        return found[0]

    def batch(self, size: int, dtype: torch.dtype) -> Arguments:
        """Make a batch without data, on the meta device.

        size: examples.
        dtype: of floating-point numbers.
        Raises UserError where `make` fails.
        """
        try:
            with contextlib.redirect_stdout(sys.stderr):
                made = self.make(size)
        except (Exception, SystemExit) as error:
            name = getattr(self.make, "__name__", "the function")
            raise UserError(f"{name}({size}) failed: {blame(error)}") from None

        def without_data(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            of = dtype if x.is_floating_point() else x.dtype
            return torch.empty(x.shape, dtype=of, device="meta", requires_grad=x.requires_grad)

        made = tree_map(without_data, made)
        if isinstance(made, dict) or hasattr(made, "keys"):
            return (), dict(made)
        return (tuple(made) if isinstance(made, tuple | list) else (made,)), {}
