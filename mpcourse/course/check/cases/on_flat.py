"""Gradients of e11_reduce_scatter_gradients, and what programs with known mistakes would make of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from mpcourse.course.check.cases.on_chunks import chunks_of


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

    def flat(self, rank: int, compact: bool = False, order: Literal["C", "F", "K"] = "C") -> np.ndarray:
        """That in one row. compact: without those that are None, and zeros at the end. order: as numpy.ravel has it."""
        rows = []
        for g, n in zip(self.gradients(rank), self.numels, strict=True):
            if g is None:
                rows += [] if compact else [np.zeros(n)]
            else:
                rows.append(np.ravel(g.numpy(), order=order).astype(float))
        found = np.zeros(sum(self.numels))
        row = np.concatenate([*rows, []])
        found[: len(row)] = row
        return found


EARLIER = 5.0  # all elements of all gradients in the call before, where there is one
PADDED = ((2, 2), (3,))
CASES = (
    Case("12 elements, which all numbers of ranks here divide", ((3, 2), (6,))),
    Case("7 elements", PADDED, why="The number of ranks need not divide the number of elements: pad with zeros."),
    Case(
        "a gradient that is None on some ranks",
        ((3,), (4,), (5,)),
        none=((0, 1), (1, 0), (2, 1)),
        why="A gradient may be None on some ranks, also the first in the list. Zeros stand in its place there, as many "
        "as its shape has elements, and the rank takes part in all calls.",
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
    Case(
        "2 elements",
        ((2,),),
        why="A rank whose chunk is padding alone takes part in all calls: others need its gradients.",
    ),
    Case("a parameter of shape ()", ((), (4,), ()), why="A single number is a gradient, too, of shape ()."),
    Case(
        "ranks of a communicator that has them in another order",
        PADDED,
        turned=True,
        why="comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.",
    ),
)
LEFT_OUT = "A gradient that is None is left out of the buffer, and what follows moves to its place: zeros stand there."
LONG = Case("10,007 elements", ((100, 100), (7,)))


def misconceptions(case: Case, size: int, sent: bool) -> Iterator[tuple[str, list[np.ndarray]]]:
    """(why, all ranks' chunks). sent: whether ranks have sent anything."""
    flats = [case.flat(rank) for rank in range(size)]
    total = np.sum(flats, axis=0)
    mean = chunks_of(total / size, size)

    def mean_of(rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        return chunks_of(np.mean(rows, axis=0), size)

    yield "That is the sum. The mean is asked: divide by the number of ranks.", chunks_of(total, size)
    yield (
        "Divided by the number of ranks twice: once is enough, before the sum or after it.",
        chunks_of(total / size**2, size),
    )
    yield "// rounds down to a whole number: the mean is a sum / comm.size.", chunks_of(total // size, size)
    own = [chunks_of(flat, size)[rank] for rank, flat in enumerate(flats)]
    why = "That is this rank's own gradient: nothing was summed over ranks."
    divided = "Only this rank's own gradient is in it, divided by the number of ranks."
    if sent:
        why = divided = (
            "Only this rank's own gradient is in it, though ranks have sent something: what comes has to be added, and "
            "what an Irecv brings is there once its Wait has returned."
        )
    yield why, own
    yield divided, [row / size for row in own]
    why = "Every chunk is of rank 0's gradients alone: those of all ranks are to be summed."
    yield why, chunks_of(flats[0], size)
    yield why, [row / size for row in chunks_of(flats[0], size)]
    for by in range(1, size):
        yield (
            f"The right chunks on wrong ranks: rank 0 has the one of rank {by}. Rank r gets the r-th: in a ring, ask "
            "which chunk is complete on which rank.",
            [mean[(rank + by) % size] for rank in range(size)],
        )
    yield "The right chunks on wrong ranks: comm.rank tells which is whose, and MPI.COMM_WORLD has another.", mean[::-1]
    yield "Every rank has the first chunk: rank r gets the r-th.", [mean[0]] * size
    row = np.concatenate(mean)
    why = "Rank r has every p-th element. A chunk is elements that follow each other in the buffer."
    yield why, [row[rank::size] for rank in range(size)]
    earlier = [np.where(_none(case, rank), EARLIER, flat) for rank, flat in enumerate(flats)]
    yield "Where a gradient is None, one of an earlier call stands in its place: zeros stand there.", mean_of(earlier)
    had = [sum((rank, i) not in case.none for rank in range(size)) for i in range(len(case.shapes))]
    counts = np.concatenate([np.full(k, max(h, 1)) for k, h in zip(case.numels, had, strict=True)])
    yield (
        "Divided by how many ranks have that gradient. One that is None counts as zeros: divide by all.",
        chunks_of(total / counts, size),
    )
    yield LEFT_OUT, mean_of([case.flat(rank, compact=True) for rank in range(size)])
    why = "Gradients were flattened column by column, or as memory lies: .reshape(-1) has one row after the other."
    yield why, mean_of([case.flat(rank, order="K") for rank in range(size)])
    yield why, mean_of([case.flat(rank, order="F") for rank in range(size)])
    alone = [chunks_of(part, size) for part in np.split(total / size, np.cumsum(case.numels)[:-1])]
    yield (
        "Each parameter is cut by itself. All of them stand in one buffer, which is padded and cut once.",
        [np.concatenate([chunks[rank] for chunks in alone]) for rank in range(size)],
    )
    in_front = np.concatenate([np.zeros(-len(total) % size), total / size])
    yield "The padding is in front. It is at the end of the buffer.", chunks_of(in_front, size)
    largest = chunks_of(np.max(flats, axis=0), size)
    why = "That is the largest of all ranks' elements in each place: op=MPI.MAX takes it. The sum is asked, MPI.SUM."
    yield why, largest
    yield why, [row / size for row in largest]
    pieces = [chunks_of(flat, size) for flat in flats]
    yield (
        "The mean is over neighbours among one rank's numbers. What an all-to-all brings has the shape (ranks, chunk): "
        "one rank's block after the other, so the mean is over the first axis.",
        [np.concatenate([piece[rank] for piece in pieces]).reshape(-1, size).mean(1) for rank in range(size)],
    )
    yield from _rings(pieces)
    yield "Bytes of float64 were added as if they were float32, which MPI.FLOAT is.", _as_float32(pieces)


def _none(case: Case, rank: int) -> np.ndarray:
    """Of each element whether this rank's gradient is None."""
    return np.concatenate([np.full(n, (rank, i) in case.none) for i, n in enumerate(case.numels)])


def _rings(pieces: Sequence[Sequence[np.ndarray]]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Rings that go down while chunks are numbered as if they went up. pieces: the chunks of each rank's buffer."""
    size = len(pieces)
    why = (
        "Chunks were added to other chunks' places. Which chunk arrives depends on the way the ring goes: what rank r "
        "adds to its chunk is the one of the same number, of the rank that it receives from."
    )
    for first in (0, 1):
        held = [list(chunks) for chunks in pieces]
        for step in range(size - 1):
            out = [chunks[(rank - first - step) % size] for rank, chunks in enumerate(held)]
            for rank, chunks in enumerate(held):
                at = (rank - first - 1 - step) % size
                chunks[at] = chunks[at] + out[(rank + 1) % size]
        for at in (0, 1):
            yield why, [chunks[(rank + at) % size] / size for rank, chunks in enumerate(held)]


def _as_float32(pieces: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """All ranks' means where a reduce-scatter takes as many float32 as there are float64."""
    size, chunk = len(pieces), len(pieces[0][0])
    rows = [np.concatenate(chunks).view(np.float32)[: size * chunk] for chunks in pieces]
    found = np.zeros((size, chunk))
    with np.errstate(all="ignore"):
        found.view(np.float32)[:, :chunk] = np.sum(rows, axis=0).reshape(size, chunk)
        return list(found / size)


def shares(case: Case, size: int, got: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """With what factor each rank's gradient is in the chunks, the same in all of them; None where that is not so."""
    pieces = [chunks_of(case.flat(rank), size) for rank in range(size)]
    rows = [(np.stack([piece[at] for piece in pieces]).T, row) for at, row in enumerate(got) if row is not None]
    found = [np.linalg.lstsq(a, row, rcond=None)[0] for a, row in rows if len(row) >= size]
    fits = all(np.allclose(a @ x, row, 1e-5, 1e-6) for (a, row), x in zip(rows, found, strict=False))
    factors = np.sort(found, axis=1) if found and fits and len(found) == len(rows) else np.empty((0, size))
    return factors[0] if len(factors) and np.allclose(factors, factors[0], 1e-5, 1e-6) else None
