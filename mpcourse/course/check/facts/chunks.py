"""Chunks: rows that are padded and cut, memory that was never written, and what of a call stays in memory."""

import contextlib
import functools
import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from mpcourse.common.words import named
from mpcourse.course.check.facts.rounding import UNITS, shorter_dtype
from mpcourse.course.check.rules import Rule
from mpcourse.course.check.wrong import first_difference

Rows = Sequence[np.ndarray]


def chunks_of(flat: np.ndarray, size: int) -> list[np.ndarray]:
    """Return a row, padded with zeros at its end and cut into `size` equally long chunks."""
    chunk = -(-len(flat) // size)
    return list(np.concatenate([flat, np.zeros(chunk * size - len(flat))]).reshape(size, chunk))


@contextlib.contextmanager
def nan_in_new_memory(elements: int, size: int, dtype: torch.dtype) -> Iterator[None]:
    """Let new memory hold NaN until it is written: all of torch's, of numpy's the first that is for so many."""
    chunk = -(-elements // size)
    for length in (elements, chunk * size, chunk):  # what is freed here is what numpy gives out next
        row = torch.full((length,), torch.nan, dtype=dtype).numpy()
        del [row.copy() for _ in range(8)][:]
    before = torch.get_deterministic_debug_mode()
    # Not use_deterministic_algorithms: it imports torch._dynamo, which takes seconds.
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


# -- what all ranks have --


@dataclass(frozen=True)
class OnAllRanks:
    """Arrays of all ranks beside what is right, by number in the communicator.

    got: None on ranks that are asked for nothing. tolerance, dtype: of the test that they have to pass.
    """

    got: Sequence[Any]
    want: Rows
    tolerance: float
    dtype: torch.dtype

    def gives(self, *rows: Rows) -> bool:
        """Whether all ranks have one of these, as exactly as the test asks."""
        return any(all(self.same(*pair) for pair in zip(self.got, each, strict=True)) for each in rows)

    def same(self, got: Any, want: np.ndarray) -> bool:
        return got is None or (got.shape == want.shape and np.allclose(got, want, self.tolerance, self.tolerance))

    def difference(self, number: int, what: str) -> tuple[str, str] | None:
        """(asked, got) of the first element that is wrong on rank `number`."""
        got, want = self.got[number], self.want[number]
        return (
            first_difference(got, want.astype(got.dtype), what, self.tolerance, self.tolerance)
            if got is not None
            else None
        )

    @functools.cached_property
    def rounded(self) -> str:
        """The shorter dtype in which numbers were on their way; empty: none."""
        pairs = [(g, w) for g, w in zip(self.got, self.want, strict=True) if g is not None]
        if any(g.shape != w.shape for g, w in pairs):
            return ""
        got, want = (np.concatenate([row.ravel() for row in rows]) for rows in zip(*pairs, strict=True))
        return shorter_dtype(got, want, UNITS.get(str(self.dtype).removeprefix("torch."), 2.0**-53))

    @functools.cached_property
    def there(self) -> list[int]:
        """The ranks that have what they should."""
        return [number for number, (g, w) in enumerate(zip(self.got, self.want, strict=True)) if self.same(g, w)]

    who = property(lambda self: named(self.there))

    @property
    def at_a_root(self) -> bool:
        """Whether some ranks have it, and the memory of all others was never written."""
        rest = [row for number, row in enumerate(self.got) if number not in self.there]
        unwritten = (row is not None and (not row.any() or np.isnan(row).all()) for row in rest)
        return bool(self.there and rest) and all(unwritten)

    @property
    def has_nan(self) -> bool:
        return any(row is not None and np.isnan(row).any() for row in self.got)


UNWRITTEN = "NaN is memory that was never written: torch.empty and np.empty hold anything."
# For facts with `rows`, and `own`, each rank's chunk of its own numbers.
TWICE = Rule(
    "divided twice",
    lambda f: f.rows.gives([row / len(f.own) for row in f.rows.want]),
    "Divided by the number of ranks twice: once is enough, before the sum or after it.",
)
OWN = Rule("own", lambda f: f.rows.gives(f.own), "That is this rank's own gradient: nothing was summed over ranks.")
OWN_DIVIDED = Rule(
    "own, divided",
    lambda f: f.rows.gives([row / len(f.own) for row in f.own]),
    "Only this rank's own gradient is in it, divided by the number of ranks.",
)


# -- what of a call is left --

Large = Callable[[int], bool]  # whether so many bytes are what is looked for


def freed(kept: list[torch.Tensor]) -> int:
    """Return the bytes of numpy's memory that go with these tensors, which the list loses; tracemalloc has to be on."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    kept.clear()
    gc.collect()
    return before - tracemalloc.get_traced_memory()[0]


def kept_array(
    module: ModuleType, comm: Any, large: Large, y: torch.Tensor | None = None, given: torch.Tensor | None = None
) -> str:
    """Return where an array whose memory is `large` can be reached from what calls have left; empty: nowhere.

    y: what forward of a torch.autograd.Function returned; its ctx and its attributes are looked at, too.
    given: a tensor of the caller's, on which the file may have set attributes.
    """
    places: list[tuple[str, Any]] = []
    if y is not None:
        places += [(f"y.{name}", value) for name, value in vars(y).items()]
    if y is not None and y.grad_fn is not None:
        places += [("ctx.saved_tensors", t) for t in y.grad_fn.saved_tensors]  # type: ignore[attr-defined]
        places += [(f"ctx.{name}", value) for name, value in vars(y.grad_fn).items()]
    if given is not None:
        places += [(f"an attribute of shard, `{name}`", value) for name, value in vars(given).items()]
    places += [(f"`{name}` of the file", value) for name, value in vars(module).items() if not name.startswith("__")]
    places += [(f"comm.{name}", value) for name, value in getattr(comm, "__dict__", {}).items() if name != "world"]
    return next((where for where, value in places if _holds(value, large, module.__name__)), "")


def _holds(value: Any, large: Large, module: str, depth: int = 5) -> bool:
    """Whether a value is, or contains, an array or a tensor whose memory is large."""
    if isinstance(value, torch.Tensor):
        return large(value.untyped_storage().nbytes())
    if isinstance(value, np.ndarray):
        return large(value.nbytes) or (value.base is not None and _holds(value.base, large, module, depth - 1))
    if depth == 0 or isinstance(value, str | bytes | int | float | ModuleType):
        return False
    return any(_holds(part, large, module, depth - 1) for part in _parts(value, module))


def _parts(value: Any, module: str) -> list[Any]:
    """Return what is in a container, in a function's cells and defaults, in a cache, or in an object of the file's."""
    if isinstance(value, dict):
        return [*value.values()]
    if isinstance(value, list | tuple | set):
        return [*value]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [*(value.__defaults__ or ()), *vars(value).values(), *cells]
    if hasattr(value, "cache_info") or type(value).__name__ == "_lru_list_elem":  # of functools.lru_cache
        return gc.get_referents(value)
    if getattr(value, "__module__", None) == module or getattr(type(value), "__module__", None) == module:
        return [*getattr(value, "__dict__", {}).values()]
    return []
