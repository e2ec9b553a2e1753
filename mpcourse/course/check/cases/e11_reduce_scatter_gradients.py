"""What e11_reduce_scatter_gradients is asked: each rank's chunk of the mean, by (p - 1) / p of the buffer's bytes."""

import dataclasses
import functools
import itertools
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.chunks import OnAllRanks, Rows, chunks_of
from mpcourse.course.check.facts.messages import COMM, PICKLED, SLACK, THROUGH_WORLD, Sent, counting, is_virtual
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "reduce_scatter_gradients"

# -- inputs --


@dataclass(frozen=True)
class Case:
    """Parameters. none: (rank, number) of those that backward did not reach. why: for an answer right until then."""

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

    @property
    def n(self) -> int:
        return sum(self.numels)

    def gradients(self, rank: int) -> list[torch.Tensor | None]:
        """Return what a rank is given."""
        made: list[torch.Tensor | None] = []
        for i, shape in enumerate(self.shapes):
            draw = torch.Generator().manual_seed(100 * rank + i + 1)
            g = torch.randn(shape, generator=draw, dtype=self.dtype)
            g = g.t().contiguous().t() if self.memory == "columns" and len(shape) == 2 else g
            made.append(None if (rank, i) in self.none else g)
        return made

    def flat(self, rank: int, compact: bool = False, order: Literal["C", "F", "K"] = "C") -> np.ndarray:
        """Return that in one row. compact: without what is None, and zeros at the end. order: as numpy.ravel has it."""
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
    Case("a gradient that is None on all ranks", ((3,), (4,), (3,)), none=tuple((rank, 0) for rank in range(4))),
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
    Case("ranks of a communicator that has them in another order", PADDED, turned=True, why=COMM),
)
LONG = Case("1,507 elements", ((30, 50), (7,)))  # few enough for a loop over elements under the check's eye


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for case in (CASES[0], CASES[1], CASES[2], LONG):
            on_real(answer, ranks, _program(case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case in CASES:
        for size in SIZES:
            asked = f"each rank's chunk of the mean over {counted(size, 'rank')}, of {case.what}"
            stumbled = (asked, case.why) if case.why else None
            on_virtual(answer, comm, size, _program(case), functools.partial(_judge, case), stumbled)
    for case, size in itertools.product((LONG, dataclasses.replace(LONG, dtype=torch.float32)), SIZES):
        kept: list[torch.Tensor] = []
        tracemalloc.start()
        try:
            ran = on_virtual(answer, comm, size, _program(case, kept), functools.partial(_judge, case))
            nbytes = chunks.freed(kept)
        finally:
            tracemalloc.stop()
        everyone = [Facts(rank, case, ran.results) for rank in range(size)]
        finding = judge(BYTES, *everyone) or judge(FREED, Facts(None, case, ran.results, nbytes))
        if finding := finding or judge(LEFT, *everyone):
            raise ran.wrong(*finding)


# -- observation --


class Seen(NamedTuple):
    """What one rank's call did.

    number: the rank's, in the communicator that it was given. shown: the result, if it is no tensor. storage: bytes of
    its memory. moved: whether gradients are in other memory now. overwritten: whether a second call changed the result
    of the first. shared: whether the result lies in a gradient's memory. left: where a large array is afterwards.
    sent: known of virtual ranks.
    """

    number: int
    shown: str
    result: np.ndarray | None = None
    storage: int = 0
    moved: bool = False
    overwritten: bool = False
    shared: bool = False
    left: str = ""
    sent: Sent | None = None


def _program(case: Case, kept: list[torch.Tensor] | None = None) -> Program:
    """kept: gets the results of all ranks."""

    def program(own: Answer, comm: Any) -> Seen:
        ranks = comm.Split(0, -comm.rank) if case.turned else comm
        gradients = case.gradients(ranks.rank)
        shapes = [torch.Size(shape) for shape in case.shapes]
        sent = counting(ranks) if is_virtual(comm) else lambda: None
        with chunks.nan_in_new_memory(case.n, ranks.size, case.dtype):
            first, before = None, np.empty(0)
            if len(case.none) == 3:  # what a call leaves for the next one shows there
                full = [torch.full(shape, EARLIER, dtype=case.dtype) for shape in case.shapes]
                first = own.call(NAME, ranks, full, [*shapes])
                before = first.detach().numpy().copy()
            held = [0 if g is None else g.data_ptr() for g in gradients]
            result = own.call(NAME, ranks, gradients, shapes)
        moved = held != [0 if g is None else g.data_ptr() for g in gradients]
        if not isinstance(result, torch.Tensor):
            return Seen(ranks.rank, short(result), None, 0, moved, sent=sent())
        values, nbytes = result.detach().numpy(), result.untyped_storage().nbytes()
        overwritten = first is not None and not np.array_equal(first.detach().numpy(), before, equal_nan=True)
        shared = any(g is not None and np.shares_memory(values, g.numpy()) for g in gradients)
        left = ""
        if kept is not None:
            kept.append(result)
            largest = max(case.numels) * case.dtype.itemsize
            left = chunks.kept_array(own.module, ranks, lambda n: n >= largest)
        return Seen(ranks.rank, "", values.copy(), nbytes, moved, overwritten, shared, left, sent())

    return program


@dataclass(frozen=True)
class Facts:
    """What calls did, seen from `rank`. everyone: by rank. freed: bytes that went with all results."""

    rank: int | None
    case: Case
    everyone: Sequence[Seen]
    freed: int = 0

    seen = property(lambda self: self.everyone[self.rank])
    result = property(lambda self: self.seen.result)
    number = property(lambda self: self.seen.number)
    size = property(lambda self: len(self.everyone))
    n = property(lambda self: self.case.n)
    chunk = property(lambda self: -(-self.n // self.size))
    nbytes = property(lambda self: self.chunk * self.case.dtype.itemsize)

    # What right and wrong programs make of the gradients: rows, and all ranks' chunks of them.
    flats = functools.cached_property(lambda self: [self.case.flat(rank) for rank in range(self.size)])
    total = functools.cached_property(lambda self: np.sum(self.flats, axis=0))
    mean = functools.cached_property(lambda self: self.cut(self.total / self.size))
    pieces = functools.cached_property(lambda self: [self.cut(flat) for flat in self.flats])
    own = property(lambda self: [piece[rank] for rank, piece in enumerate(self.pieces)])
    largest = property(lambda self: self.cut(np.max(self.flats, axis=0)))

    @functools.cached_property
    def rows(self) -> OnAllRanks:
        in_order = sorted(self.everyone, key=lambda seen: seen.number)
        got = [seen.result for seen in in_order]
        return OnAllRanks(got, self.mean, 1e-6 if self.is_float32 else 1e-13, self.case.dtype)

    def cut(self, row: np.ndarray) -> list[np.ndarray]:
        return chunks_of(row, self.size)

    def mean_of(self, rows: Rows) -> list[np.ndarray]:
        return self.cut(np.mean(rows, axis=0))

    def gives(self, *rows: Rows) -> bool:
        return self.rows.gives(*rows)

    def gives_divided_or_not(self, rows: Rows) -> bool:
        return self.gives(rows, [row / self.size for row in rows])

    is_float32 = property(lambda self: self.case.dtype == torch.float32)
    difference = functools.cached_property(
        lambda self: self.rows.difference(
            self.number, f"the chunk of rank {self.number} of {self.size}, of {self.case.what}"
        )
    )

    @property
    def had(self) -> int:
        """How many elements this rank's gradients have together."""
        return sum(k for i, k in enumerate(self.case.numels) if (self.number, i) not in self.case.none)

    @property
    def right_but_for_padding(self) -> bool:
        got, want = (np.concatenate(rows)[: self.n] for rows in (self.rows.got, self.mean))
        return np.allclose(got, want, self.rows.tolerance, self.rows.tolerance)

    @property
    def turned_by(self) -> int | None:
        """By how many ranks the right chunks are shifted."""
        turns = ([self.mean[(rank + by) % self.size] for rank in range(self.size)] for by in range(1, self.size))
        return next((by for by, turn in enumerate(turns, start=1) if self.gives(turn)), None)

    @property
    def after_an_earlier_call(self) -> list[np.ndarray]:
        """Where a gradient is None, one of the call before."""
        rows = []
        for rank, flat in enumerate(self.flats):
            none = [np.full(n, (rank, i) in self.case.none) for i, n in enumerate(self.case.numels)]
            rows.append(np.where(np.concatenate(none), EARLIER, flat))
        return self.mean_of(rows)

    @property
    def over_those_that_have_it(self) -> list[np.ndarray]:
        """Sums over how many ranks have a gradient."""
        none = self.case.none
        had = [sum((rank, i) not in none for rank in range(self.size)) for i in range(len(self.case.shapes))]
        counts = [np.full(k, max(h, 1)) for k, h in zip(self.case.numels, had, strict=True)]
        return self.cut(self.total / np.concatenate(counts))

    @property
    def each_alone(self) -> list[np.ndarray]:
        """Each parameter cut by itself."""
        parts = np.split(self.total / self.size, np.cumsum(self.case.numels)[:-1])
        return [np.concatenate(chunks) for chunks in zip(*map(self.cut, parts), strict=True)]

    @property
    def over_neighbours(self) -> list[np.ndarray]:
        """Means over the wrong axis of what an all-to-all brings."""
        brought = (np.concatenate([piece[rank] for piece in self.pieces]) for rank in range(self.size))
        return [row.reshape(-1, self.size).mean(1) for row in brought]

    @property
    def rings(self) -> Iterator[Rows]:
        """Rings that go down while chunks are numbered as if they went up."""
        size = self.size
        for first, at in itertools.product((0, 1), (0, 1)):
            held = [list(piece) for piece in self.pieces]
            for step in range(size - 1):
                out = [piece[(rank - first - step) % size] for rank, piece in enumerate(held)]
                for rank, piece in enumerate(held):
                    into = (rank - first - 1 - step) % size
                    piece[into] = piece[into] + out[(rank + 1) % size]
            yield [piece[(rank + at) % size] / size for rank, piece in enumerate(held)]

    @property
    def as_float32(self) -> Rows:
        """Means where a reduce-scatter takes as many float32 as there are float64."""
        rows = [np.concatenate(piece).view(np.float32)[: self.size * self.chunk] for piece in self.pieces]
        found = np.zeros((self.size, self.chunk))
        with np.errstate(all="ignore"):
            found.view(np.float32)[:, : self.chunk] = np.sum(rows, axis=0).reshape(self.size, self.chunk)
            return list(found / self.size)

    @functools.cached_property
    def shares(self) -> np.ndarray | None:
        """With what factor each rank's gradient is in the chunks, the same in all of them; None where it is not."""
        rows = [(np.stack([piece[at] for piece in self.pieces]).T, row) for at, row in enumerate(self.rows.got)]
        if self.chunk < self.size:
            return None
        found = [np.linalg.lstsq(a, row, rcond=None)[0] for a, row in rows]
        rtol, atol = (1e-5, 1e-6) if self.is_float32 else (1e-9, 1e-11)
        fits = all(np.allclose(a @ x, row, rtol, atol) for (a, row), x in zip(rows, found, strict=True))
        each = np.sort(found, axis=1)
        return each[0] if fits and np.allclose(each, each[0], rtol, atol) else None

    missing = property(lambda self: int(np.isclose(self.shares, 0, atol=1e-6).sum()))

    # Bytes, and what sentences show.

    sent = property(lambda self: self.seen.sent)
    most = property(lambda self: (self.size - 1) * self.nbytes)
    calls = property(lambda self: {name.removeprefix("I").removesuffix("v").lower() for name in self.sent.calls})
    anything_sent = property(lambda self: any(seen.sent is not None and seen.sent.nbytes for seen in self.everyone))
    right_shape = property(lambda self: (self.chunk,))
    dtype = property(lambda self: f"torch.{self.result.dtype}")
    right_dtype = property(lambda self: str(self.case.dtype))
    least_storage = property(lambda self: max(self.nbytes, self.case.dtype.itemsize))
    who = property(lambda self: named(self.rows.there))
    parts = property(lambda self: f"{1 / self.shares[0]:.4g}")
    added = property(lambda self: self.size - self.missing)
    others = property(lambda self: self.size - 1)
    freed_by_each = property(lambda self: self.freed // self.size)


def _judge(case: Case, results: Sequence[Seen]) -> Finding | None:
    order = sorted(range(len(results)), key=lambda rank: results[rank].number)  # who is rank 0, 1, ... of comm
    everyone = [Facts(rank, case, results) for rank in order]
    return judge(CALLS, *everyone) or judge(FORM, *everyone) or judge(VALUES, *everyone) or judge(MEMORY, *everyone)


# -- what is said --

LEFT_OUT = "A gradient that is None is left out of the buffer, and what follows moves to its place: zeros stand there."
SHORTER = "Right to some digits: numbers were in a shorter dtype on their way. The buffer has the gradients' dtype."
VIEW = (
    "The chunk is a view of the whole buffer, which stays in memory as long as the chunk does: nothing is saved. Take "
    "a copy of the chunk, or receive it into an array of its own."
)
CALLS = [
    Test(
        "gradients moved",
        lambda f: f.seen.moved,
        "gradients to stay where they are",
        "views of another buffer",
        "They are the caller's, and to be freed by it: a view keeps the whole buffer in memory.",
    ),
    Test(
        "result overwritten",
        lambda f: f.seen.overwritten,
        "the chunk to keep its values when the function is called again",
        "other values",
        "The memory of a result is its caller's: make a new tensor in each call.",
    ),
    THROUGH_WORLD,
]
WHYS_SHAPE = [
    Rule(
        "None left out",
        lambda f: f.had < f.n and f.result.shape in ((f.had // f.size,), (-(-f.had // f.size),)),
        LEFT_OUT,
    ),
    Rule(
        "rounded down",
        lambda f: f.result.shape == (f.n // f.size,),
        "The length was rounded down, so the last elements are in no chunk. Round up, and pad with zeros.",
    ),
    Rule(
        "the whole buffer",
        lambda f: f.result.shape in ((f.n,), (f.chunk * f.size,)),
        "That is the whole buffer. This rank's chunk is asked, and no more.",
    ),
    Rule(
        "padding cut off",
        lambda f: len(f.result.shape) == 1 and f.result.shape < (f.chunk,),
        "Padding belongs to a chunk, and is zero: all chunks have one length, also the last one.",
    ),
    Rule(
        "too long",
        lambda f: len(f.result.shape) == 1,
        "Too long: the chunk's length is the number of elements over the number of ranks, rounded up, and no more.",
    ),
    Rule("more dimensions", always, "The chunk has one dimension: its elements in a row."),
]
WHYS_DTYPE = [
    Rule(
        "float32 by default",
        lambda f: f.dtype == "torch.float32",
        "The result has the gradients' dtype. torch.zeros and torch.empty make float32 unless told: dtype=...",
    ),
    Rule("another dtype", always, "The result has the gradients' dtype."),
]
WHYS_NO_TENSOR = [
    Rule("None", lambda f: f.seen.shown == "None", "Nothing came back: is the chunk returned?"),
    Rule("no tensor", always, "A torch.Tensor was asked."),
]
FORM = [
    Test(
        "no tensor",
        lambda f: f.result is None,
        "a tensor of shape {right_shape} on rank {number}, of {case.what}",
        "{seen.shown}",
        WHYS_NO_TENSOR,
    ),
    Test(
        "shape",
        lambda f: f.result.shape != f.right_shape,
        "a tensor of shape {right_shape} on rank {number}, of {case.what}",
        "shape {result.shape}",
        WHYS_SHAPE,
    ),
    Test("dtype", lambda f: f.dtype != f.right_dtype, "{right_dtype}, as the gradients are", "{dtype}", WHYS_DTYPE),
]
RANK_0 = "Every chunk is of rank 0's gradients alone: those of all ranks are to be summed."
FLATTENED = "Gradients were flattened column by column, or as memory lies: .reshape(-1) has one row after the other."
WHYS_VALUES = [
    Rule(
        "at a root",
        lambda f: f.rows.at_a_root,
        "Only {who} of {size} has its chunk: Reduce brings the sum to its root alone.",
    ),
    Rule("NaN", lambda f: f.rows.has_nan, f"{chunks.UNWRITTEN} Padding has to be zero."),
    Rule("rounded", lambda f: f.rows.rounded, SHORTER),
    Rule("padding", lambda f: f.right_but_for_padding, "Padding is zero on all ranks, and so is its mean."),
    Rule(
        "sum", lambda f: f.gives(f.cut(f.total)), "That is the sum. The mean is asked: divide by the number of ranks."
    ),
    chunks.TWICE,
    Rule(
        "//",
        lambda f: f.gives(f.cut(f.total // f.size)),
        "// rounds down to a whole number: the mean is a sum / comm.size.",
    ),
    Rule(
        "own, though something came",
        lambda f: f.anything_sent and f.gives_divided_or_not(f.own),
        "Only this rank's own gradient is in it, though ranks have sent something: what comes has to be added, and "
        "what an Irecv brings is there once its Wait has returned.",
    ),
    chunks.OWN,
    chunks.OWN_DIVIDED,
    Rule("rank 0's", lambda f: f.gives_divided_or_not(f.pieces[0]), RANK_0),
    Rule(
        "on wrong ranks",
        lambda f: f.turned_by is not None,
        "The right chunks on wrong ranks: rank 0 has the one of rank {turned_by}. Rank r gets the r-th: in a ring, ask "
        "which chunk is complete on which rank.",
    ),
    Rule(
        "by the rank in COMM_WORLD",
        lambda f: f.gives(f.mean[::-1]),
        "The right chunks on wrong ranks: comm.rank tells which is whose, and MPI.COMM_WORLD has another.",
    ),
    Rule(
        "the first for all",
        lambda f: f.gives([f.mean[0]] * f.size),
        "Every rank has the first chunk: rank r gets the r-th.",
    ),
    Rule(
        "dealt out",
        lambda f: f.gives([np.concatenate(f.mean)[rank :: f.size] for rank in range(f.size)]),
        "Rank r has every p-th element. A chunk is elements that follow each other in the buffer.",
    ),
    Rule(
        "of an earlier call",
        lambda f: f.gives(f.after_an_earlier_call),
        "Where a gradient is None, one of an earlier call stands in its place: zeros stand there.",
    ),
    Rule(
        "divided by those that have it",
        lambda f: f.gives(f.over_those_that_have_it),
        "Divided by how many ranks have that gradient. One that is None counts as zeros: divide by all.",
    ),
    Rule(
        "None left out",
        lambda f: f.gives(f.mean_of([f.case.flat(rank, compact=True) for rank in range(f.size)])),
        LEFT_OUT,
    ),
    Rule(
        "flattened otherwise",
        lambda f: f.gives(*(f.mean_of([f.case.flat(r, order=order) for r in range(f.size)]) for order in "KF")),
        FLATTENED,
    ),
    Rule(
        "each parameter by itself",
        lambda f: f.gives(f.each_alone),
        "Each parameter is cut by itself. All of them stand in one buffer, which is padded and cut once.",
    ),
    Rule(
        "padding in front",
        lambda f: f.gives(f.cut(np.concatenate([np.zeros(-f.n % f.size), f.total / f.size]))),
        "The padding is in front. It is at the end of the buffer.",
    ),
    Rule(
        "maximum",
        lambda f: f.gives_divided_or_not(f.largest),
        "That is the largest of all ranks' elements in each place: op=MPI.MAX takes it. The sum is asked, MPI.SUM.",
    ),
    Rule(
        "mean over neighbours",
        lambda f: f.gives(f.over_neighbours),
        "The mean is over neighbours among one rank's numbers. What an all-to-all brings has the shape (ranks, chunk): "
        "one rank's block after the other, so the mean is over the first axis.",
    ),
    Rule(
        "ring the wrong way",
        lambda f: f.gives(*f.rings),
        "Chunks were added to other chunks' places. Which chunk arrives depends on the way the ring goes: what rank r "
        "adds to its chunk is the one of the same number, of the rank that it receives from.",
    ),
    Rule(
        "MPI.FLOAT",
        lambda f: f.gives(f.as_float32),
        "Bytes of float64 were added as if they were float32, which MPI.FLOAT is.",
    ),
    Rule(
        "alone more than once",
        lambda f: f.shares is not None and f.size == 1,
        "The only rank's gradient is in the sum {shares[0]:.4g} times: alone it has no neighbour to add.",
    ),
    Rule(
        "divided by something else",
        lambda f: f.shares is not None and np.allclose(f.shares, f.shares[0]),
        "Divided by {parts}: the mean over ranks is their sum over comm.size, which is {size}.",
    ),
    Rule(
        "one rank in each",
        lambda f: f.shares is not None and f.missing == f.size - 1,
        "Each chunk holds one other rank's gradient alone: what comes is to be added, not put in the place.",
    ),
    Rule(
        "some ranks in each",
        lambda f: f.shares is not None and f.missing,
        "In each chunk are {added} of {size} ranks' gradients: every rank adds its own to each, once.",
    ),
    Rule(
        "one rank more than another",
        lambda f: f.shares is not None,
        "Some rank's gradient counts more than another's: add each once, and divide at the end.",
    ),
    Rule("what the case is about", lambda f: f.case.why, "{case.why}"),
    Rule(
        "other values",
        always,
        "Each element of the chunk is the sum of all ranks' elements at its place, over their number.",
    ),
]
VALUES = [Test("values", lambda f: f.difference, "{difference[0]}", "{difference[1]}", WHYS_VALUES)]
MEMORY = [
    Test(
        "a gradient's memory",
        lambda f: f.seen.shared,
        "memory of its own on rank {number} of {size}",
        "a view of a gradient",
        "The result lies in a gradient's memory: whoever changes one changes both. Make a tensor of its own.",
    ),
    Test(
        "a view of the buffer",
        lambda f: f.seen.storage > f.least_storage,
        "a tensor that keeps {least_storage} bytes on rank {number} of {size}, of {case.what}",
        "{seen.storage} bytes",
        VIEW,
    ),
]
WHYS_BYTES = [
    Rule(
        "all-reduce",
        lambda f: f.sent.nbytes > 1.9 * f.most and "allreduce" in f.calls,
        "An all-reduce gives the whole mean to all ranks, by a reduce-scatter and an all-gather: twice the bytes. "
        "Leave the second half out.",
    ),
    Rule(
        "all-gather",
        lambda f: "allgather" in f.calls,
        "An all-gather brings all buffers whole to every rank, which needs its own chunk of each alone: send to a "
        "rank no more than that.",
    ),
    Rule(
        "one rank does it",
        lambda f: f.calls & {"reduce", "gather", "scatter", "bcast"},
        "One rank gets all buffers, sums them and gives chunks out: its link carries what all links could share. "
        "Let each rank sum its own chunk.",
    ),
    Rule(
        "float64 for float32",
        lambda f: f.is_float32,
        "With float64 it is right, and float32 is sent in more bytes than it has: keep the gradients' dtype.",
    ),
    Rule(
        "the whole buffer to others",
        lambda f: not f.calls and f.sent.nbytes > 0.95 * f.size * f.most,
        "The whole buffer goes to other ranks, of which each needs only its chunk.",
    ),
    Rule(
        "an all-reduce by hand",
        lambda f: not f.calls and f.sent.nbytes > 1.9 * f.most,
        "Twice what it takes, as an all-reduce sends: once each rank has its chunk complete, nothing is left to be "
        "sent.",
    ),
    Rule("more", always, "To each other rank goes its chunk of the gradients, once, and nothing else that is as long."),
]
BYTES = [
    PICKLED,
    Test(
        "too many bytes",
        lambda f: f.sent.nbytes > f.most + SLACK,
        "at most {most} bytes to be sent by rank {rank} of {size}, which is {others}/{size} of the buffer",
        "{sent.by}",
        WHYS_BYTES,
    ),
]
FREED = [
    Test(
        "a view of numpy's memory",
        lambda f: f.size > 1 and f.freed > 1.5 * f.size * f.nbytes,
        "a tensor that keeps {nbytes} bytes on each rank of {size}, of {case.what}",
        "{freed_by_each} bytes, in numpy's memory",
        VIEW,
    )
]
LEFT = [
    Test(
        "a buffer is kept",
        lambda f: f.seen.left,
        "nothing as large as a gradient in memory on rank {rank} once the call has returned",
        "something in {seen.left}",
        "What the file keeps takes memory all the time, as gradients that are not sharded do. Nothing of a call is "
        "needed in the next one.",
    )
]
