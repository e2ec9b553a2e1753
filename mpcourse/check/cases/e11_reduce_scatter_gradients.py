"""What e11_reduce_scatter_gradients is asked: each rank's chunk of the mean, by (p - 1) / p of the buffer's bytes."""

import functools
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.check.answer import Answer
from mpcourse.check.cases.on_bytes import Sent, counting
from mpcourse.check.cases.on_chunks import chunks_of, freed, nan_in_new_memory
from mpcourse.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual
from mpcourse.check.cases.on_ranks import pickles, turned
from mpcourse.check.explain import explanation_of
from mpcourse.check.status_page import HasLogbook
from mpcourse.check.wrong import first_difference, short

if TYPE_CHECKING:
    from mpcourse.check.traced_mpi import WatchedComm

NAME = "reduce_scatter_gradients"
SLACK = 256  # bytes that ranks may send besides: to agree on a dtype, or on lengths


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
        why="Where a gradient is None, zeros fill its place, whose size the shape tells, as on all other ranks.",
    ),
    Case("float32", PADDED, dtype=torch.float32, why="The buffer has the gradients' dtype, float32 here."),
    Case(
        "transposed gradients, which are not contiguous",
        ((3, 2), (2, 4)),
        memory="columns",
        why="A gradient need not be contiguous: .reshape(-1) copies where it has to, .view(-1) and MPI do not.",
    ),
    Case("a parameter of shape ()", ((), (4,), ()), why="A single number is a gradient, too, of shape ()."),
    Case("2 elements", ((2,),), why="There may be fewer elements than ranks: then some chunks are padding alone."),
    Case(
        "ranks of a communicator that has them in another order",
        PADDED,
        turned=True,
        why="comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.",
    ),
)
LONG = Case("10,007 elements", ((100, 100), (7,)))


class Facts(NamedTuple):
    """Of a call on one rank. rank: of the communicator that it was given. got: what came back, if it is no tensor.

    storage: bytes of the result's memory. shared: whether that is a gradient's. sent: known of virtual ranks.
    """

    rank: int
    got: str
    result: np.ndarray | None
    storage: int
    shared: bool
    sent: Sent | None


def check(answer: Answer, comm: "WatchedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for case in (CASES[0], CASES[1], CASES[2], LONG):
            on_real(answer, ranks, _program(case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasLogbook) -> None:
    """On virtual ranks; one process calls this."""
    for case in CASES:
        for size in SIZES:
            asked = f"each rank's chunk of the mean over {size} rank{'s' * (size > 1)}, of {case.what}"
            stumbled = (asked, case.why) if case.why else None
            on_virtual(answer, comm, size, _program(case), functools.partial(_judge, case), stumbled)
    for size in SIZES:
        kept: list[torch.Tensor] = []
        tracemalloc.start()
        try:
            ran = on_virtual(answer, comm, size, _program(LONG, kept), functools.partial(_judge, LONG))
            results = freed(kept)
        finally:
            tracemalloc.stop()
        if finding := _judge_bytes(LONG, ran.results, pickles(ran)) or _judge_freed(LONG, size, results):
            raise ran.wrong(finding.rank, finding.asked, finding.got, finding.why)


def _program(case: Case, kept: list[torch.Tensor] | None = None) -> Program:
    """kept: gets the results of all ranks."""

    def program(own: Answer, comm: Any) -> Facts:
        ranks = comm.Split(0, -comm.rank) if case.turned else comm
        gradients = case.gradients(ranks.rank)
        sent = counting(comm) if hasattr(comm, "world") else None
        with nan_in_new_memory(sum(case.numels), ranks.size, case.dtype):
            result = own.call(NAME, ranks, gradients, [torch.Size(shape) for shape in case.shapes])
        if not isinstance(result, torch.Tensor):
            return Facts(ranks.rank, short(result), None, 0, False, None)
        values = result.detach().numpy()
        shared = any(g is not None and np.shares_memory(values, g.numpy()) for g in gradients)
        if kept is not None:
            kept.append(result)
        nbytes = result.untyped_storage().nbytes()
        return Facts(ranks.rank, "", values.copy(), nbytes, shared, sent() if sent else None)

    return program


def _judge(case: Case, results: Sequence[Facts]) -> Finding | None:
    size = len(results)
    order = sorted(range(size), key=lambda rank: results[rank].rank)  # who is rank 0, 1, ... of the communicator
    flats = [case.flat(rank) for rank in range(size)]
    want = chunks_of(np.mean(flats, axis=0), size)
    for number, at in enumerate(order):
        facts, asked = results[at], f"a tensor of shape {want[number].shape} on rank {number}, of {case.what}"
        if facts.result is None:
            why = "Nothing came back: is the chunk returned?" if facts.got == "None" else "A torch.Tensor was asked."
            return Finding(at, asked, facts.got, why)
        if facts.result.shape != want[number].shape:
            return Finding(at, asked, f"shape {facts.result.shape}", _why_shape(case, size, facts.result.shape))
        if str(case.dtype) != f"torch.{facts.result.dtype}":
            why = "The result has the gradients' dtype. torch.zeros and torch.empty make float32 unless told: dtype=..."
            return Finding(at, f"{case.dtype}, as the gradients are", f"torch.{facts.result.dtype}", why)
    got = [results[at].result for at in order]
    tolerance = 1e-6 if case.dtype == torch.float32 else 1e-13
    for number, at in enumerate(order):
        what = f"the chunk of rank {number} of {size}, of {case.what}"
        row = want[number].astype(got[number].dtype)  # type: ignore[union-attr]
        if difference := first_difference(got[number], row, what, tolerance, tolerance):
            return Finding(at, *difference, _why(case, size, got))
    for at, facts in enumerate(results):
        most = max(len(want[0]), 1) * case.dtype.itemsize
        if facts.shared:
            why = "The result lies in a gradient's memory: whoever changes one changes both. Make a tensor of its own."
            return Finding(at, f"memory of its own on rank {facts.rank} of {size}", "a view of a gradient", why)
        if facts.storage > most:
            asked = f"a tensor that keeps {most} bytes on rank {facts.rank} of {size}, of {case.what}"
            return Finding(at, asked, f"{facts.storage} bytes", VIEW)
    return None


VIEW = (
    "The chunk is a view of the whole buffer, which stays in memory as long as the chunk does: nothing is saved. Take "
    "a copy of the chunk, or receive it into an array of its own."
)


def _why_shape(case: Case, size: int, got: tuple[int, ...]) -> str:
    n = sum(case.numels)
    if got == (n // size,):
        return "The length was rounded down, so the last elements are in no chunk. Round up, and pad with zeros."
    if got in ((n,), (-(-n // size) * size,)):
        return "That is the whole buffer. This rank's chunk is asked, and no more."
    if len(got) == 1 and got[0] < -(-n // size):
        return "Padding belongs to a chunk, and is zero: all chunks have one length, also the last one."
    return "A row is asked, as long as all elements over the number of ranks, rounded up."


def _why(case: Case, size: int, got: Sequence[np.ndarray | None]) -> str:
    """The misconception behind all ranks' chunks: the first that gives them."""

    def same(rows: Sequence[np.ndarray], would: Sequence[np.ndarray]) -> bool:
        return all(np.allclose(row, other, 1e-5, 1e-6) for row, other in zip(rows, would, strict=True))

    n = sum(case.numels)
    if any(row is not None and np.isnan(row).any() for row in got):
        return "NaN is memory that was never written: torch.empty and np.empty hold anything. Padding has to be zero."
    if why := explanation_of(got, _misconceptions(case, size), same):
        return why
    want = chunks_of(np.mean([case.flat(rank) for rank in range(size)], axis=0), size)
    rows = [row for row in got if row is not None]
    if np.allclose(np.concatenate(rows)[:n], np.concatenate(want)[:n], 1e-5, 1e-6):
        if np.allclose(np.concatenate(rows)[n:], 0):
            return "Right to 6 digits or so: float64 went through float32. The buffer has the gradients' dtype."
        return "Padding is zero on all ranks, and so is its mean."
    return case.why or "Each element of the chunk is the sum of all ranks' elements at its place, over their number."


def _misconceptions(case: Case, size: int) -> Iterator[tuple[str, list[np.ndarray]]]:
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
        "A gradient that is None is left out of the buffer, and what follows moves to its place: zeros stand there.",
        chunks_of(np.mean([case.flat(rank, compact=True) for rank in range(size)], axis=0), size),
    )
    yield (
        "A gradient that is not contiguous was read as its memory lies, column by column: .reshape(-1) has its rows.",
        chunks_of(np.mean([case.flat(rank, columns=True) for rank in range(size)], axis=0), size),
    )


def _judge_bytes(case: Case, results: Sequence[Facts], pickled: bool) -> Finding | None:
    size = len(results)
    most = (size - 1) * -(-sum(case.numels) // size) * case.dtype.itemsize
    for rank, facts in enumerate(results):
        sent = facts.sent
        if sent is None or sent.nbytes <= most + SLACK:
            continue
        asked = f"{most} bytes to be sent by rank {rank} of {size}, which is {size - 1}/{size} of the buffer"
        if sent.pickled > most / 2 or (pickled and sent.nbytes < 1.1 * most):
            why = "Methods with a small letter pickle, which copies and adds to what is sent: arrays need none."
        elif sent.nbytes > 1.9 * most and any("llreduce" in name for name in sent.calls):
            why = (
                "An all-reduce gives the whole mean to all ranks, by a reduce-scatter and an all-gather: twice the "
                "bytes. Leave the second half out."
            )
        elif any(name.endswith(("educe", "catter", "ather")) for name in sent.calls):
            why = (
                "One rank gets all buffers, sums them and gives chunks out: its link carries what all links could "
                "share. Let each rank sum its own chunk."
            )
        else:
            why = "To another rank goes what that rank needs, its chunk, and each once."
        return Finding(rank, asked, f"{sent.nbytes} bytes{_by(sent)}", why)
    return None


def _by(sent: Sent) -> str:
    return f", by {', '.join(sent.calls)}" if sent.calls else ""


def _judge_freed(case: Case, size: int, nbytes: int) -> Finding | None:
    chunk = -(-sum(case.numels) // size) * case.dtype.itemsize
    if size > 1 and nbytes > 1.5 * size * chunk:
        asked = f"a tensor that keeps {chunk} bytes on each rank of {size}, of {case.what}"
        return Finding(None, asked, f"{nbytes // size} bytes, in numpy's memory", VIEW)
    return None
