"""Gradients of e11_reduce_scatter_gradients, and what programs with known mistakes would make of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mpcourse.check.cases.on_chunks import chunks_of


@dataclass(frozen=True)
class Case:
    """Parameters. none: (rank, number) of those that backward did not reach. why: of an answer right until then."""

    what: str
    shapes: tuple[tuple[int, ...], ...]
    none: tuple[tuple[int, int], ...] = ()
    dtype: torch.dtype = torch.float64
    turned: bool = False  # ranks in the opposite order, in a communicator of their own
    memory: str = "rows"
    why: str = ""

    @property
    def numels(self) -> list[int]:
        return [torch.Size(shape).numel() for shape in self.shapes]

    def gradients(self, rank: int) -> list[torch.Tensor | None]:
        """What a rank is given."""
        made: list[torch.Tensor | None] = []
        for i, shape in enumerate(self.shapes):
            draw = torch.Generator().manual_seed(100 * rank + i + 1)
            g = torch.randn(shape, generator=draw, dtype=self.dtype)
            g = g.t().contiguous().t() if self.memory == "columns" and len(shape) == 2 else g
            made.append(None if (rank, i) in self.none else g)
        return made

    def flat(self, rank: int, compact: bool = False, columns: bool = False) -> np.ndarray:
        """That in one row. compact: without those that are None, and zeros at the end. columns: as memory lies."""
        rows = []
        for g, n in zip(self.gradients(rank), self.numels, strict=True):
            if g is None:
                rows += [] if compact else [np.zeros(n)]
            else:
                rows.append(np.ravel(g.numpy(), order="K" if columns else "C").astype(float))
        found = np.zeros(sum(self.numels))
        row = np.concatenate([*rows, []])
        found[: len(row)] = row
        return found


PADDED = ((2, 2), (3,))
CASES = (
    Case("12 elements, which all numbers of ranks here divide", ((3, 2), (6,))),
    Case("7 elements", PADDED, why="The number of ranks need not divide the number of elements: pad with zeros."),
    Case(
        "a gradient that is None on some ranks",
        ((3,), (4,), (5,)),
        none=((0, 1), (1, 0), (2, 1)),
        why="Where a gradient is None, zeros fill its place: else all that follows moves to other places.",
    ),
    Case(
        "a gradient that is None on all ranks",
        ((3,), (4,), (3,)),
        none=tuple((rank, 0) for rank in range(4)),
    ),
    Case("float32", PADDED, dtype=torch.float32),
    Case(
        "transposed gradients, which are not contiguous",
        ((3, 2), (2, 4)),
        memory="columns",
        why="A gradient need not be contiguous: .reshape(-1) copies where it has to, .view(-1) and MPI do not.",
    ),
    Case("a parameter of shape ()", ((), (4,), ()), why="A single number is a gradient, too, of shape ()."),
    Case("2 elements", ((2,),)),
    Case(
        "ranks of a communicator that has them in another order",
        PADDED,
        turned=True,
        why="comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.",
    ),
)
LEFT_OUT = "A gradient that is None is left out of the buffer, and what follows moves to its place: zeros stand there."
LONG = Case("10,007 elements", ((100, 100), (7,)))


def misconceptions(case: Case, size: int) -> Iterator[tuple[str, list[np.ndarray]]]:
    flats = [case.flat(rank) for rank in range(size)]
    total = np.sum(flats, axis=0)
    mean = chunks_of(total / size, size)
    yield "That is the sum. The mean is asked: divide by the number of ranks.", chunks_of(total, size)
    yield (
        "Divided by the number of ranks twice: once is enough, before the sum or after it.",
        chunks_of(total / size**2, size),
    )
    own = [chunks_of(flat, size)[rank] for rank, flat in enumerate(flats)]
    yield "That is this rank's own gradient: nothing was summed over ranks.", own
    yield "Only this rank's own gradient is in it, divided by the number of ranks.", [row / size for row in own]
    for by in range(1, size):
        yield (
            "The right chunks on wrong ranks: rank r gets the r-th. A ring ends one place further than it seems: ask "
            "which chunk is complete on which rank.",
            [mean[(rank + by) % size] for rank in range(size)],
        )
    yield "The right chunks on wrong ranks: comm.rank tells which is whose, and MPI.COMM_WORLD has another.", mean[::-1]
    yield "Every rank has the first chunk: rank r gets the r-th.", [mean[0]] * size
    had = [sum((rank, i) not in case.none for rank in range(size)) for i in range(len(case.shapes))]
    counts = np.concatenate([np.full(k, max(h, 1)) for k, h in zip(case.numels, had, strict=True)])
    yield (
        "Divided by how many ranks have that gradient. One that is None counts as zeros: divide by all.",
        chunks_of(total / counts, size),
    )
    yield (
        LEFT_OUT,
        chunks_of(np.mean([case.flat(rank, compact=True) for rank in range(size)], axis=0), size),
    )
    yield (
        "A gradient that is not contiguous was read as its memory lies, column by column: .reshape(-1) has its rows.",
        chunks_of(np.mean([case.flat(rank, columns=True) for rank in range(size)], axis=0), size),
    )


def shares(case: Case, size: int, got: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """With what factor each rank's gradient is in the chunks, the same in all of them; None where that is not so."""
    pieces = [chunks_of(case.flat(rank), size) for rank in range(size)]
    rows = [(np.stack([piece[at] for piece in pieces]).T, row) for at, row in enumerate(got) if row is not None]
    found = [np.linalg.lstsq(a, row, rcond=None)[0] for a, row in rows if len(row) >= size]
    fits = all(np.allclose(a @ x, row, 1e-5, 1e-6) for (a, row), x in zip(rows, found, strict=False))
    return np.sort(found, axis=1)[0] if found and fits and len(found) == len(rows) else None
