"""What e10_reduce_scatter_gradients is asked: each rank's chunk of the mean, by (p - 1) / p of the buffer's bytes."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, each_on_real, each_on_virtual, on_virtual
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.chunks import OnAllRanks, Rows, chunks_of, kept_array
from mpcourse.course.check.facts.messages import COMM, PICKLED, SLACK, THROUGH_WORLD, Sent
from mpcourse.course.check.rules import Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "reduce_scatter_gradients"
EARLIER = 5.0  # all elements of all gradients in the call before, where there is one

# -- inputs --


@dataclass(frozen=True)
class Case:
    """Parameters. none: (rank, number) of gradients that backward did not reach. why: for an answer right until then.

    again: whether there is a call before, of full gradients. turned: whether comm has the ranks in the opposite order.
    """

    what: str
    shapes: tuple[tuple[int, ...], ...]
    none: tuple[tuple[int, int], ...] = ()
    again: bool = False
    dtype: torch.dtype = torch.float64
    columns: bool = False
    turned: bool = False
    why: str = ""

    numels = property(lambda self: [torch.Size(shape).numel() for shape in self.shapes])
    n = property(lambda self: sum(self.numels))

    def gradients(self, rank: int) -> list[torch.Tensor | None]:
        made: list[torch.Tensor | None] = []
        for i, shape in enumerate(self.shapes):
            draw = torch.Generator().manual_seed(100 * rank + i + 1)
            g = torch.randn(shape, generator=draw, dtype=self.dtype)
            g = g.t().contiguous().t() if self.columns and len(shape) == 2 else g
            made.append(None if (rank, i) in self.none else g)
        return made

    def buffers(self, size: int, none: float = 0.0, order: Literal["C", "F", "K"] = "C") -> Rows:
        """Return all ranks' gradients in rows. none: what takes the place of None. order: as numpy.ravel has it."""
        rows = []
        for rank in range(size):
            pairs = zip(self.gradients(rank), self.numels, strict=True)
            parts = [np.full(n, none) if g is None else np.ravel(g.numpy(), order).astype(float) for g, n in pairs]
            rows.append(np.concatenate(parts))
        return rows


PADDED = ((2, 2), (3,))
CASES = (
    Case("12 elements, which all numbers of ranks here divide", ((3, 2), (6,))),
    Case("7 elements", PADDED, why="The number of ranks need not divide the number of elements: pad with zeros."),
    Case(
        "a gradient that is None on some ranks",
        ((3,), (4,), (5,)),
        none=((0, 1), (1, 0), (2, 1)),
        again=True,
        why="A gradient may be None on some ranks, also the first in the list. Zeros take its place there, as many "
        "as its shape has elements, and the rank takes part in all calls.",
    ),
    Case("a gradient that is None on all ranks", ((3,), (4,), (3,)), none=tuple((rank, 0) for rank in range(4))),
    Case("float32", PADDED, dtype=torch.float32),
    Case(
        "transposed gradients, which are not contiguous",
        ((3, 2), (2, 4)),
        columns=True,
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
LONG = Case("1,207 elements", ((30, 40), (7,)))  # few enough for a loop over elements under the check's eye


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, (CASES[0], CASES[1], CASES[2], LONG), _call, _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    each_on_virtual(answer, comm, CASES, _call, _judge, "each rank's chunk of the mean over {ranks}, with {case.what}")
    for case, size in itertools.product((LONG, dataclasses.replace(LONG, dtype=torch.float32)), SIZES):
        kept: list[torch.Tensor] = []
        call, judge_it = functools.partial(_call, case, kept=kept), functools.partial(_judge, case)
        ran, nbytes = chunks.freed(kept, functools.partial(on_virtual, answer, comm, size, call, judge_it))
        everyone = _facts(case, [seen._replace(freed=nbytes // size) for seen in ran.results])
        ran.demand(judge(BYTES, *everyone) or judge(MEMORY, *everyone))


# -- observation --


class Seen(NamedTuple):
    """What one rank's call did.

    result: None if it is no tensor; then it is shown. storage: bytes of its memory; freed: of numpy's that went with
    it. moved: whether gradients are in other memory now. overwritten: whether a second call changed the result of the
    first. shared: whether the result lies in a gradient's memory. kept: where a large array is afterwards. sent: known
    of virtual ranks.
    """

    result: np.ndarray | None
    shown: str
    storage: int
    moved: bool
    overwritten: bool
    shared: bool
    kept: str
    sent: Sent | None
    freed: int = 0


def _call(case: Case, own: Answer, comm: Any, kept: list[torch.Tensor] | None = None) -> Seen:
    """Observe a call. kept: gets the results of all ranks."""
    with chunks.given(comm, case) as (ranks, sent):
        gradients, shapes = case.gradients(ranks.rank), [torch.Size(shape) for shape in case.shapes]
        full = [torch.full(shape, EARLIER, dtype=case.dtype) for shape in shapes]
        first = own.call(NAME, ranks, full, [*shapes]) if case.again else torch.empty(0)
        before = first.detach().numpy().copy()
        held = [g is not None and g.data_ptr() for g in gradients]
        result = own.call(NAME, ranks, gradients, shapes)
    values = result.detach().numpy() if isinstance(result, torch.Tensor) else None
    if values is not None and kept is not None:
        kept.append(result)
    largest = max(case.numels) * case.dtype.itemsize
    return Seen(
        None if values is None else values.copy(),
        short(result),
        0 if values is None else result.untyped_storage().nbytes(),
        held != [g is not None and g.data_ptr() for g in gradients],
        not np.array_equal(first.detach().numpy(), before, equal_nan=True),
        values is not None and any(g is not None and np.shares_memory(values, g.numpy()) for g in gradients),
        "" if kept is None else kept_array(own.module, ranks, lambda n: n >= largest),
        sent(),
    )


class Facts(OnAllRanks):
    """What calls did, seen from one rank, beside what right and wrong programs make of the gradients."""

    chunk = property(lambda self: len(self.want[0]))
    shapes = property(lambda self: [row is not None and row.shape for row in self.got])  # by rank
    split_shapes = property(lambda self: [part.shape for part in np.array_split(np.arange(self.n), self.size)])
    nbytes = property(lambda self: self.chunk * self.case.dtype.itemsize)
    n = property(lambda self: self.case.n)
    had = property(lambda self: sum(g.numel() for g in self.case.gradients(self.rank) if g is not None))

    def gives_divided_or_not(self, rows: Rows) -> bool:
        return self.gives(rows, [row / self.size for row in rows])

    @property
    def over_those_that_have_it(self) -> Rows:
        """Sums over how many ranks have a gradient."""
        have = np.sum([~np.isnan(row) for row in self.case.buffers(self.size, np.nan)], axis=0)
        return self.cut(self.total / np.maximum(have, 1))

    @property
    def without_none(self) -> Rows:
        """Means where a gradient that is None has no place."""
        rows = [row[~np.isnan(row)] for row in self.case.buffers(self.size, np.nan)]
        return self.mean_of([np.pad(row, (0, self.n - len(row))) for row in rows])

    @property
    def each_alone(self) -> Rows:
        """Each parameter cut by itself."""
        parts = np.split(self.total / self.size, np.cumsum(self.case.numels)[:-1])
        return [np.concatenate(pieces) for pieces in zip(*map(self.cut, parts), strict=True)]

    @property
    def over_neighbours(self) -> Rows:
        """Means over the wrong axis of what an all-to-all brings."""
        brought = (np.concatenate([piece[rank] for piece in self.pieces]) for rank in range(self.size))
        return [row.reshape(-1, self.size).mean(1) for row in brought]

    @property
    def of_other_chunks(self) -> bool:
        """Whether each rank has a mean over all ranks, but of different chunks."""
        choices = itertools.product(range(self.size), repeat=self.size)
        means = [np.mean([self.pieces[rank][i] for rank, i in enumerate(choice)], axis=0) for choice in choices]
        return all(any(self.same(got, mean) for mean in means) for got in self.got)

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
        rows = [(np.stack([piece[at] for piece in self.pieces]).T, row) for at, row in enumerate(self.got)]
        if self.chunk < self.size:
            return None
        found = [np.linalg.lstsq(a, row, rcond=None)[0] for a, row in rows]
        rtol, atol = (1e-5, 1e-6) if self.is_float32 else (1e-9, 1e-11)
        fits = all(np.allclose(a @ x, row, rtol, atol) for (a, row), x in zip(rows, found, strict=True))
        each = np.sort(found, axis=1)
        return each[0] if fits and np.allclose(each, each[0], rtol, atol) else None

    # Memory and messages.

    keeps = property(lambda self: max(self.seen.storage, self.seen.freed // max(self.nbytes, 1) * self.nbytes))
    may_keep = property(lambda self: max(self.nbytes, self.case.dtype.itemsize))
    most = property(lambda self: (self.size - 1) * self.nbytes)
    calls = property(lambda self: {name.removeprefix("I").removesuffix("v").lower() for name in self.sent.calls})
    anything_sent = property(lambda self: any(seen.sent is not None and seen.sent.nbytes for seen in self.everyone))

    # What sentences show.

    divisor = property(lambda self: 1 / self.shares[0])
    added = property(lambda self: int((~np.isclose(self.shares, 0, atol=1e-6)).sum()))
    others = property(lambda self: self.size - 1)


def _facts(case: Case, results: Sequence[Seen]) -> list[Facts]:
    everyone = results[::-1] if case.turned else results
    size, rows = len(everyone), case.buffers(len(everyone))
    mean = chunks_of(np.mean(rows, axis=0), size)
    got, tolerance = [seen.result for seen in everyone], 1e-6 if case.dtype == torch.float32 else 1e-13
    return [Facts(rank, case, everyone, "the chunk", got, mean, tolerance, rows) for rank in range(size)]


def _judge(case: Case, results: Sequence[Seen]) -> Finding | None:
    everyone = _facts(case, results)
    return next(filter(None, (judge(table, *everyone) for table in (CALLS, FORM, VALUES, MEMORY))), None)


# -- what is said --

LEFT_OUT = "A gradient that is None is left out of the buffer, and what follows moves to its place: zeros belong there."
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
        chunks.OVERWRITTEN,
    ),
    THROUGH_WORLD,
]
WHYS_SHAPE = {
    LEFT_OUT: lambda f: f.had < f.n and f.result.shape in ((f.had // f.size,), (-(-f.had // f.size),)),
    "The first chunks are one element longer, as np.array_split cuts. All chunks are to have one length: round it up, "
    "and pad with zeros at the end.": lambda f: f.shapes == f.split_shapes,
    "The length was rounded down, so the last elements are in no chunk. Round up, and pad with zeros.": (
        lambda f: set(f.shapes) == {(f.n // f.size,)}
    ),
    "That is the whole buffer. This rank's chunk is asked, and no more.": (
        lambda f: f.result.shape in ((f.n,), (f.chunk * f.size,))
    ),
    "Padding belongs to a chunk, and is zero: all chunks have one length, also the last one.": (
        lambda f: len(f.result.shape) == 1 and len(f.result) < f.chunk
    ),
    "Too long: the chunk's length is the number of elements over the number of ranks, rounded up, and no more.": (
        lambda f: len(f.result.shape) == 1
    ),
    "The chunk has one dimension: its elements in a row.": always,
}
WHYS_NO_TENSOR = {
    "Nothing came back: is the chunk returned?": lambda f: f.seen.shown == "None",
    "A torch.Tensor was asked.": always,
}
CHUNK = "a tensor of shape ({chunk},) on rank {rank} of {size}, with {case.what}"
FORM = [
    Test("no tensor", lambda f: f.result is None, CHUNK, "{seen.shown}", WHYS_NO_TENSOR),
    Test("shape", lambda f: f.result.shape != (f.chunk,), CHUNK, "shape {result.shape}", WHYS_SHAPE),
    Test(
        "dtype",
        lambda f: f.result.dtype != f.dtype,
        "{dtype}, as the gradients are",
        "{result.dtype}",
        "The result has the gradients' dtype. torch.zeros and torch.empty make float32 without dtype=...",
    ),
]
WHYS_VALUES = {
    "Only this rank's own gradient is in it, though ranks have sent something: what comes has to be added, and "
    "what an Irecv brings is there once its Wait has returned.": (
        lambda f: f.anything_sent and f.gives_divided_or_not(f.own)
    ),
    **chunks.WHYS_MEAN,
    "Every chunk comes from rank 0's gradients alone: those of all ranks are to be summed.": (
        lambda f: f.gives_divided_or_not(f.pieces[0])
    ),
    "// rounds down to a whole number: the mean is a sum / comm.size.": lambda f: f.gives(f.cut(f.total // f.size)),
    "Every rank has the first chunk: rank r gets the r-th.": lambda f: f.gives([f.want[0]] * f.size),
    "Rank r has every p-th element. A chunk is elements that follow each other in the buffer.": lambda f: f.gives(
        [np.concatenate(f.want)[rank :: f.size] for rank in range(f.size)]
    ),
    "Where a gradient is None, one of an earlier call is in its place: zeros belong there.": lambda f: f.gives(
        f.mean_of(f.case.buffers(f.size, EARLIER))
    ),
    "Divided by how many ranks have that gradient. One that is None counts as zeros: divide by all.": lambda f: f.gives(
        f.over_those_that_have_it
    ),
    LEFT_OUT: lambda f: f.gives(f.without_none),
    "Each parameter is cut by itself. All of them are in one buffer, which is padded and cut once.": lambda f: f.gives(
        f.each_alone
    ),
    "The padding is in front. It is at the end of the buffer.": lambda f: f.gives(
        f.cut(np.concatenate([np.zeros(-f.n % f.size), f.total / f.size]))
    ),
    "Bytes of float64 were added as if they were float32, which MPI.FLOAT is.": lambda f: f.gives(f.as_float32),
    "Gradients were flattened column by column, or as memory lies: .reshape(-1) has one row after the other.": (
        lambda f: f.gives(*(f.mean_of(f.case.buffers(f.size, order=order)) for order in "KF"))
    ),
    "That is the largest of all ranks' elements in each place: op=MPI.MAX takes it. The sum is asked, MPI.SUM.": (
        lambda f: f.gives_divided_or_not(f.cut(np.max(f.rows, axis=0)))
    ),
    "The mean is over neighbours among one rank's numbers. What an all-to-all brings has the shape (ranks, chunk): "
    "one rank's block after the other, so the mean is over the first axis.": lambda f: f.gives(f.over_neighbours),
    "Chunks were added to other chunks' places. Which chunk arrives depends on the way the ring goes: what rank r "
    "adds to its chunk is the one of the same number, of the rank that it receives from.": lambda f: f.of_other_chunks,
    "The only rank's gradient is in the sum {shares[0]:.4g} times: alone it has no neighbour to add.": (
        lambda f: f.shares is not None and f.size == 1
    ),
    "Divided by {divisor:.4g}: the mean over ranks is their sum over comm.size, which is {size}.": (
        lambda f: f.shares is not None and np.allclose(f.shares, f.shares[0])
    ),
    "In each chunk are {added} of {size} ranks' gradients: every rank adds its own to what comes, once.": (
        lambda f: f.shares is not None and f.added < f.size
    ),
    "Some rank's gradient counts more than another's: add each once, and divide at the end.": (
        lambda f: f.shares is not None
    ),
    **chunks.ABOUT,
    "Each element of the chunk is the sum of all ranks' elements at its place, over their number.": always,
}
VALUES = [chunks.values(WHYS_VALUES)]
MEMORY = [
    Test(
        "a gradient's memory",
        lambda f: f.seen.shared,
        "memory of its own on rank {rank} of {size}",
        "a view of a gradient",
        "The result lies in a gradient's memory: a change of one changes both. Make a tensor of its own.",
    ),
    Test(
        "a view of the buffer",
        lambda f: f.keeps > f.may_keep,
        "a tensor that keeps {may_keep} bytes on rank {rank} of {size}, with {case.what}",
        "{keeps} bytes",
        chunks.VIEW,
    ),
    Test(
        "a buffer is kept",
        lambda f: f.seen.kept,
        "nothing as large as a gradient in memory on rank {rank} once the call has returned",
        "something in {seen.kept}",
        chunks.KEPT_BY_FILE,
    ),
]
WHYS_BYTES = {
    chunks.ALLREDUCE: lambda f: f.sent.nbytes > 1.9 * f.most and "allreduce" in f.calls,
    "An all-gather brings all buffers whole to every rank, which needs its own chunk of each alone: send to a "
    "rank no more than that.": lambda f: "allgather" in f.calls,
    "One rank gets all buffers, sums them and gives chunks out: its link carries what all links could share. "
    "Let each rank sum its own chunk.": lambda f: f.calls & {"reduce", "gather", "scatter", "bcast"},
    **chunks.IN_FLOAT64,
    "The whole buffer goes to other ranks, and each of them needs only its chunk.": (
        lambda f: not f.calls and f.sent.nbytes > 0.95 * f.size * f.most
    ),
    "Twice what it takes, as an all-reduce sends: once each rank has its chunk complete, nothing is left to be "
    "sent.": lambda f: not f.calls and f.sent.nbytes > 1.9 * f.most,
    "To each other rank goes its chunk of the gradients, once, and nothing else that is as long.": always,
}
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
