"""Chunks: rows that are padded and cut, memory that was never written, and what of a call stays in memory."""

import contextlib
import functools
import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np
import torch

from mpcourse.common.words import named
from mpcourse.course.check.facts.messages import COMM, Sent, counting, is_virtual
from mpcourse.course.check.facts.rounding import UNITS, shorter_dtype
from mpcourse.course.check.rules import Test, Whys
from mpcourse.course.check.wrong import first_difference

Rows = Sequence[np.ndarray]
Of = TypeVar("Of")


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


@contextlib.contextmanager
def given(comm: Any, case: Any) -> Iterator[tuple[Any, Callable[[], Sent | None]]]:
    """Yield the communicator that an answer is given, and a function of what this rank has sent; None on real ranks.

    case: `turned`, whether that communicator has the ranks in the opposite order. New memory for `n` elements of its
    `dtype` holds NaN.
    """
    ranks = comm.Split(0, -comm.rank) if case.turned else comm
    with nan_in_new_memory(case.n, ranks.size, case.dtype):
        yield ranks, counting(ranks) if is_virtual(comm) else lambda: None


# -- what all ranks have --


@dataclass(frozen=True)
class OnAllRanks:
    """Arrays of all ranks beside what is right, seen from `rank`; by rank in the communicator that they were given.

    case: `what` is special in it, `why`, how many elements, `n`, and their `dtype`. everyone: what was seen of each
    rank. name: what the arrays are. got: None on ranks that are asked for nothing. tolerance: relative and absolute.
    rows: of a mean that is cut into chunks, each rank's own numbers.
    """

    rank: int
    case: Any
    everyone: Sequence[Any]
    name: str
    got: Sequence[Any]
    want: Rows
    tolerance: float
    rows: Rows = ()

    size = property(lambda self: len(self.everyone))
    seen = property(lambda self: self.everyone[self.rank])
    result = property(lambda self: self.got[self.rank])
    sent = property(lambda self: self.seen.sent)
    dtype = property(lambda self: str(self.case.dtype).removeprefix("torch."))
    is_float32 = property(lambda self: self.case.dtype == torch.float32)
    total = property(lambda self: np.sum(self.rows, axis=0))
    pieces = property(lambda self: [self.cut(row) for row in self.rows])
    own = property(lambda self: [pieces[rank] for rank, pieces in enumerate(self.pieces)])

    def cut(self, row: np.ndarray) -> Rows:
        return chunks_of(row, self.size)

    def mean_of(self, rows: Rows) -> Rows:
        """Return the chunks of the mean of these rows."""
        return self.cut(np.mean(rows, axis=0))

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        """(asked, got) of the first element that is wrong on this rank."""
        if self.result is None:
            return None
        place, want = f"{self.name} on rank {self.rank} of {self.size}, with {self.case.what}", self.want[self.rank]
        return first_difference(self.result, want.astype(self.result.dtype), place, self.tolerance, self.tolerance)

    def gives(self, *rows: Rows) -> bool:
        """Return whether all ranks have one of these, as exactly as the test asks."""
        return any(all(self.same(*pair) for pair in zip(self.got, each, strict=True)) for each in rows)

    def same(self, got: Any, want: np.ndarray) -> bool:
        return got is None or (got.shape == want.shape and np.allclose(got, want, self.tolerance, self.tolerance))

    pairs = property(lambda self: [(g, w) for g, w in zip(self.got, self.want, strict=True) if g is not None])
    other_shapes = property(lambda self: any(g.shape != w.shape for g, w in self.pairs))

    def in_one_row(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all that ranks have, and all that they should have."""
        got, want = (np.concatenate([array.ravel() for array in arrays]) for arrays in zip(*self.pairs, strict=True))
        return got, want

    @functools.cached_property
    def rounded(self) -> str:
        """The shorter dtype in which numbers were on their way; empty: none."""
        return "" if self.other_shapes else shorter_dtype(*self.in_one_row(), UNITS.get(self.dtype, 2.0**-53))

    @property
    def right_but_for_padding(self) -> bool:
        return not self.other_shapes and self.same(*(row[: self.case.n] for row in self.in_one_row()))

    @functools.cached_property
    def there(self) -> list[int]:
        """The ranks that have what they should."""
        return [rank for rank, pair in enumerate(zip(self.got, self.want, strict=True)) if self.same(*pair)]

    who = property(lambda self: named(self.there))

    @property
    def at_a_root(self) -> bool:
        """Whether some ranks have it, and the memory of all others was never written."""
        rest = [row for rank, row in enumerate(self.got) if rank not in self.there]
        unwritten = (row is not None and (not row.any() or np.isnan(row).all()) for row in rest)
        return bool(self.there and rest) and all(unwritten)

    @functools.cached_property
    def instead(self) -> int | None:
        """The rank whose chunk rank 0 has, where all ranks have the right chunks in another order."""
        ranks = range(self.size)
        orders = [[(rank + by) % self.size for rank in ranks] for by in ranks[1:]] + [[*ranks[::-1]]]
        return next((order[0] for order in orders if self.gives([self.want[rank] for rank in order])), None)


def values(whys: Whys) -> Test:
    """Return a test of whether arrays have the right values."""
    return Test("values", lambda f: f.difference, "{difference[0]}", "{difference[1]}", whys)


# -- what is said --

ABOUT = {"{case.why}": lambda f: f.case.why}
WHYS_ANY = {
    "Of {size} ranks only {who} has it: Gather and Reduce bring something to their root alone.": lambda f: f.at_a_root,
    "NaN is memory that was never written: torch.empty and np.empty hold anything.": (
        lambda f: any(row is not None and np.isnan(row).any() for row in f.got)
    ),
    "Right to some digits: numbers were in a shorter dtype on their way. All of them have to be {dtype}.": (
        lambda f: f.rounded
    ),
}
WHYS_MEAN = {
    **WHYS_ANY,
    "Padding belongs to no gradient: it is zero, and so is its mean.": lambda f: f.right_but_for_padding,
    "That is the sum over ranks. The mean is asked: divide by the number of ranks.": lambda f: f.gives(
        [row * f.size for row in f.want]
    ),
    "Divided by the number of ranks twice: once is enough, before the sum or after it.": lambda f: f.gives(
        [row / f.size for row in f.want]
    ),
    "That is this rank's own gradient: nothing was summed over ranks.": lambda f: f.gives(f.own),
    "Only this rank's own gradient is in it, divided by the number of ranks.": lambda f: f.gives(
        [row / f.size for row in f.own]
    ),
    COMM: lambda f: f.case.turned and f.gives(f.want[::-1]),
    "The right chunks on wrong ranks: rank 0 has the one of rank {instead}. Rank r gets the r-th: in a ring, ask which "
    "chunk is complete on which rank.": lambda f: f.instead is not None,
}
OVERWRITTEN = "The memory of what is returned belongs to the caller: make a new tensor in each call."
KEPT_BY_FILE = (
    "What the file keeps stays in memory between calls: make it in each call, and let it go when that returns."
)
VIEW = (
    "The chunk is a view of the whole buffer, which stays in memory with it. Take a copy of the chunk, or receive it "
    "into an array of its own."
)
ALLREDUCE = "An all-reduce sends twice as much: it gives the whole mean to all ranks, and each needs only its chunk."
IN_FLOAT64 = {
    "With float64 it is right, and float32 is sent in more bytes than it has: keep the dtype.": lambda f: f.is_float32
}


# -- what of a call is left --

Large = Callable[[int], bool]  # whether so many bytes are what is looked for


def freed(kept: list[torch.Tensor], run: Callable[[], Of]) -> tuple[Of, int]:
    """Return what `run` returns, and how many bytes of numpy's memory go with the tensors that it has put in `kept`."""
    tracemalloc.start()
    try:
        returned = run()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        kept.clear()
        gc.collect()
        return returned, before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


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
    """Return whether a value is, or contains, an array or a tensor whose memory is large."""
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
