"""What e11_reduce_scatter_gradients is asked: each rank's chunk of the mean, by (p - 1) / p of the buffer's bytes."""

import dataclasses
import functools
import itertools
import tracemalloc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_bytes import Sent, counting
from mpcourse.course.check.cases.on_chunks import chunks_of, freed, nan_in_new_memory
from mpcourse.course.check.cases.on_flat import CASES, EARLIER, LEFT_OUT, LONG, Case, misconceptions, shares
from mpcourse.course.check.cases.on_kept_arrays import kept_array
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual
from mpcourse.course.check.explain import explanation_of
from mpcourse.course.check.facts.ranks import pickles, turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, first_difference, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "reduce_scatter_gradients"
SLACK = 256  # bytes that ranks may send besides: to agree on a dtype, or on lengths


class Facts(NamedTuple):
    """Of a call on one rank. rank: of the communicator that it was given. got: what came back, if it is no tensor.

    storage: bytes of the result's memory. shared: whether that is a gradient's. sent: known of virtual ranks.
    left: where a large array is once the call has returned.
    """

    rank: int
    got: str
    result: np.ndarray | None
    storage: int
    shared: bool
    sent: Sent | None
    left: str = ""


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
            results = freed(kept)
        finally:
            tracemalloc.stop()
        finding = _judge_bytes(case, ran.results, pickles(ran)) or _judge_freed(case, size, results)
        if finding := finding or _judge_left(ran.results):
            raise ran.wrong(finding.rank, finding.asked, finding.got, finding.why)


def _program(case: Case, kept: list[torch.Tensor] | None = None) -> Program:
    """kept: gets the results of all ranks."""

    def program(own: Answer, comm: Any) -> Facts:
        ranks = comm.Split(0, -comm.rank) if case.turned else comm
        gradients = case.gradients(ranks.rank)
        sent = counting(comm) if hasattr(comm, "world") else None
        with nan_in_new_memory(sum(case.numels), ranks.size, case.dtype):
            first, before = None, np.empty(0)
            if len(case.none) == 3:  # what a call leaves for the next one shows there
                full = [torch.full(shape, EARLIER, dtype=case.dtype) for shape in case.shapes]
                first = own.call(NAME, ranks, full, [torch.Size(shape) for shape in case.shapes])
                before = first.detach().numpy().copy()
            held = [0 if g is None else g.data_ptr() for g in gradients]
            shapes = [torch.Size(shape) for shape in case.shapes]
            result = own.call(NAME, ranks, gradients, shapes)
            if held != [0 if g is None else g.data_ptr() for g in gradients]:
                why = "They are the caller's, and to be freed by it: a view keeps the whole buffer in memory."
                raise Wrong("gradients to stay where they are", "views of another buffer", why)
        if not isinstance(result, torch.Tensor):
            return Facts(ranks.rank, short(result), None, 0, False, None)
        values = result.detach().numpy()
        if first is not None and not np.array_equal(first.detach().numpy(), before, equal_nan=True):
            why = "The memory of a result is its caller's: make a new tensor in each call."
            raise Wrong("the chunk to keep its values when the function is called again", "other values", why)
        shared = any(g is not None and np.shares_memory(values, g.numpy()) for g in gradients)
        left = ""
        if kept is not None:
            kept.append(result)
            largest = max(case.numels) * case.dtype.itemsize
            left = kept_array(own.module, ranks, lambda n: n >= largest)
        nbytes = result.untyped_storage().nbytes()
        return Facts(ranks.rank, "", values.copy(), nbytes, shared, sent() if sent else None, left)

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
            return Finding(at, asked, f"shape {facts.result.shape}", _why_shape(case, size, number, facts.result.shape))
        if str(case.dtype) != f"torch.{facts.result.dtype}":
            why = "The result has the gradients' dtype."
            if facts.result.dtype == np.float32:
                why += " torch.zeros and torch.empty make float32 unless told: dtype=..."
            return Finding(at, f"{case.dtype}, as the gradients are", f"torch.{facts.result.dtype}", why)
    got = [results[at].result for at in order]
    tolerance = 1e-6 if case.dtype == torch.float32 else 1e-13
    for number, at in enumerate(order):
        what = f"the chunk of rank {number} of {size}, of {case.what}"
        row = want[number].astype(got[number].dtype)  # type: ignore[union-attr]
        if difference := first_difference(got[number], row, what, tolerance, tolerance):
            return Finding(at, *difference, _why(case, results, got))
    for at, facts in enumerate(results):
        most = max(len(want[0]), 1) * case.dtype.itemsize
        if facts.shared:
            why = "The result lies in a gradient's memory: whoever changes one changes both. Make a tensor of its own."
            return Finding(at, f"memory of its own on rank {facts.rank} of {size}", "a view of a gradient", why)
        if facts.storage > most:
            asked = f"a tensor that keeps {most} bytes on rank {facts.rank} of {size}, of {case.what}"
            return Finding(at, asked, f"{facts.storage} bytes", VIEW)
    return None


SHORTER = "Right to some digits: numbers were in a shorter dtype on their way. The buffer has the gradients' dtype."
VIEW = (
    "The chunk is a view of the whole buffer, which stays in memory as long as the chunk does: nothing is saved. Take "
    "a copy of the chunk, or receive it into an array of its own."
)


def _why_shape(case: Case, size: int, rank: int, got: tuple[int, ...]) -> str:
    n = sum(case.numels)
    had = sum(k for i, k in enumerate(case.numels) if (rank, i) not in case.none)
    if had < n and got in ((had // size,), (-(-had // size),)):
        return LEFT_OUT
    if got == (n // size,):
        return "The length was rounded down, so the last elements are in no chunk. Round up, and pad with zeros."
    if got in ((n,), (-(-n // size) * size,)):
        return "That is the whole buffer. This rank's chunk is asked, and no more."
    if len(got) == 1 and got[0] < -(-n // size):
        return "Padding belongs to a chunk, and is zero: all chunks have one length, also the last one."
    if len(got) == 1:
        return (
            "Too long: the chunk's length is the number of elements over the number of ranks, rounded up, and no more."
        )
    return "The chunk has one dimension: its elements in a row."


def _why(case: Case, results: Sequence[Facts], got: Sequence[np.ndarray | None]) -> str:
    """The misconception behind all ranks' chunks: the first that gives them."""
    size = len(got)

    def same(rows: Sequence[np.ndarray], would: Sequence[np.ndarray]) -> bool:
        pairs = list(zip(rows, would, strict=True))
        return all(row.shape == other.shape and np.allclose(row, other, 1e-5, 1e-6) for row, other in pairs)

    n = sum(case.numels)
    want = chunks_of(np.mean([case.flat(rank) for rank in range(size)], axis=0), size)
    rows = [row for row in got if row is not None]
    there = [rank for rank, row in enumerate(rows) if np.allclose(row, want[rank], 1e-5, 1e-6)]
    rest = [row for rank, row in enumerate(rows) if rank not in there]
    if there and rest and all(not row.any() or np.isnan(row).all() for row in rest):
        return f"Only {named(there)} of {size} has its chunk: Reduce brings the sum to its root alone."
    if any(row is not None and np.isnan(row).any() for row in got):
        return "NaN is memory that was never written: torch.empty and np.empty hold anything. Padding has to be zero."
    if np.allclose(np.concatenate(rows)[:n], np.concatenate(want)[:n], 1e-5, 1e-6):
        if np.allclose(np.concatenate(rows)[n:], 0):
            return SHORTER
        return "Padding is zero on all ranks, and so is its mean."
    sent = any(facts.sent is not None and facts.sent.nbytes for facts in results)
    if why := explanation_of(got, misconceptions(case, size, sent), same):
        return why
    if all(np.allclose(row, other, 1e-2, 1e-3) for row, other in zip(rows, want, strict=True)):
        return SHORTER
    if (parts := shares(case, size, got)) is not None:
        if size == 1:
            return f"The only rank's gradient is in the sum {parts[0]:.4g} times: alone it has no neighbour to add."
        if np.allclose(parts, parts[0]):
            return f"Divided by {1 / parts[0]:.4g}: the mean over ranks is their sum over comm.size, which is {size}."
        if (missing := int(np.isclose(parts, 0, atol=1e-6).sum())) == size - 1:
            return "Each chunk holds one other rank's gradient alone: what comes is to be added, not put in the place."
        if missing:
            return (
                f"In each chunk are {size - missing} of {size} ranks' gradients: every rank adds its own to each, once."
            )
        return "Some rank's gradient counts more than another's: add each once, and divide at the end."
    return case.why or "Each element of the chunk is the sum of all ranks' elements at its place, over their number."


def _judge_bytes(case: Case, results: Sequence[Facts], pickled: bool) -> Finding | None:
    size = len(results)
    most = (size - 1) * -(-sum(case.numels) // size) * case.dtype.itemsize
    for rank, facts in enumerate(results):
        if facts.sent is not None and facts.sent.nbytes > most + SLACK:
            asked = (
                f"at most {most} bytes to be sent by rank {rank} of {size}, which is {size - 1}/{size} of the buffer"
            )
            got = f"{facts.sent.nbytes} bytes{_by(facts.sent)}"
            return Finding(rank, asked, got, _why_bytes(case, size, facts.sent, most, pickled))
    return None


def _why_bytes(case: Case, size: int, sent: Sent, most: int, pickled: bool) -> str:
    calls = {name.removeprefix("I").removesuffix("v").lower() for name in sent.calls}
    if sent.pickled > most / 2 or (pickled and sent.nbytes < 1.1 * most):
        return "Methods with a small letter pickle, which copies and adds to what is sent: arrays need none."
    if sent.nbytes > 1.9 * most and "allreduce" in calls:
        return (
            "An all-reduce gives the whole mean to all ranks, by a reduce-scatter and an all-gather: twice the bytes. "
            "Leave the second half out."
        )
    if "allgather" in calls:
        return (
            "An all-gather brings all buffers whole to every rank, which needs its own chunk of each alone: send to a "
            "rank no more than that."
        )
    if calls & {"reduce", "gather", "scatter", "bcast"}:
        return (
            "One rank gets all buffers, sums them and gives chunks out: its link carries what all links could share. "
            "Let each rank sum its own chunk."
        )
    if case.dtype == torch.float32:
        return "With float64 it is right, and float32 is sent in more bytes than it has: keep the gradients' dtype."
    if not calls and sent.nbytes > 0.95 * size * most:
        return "The whole buffer goes to other ranks, of which each needs only its chunk."
    if not calls and sent.nbytes > 1.9 * most:
        return (
            "Twice what it takes, as an all-reduce sends: once each rank has its chunk complete, nothing is left to be "
            "sent."
        )
    return "To each other rank goes its chunk of the gradients, once, and nothing else that is as long."


def _by(sent: Sent) -> str:
    return f", by {', '.join(sent.calls)}" if sent.calls else ""


def _judge_freed(case: Case, size: int, nbytes: int) -> Finding | None:
    chunk = -(-sum(case.numels) // size) * case.dtype.itemsize
    if size > 1 and nbytes > 1.5 * size * chunk:
        asked = f"a tensor that keeps {chunk} bytes on each rank of {size}, of {case.what}"
        return Finding(None, asked, f"{nbytes // size} bytes, in numpy's memory", VIEW)
    return None


def _judge_left(results: Sequence[Facts]) -> Finding | None:
    for rank, facts in enumerate(results):
        if facts.left:
            asked = f"nothing as large as a gradient in memory on rank {rank} once the call has returned"
            why = (
                "What the file keeps takes memory all the time, as gradients that are not sharded do. Nothing of a "
                "call is needed in the next one."
            )
            return Finding(rank, asked, f"something in {facts.left}", why)
    return None
