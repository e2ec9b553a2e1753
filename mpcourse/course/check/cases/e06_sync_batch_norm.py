"""What e06_sync_batch_norm is asked: one process's batch norm and its gradients, by one collective call each way."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_batch_norm import Norm
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual
from mpcourse.course.check.explain import explanation_of
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, first_difference, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

NAME = "sync_batch_norm"
FEATURES = 3
EMPTY = "A rank without examples brings zeros to both collective calls, and returns an output without rows."
DOUBLE = (
    "Here values lie around 1000, in float32, and what was right before is not any more: the difference of two large "
    "sums has no right digit left. x.double() first, and back to x's dtype at the end."
)


@dataclass(frozen=True)
class Batches:
    """lengths: examples, by rank. offset: around which x lies. layers: calls one after the other, before backward."""

    lengths: Callable[[int], Sequence[int]]
    dtype: torch.dtype = torch.float64
    offset: float = 0.5
    eps: float = 1e-5
    layers: int = 1
    why: str = ""  # of an answer that was right until then

    def norm(self, size: int) -> Norm:
        """What each rank is given; float32's values are float32's."""
        kind = np.float32 if self.dtype == torch.float32 else np.float64
        draw = [np.random.default_rng([size, rank, 7]) for rank in range(size)]
        shapes = [(n, FEATURES) for n in self.lengths(size)]
        # Ranks lie apart, so that means of deviations are no deviation of all.
        xs = [
            d.standard_normal(s) * (1 + r) + self.offset + r for r, (d, s) in enumerate(zip(draw, shapes, strict=True))
        ]
        dys = [d.standard_normal(s) + 0.3 for d, s in zip(draw, shapes, strict=True)]
        weight, bias = np.random.default_rng(size).uniform(0.5, 2.0, (2, FEATURES))
        weight, bias, *rows = (each.astype(kind).astype(float) for each in (weight, bias, *xs, *dys))
        return Norm(rows[:size], rows[size:], weight, bias, self.eps)


ORDINARY = Batches(lambda size: [4, 4, 4, 4][:size])
UNEQUAL = Batches(lambda size: [5, 2, 7, 3][:size], why="Batches differ in length: count the examples of all ranks.")
CASES = (
    ORDINARY,
    UNEQUAL,
    Batches(lambda size: [3, 0, 5, 2][:size], why=EMPTY),
    Batches(lambda size: [0, 4, 3, 2][:size] if size > 1 else [2], why=EMPTY),
    Batches(lambda size: [1] + [0] * (size - 1), why="One example in all is its own mean: the output is bias."),
    Batches(lambda size: [3, 5, 2, 4][:size], eps=0.1, why="eps is an argument, 1e-5 by default."),
    Batches(lambda size: [3, 6, 2, 4][:size], torch.float32, why="x is float32 here, and so is what comes back."),
    Batches(lambda size: [6, 5, 8, 7][:size], torch.float32, offset=1000.0, why=DOUBLE),
    Batches(
        lambda size: [3, 5, 2, 4][:size], layers=2, why="Two layers in a row: what a call keeps is its own, in ctx."
    ),
)  # fmt: skip


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for case in (UNEQUAL, CASES[2]):
            norm = case.norm(ranks.size)
            on_real(answer, ranks, _forward(case, norm), functools.partial(_judge_forward, case, norm))
            on_real(answer, ranks, _backward(case, norm), functools.partial(_judge_backward, case, norm))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case in CASES:
        for size in SIZES:
            norm = case.norm(size)
            stumbled = (f"{NAME} of {_asked(case, size)}", case.why) if case.why else None
            if case.layers == 1:
                ran = on_virtual(
                    answer, comm, size, _forward(case, norm), functools.partial(_judge_forward, case, norm), stumbled
                )
                _count(ran, "forward", 1)
            ran = on_virtual(
                answer, comm, size, _backward(case, norm), functools.partial(_judge_backward, case, norm), stumbled
            )
            _count(ran, "forward and backward", 2 * case.layers)
    _does_not_grow(answer, comm)


def _asked(case: Batches, size: int) -> str:
    counts = ", ".join(map(str, case.lengths(size)))
    return f"batches of {counts} examples" if size > 1 else f"a batch of {counts}"


# -- what ranks exchange --

ONE_CALL = "What is to be summed can travel together: torch.cat or torch.stack make one array of it."


def _exchanged(ran: "Ran") -> list[str]:
    """The collective calls of rank 0, in order."""
    return [e.name for e in ran.run.events if e.lane == "rank 0" and e.kind == "wait"]


def _count(ran: "Ran", what: str, most: int) -> None:
    if ran.run.messages.any():
        why = "An all-reduce of one's own is many messages, and slower than MPI's: comm.Allreduce, or comm.allreduce."
        got = f"{int(ran.run.messages.sum())} messages from rank to rank"
        raise ran.wrong(None, f"{what} by {counted(most, 'collective call')}", got, why)
    if len(names := _exchanged(ran)) > most:
        why = (
            ONE_CALL
            if "Barrier" not in names
            else "A collective call waits for all ranks by itself. It needs no Barrier."
        )
        raise ran.wrong(None, f"{what} by {counted(most, 'collective call')}", f"{len(names)}: {', '.join(names)}", why)


def _does_not_grow(answer: Answer, comm: HasStatusPage) -> None:
    """What is exchanged is as long for many examples as for few, by the clock of virtual ranks."""
    seconds = []
    for length in (4, 4000):
        case = Batches(lambda size, length=length: [length] * size)  # type: ignore[misc]
        norm = case.norm(3)
        ran = on_virtual(answer, comm, 3, _backward(case, norm), functools.partial(_judge_backward, case, norm))
        seconds.append(ran.run.seconds)
    if seconds[1] > 1.5 * seconds[0]:
        asked = "as much to be sent for 4000 examples on each rank as for 4: some sums for each feature"
        why = "Sums over this rank's examples first, then over ranks. The examples themselves need not travel."
        got = f"messages that take {seconds[1] / seconds[0]:.1f} times the time"
        raise ran.wrong(None, asked, got, why)


# -- programs of ranks --


def _given(case: Batches, norm: Norm, rank: int) -> tuple[torch.Tensor, ...]:
    values = (norm.xs[rank], norm.weight, norm.bias)
    return tuple(torch.tensor(value, dtype=case.dtype, requires_grad=True) for value in values)


def _forward(case: Batches, norm: Norm) -> Program:
    """The output, or what came back in place of a tensor, and whether autograd knows it."""

    def program(own: Answer, comm: Any) -> Any:
        y = _call(own, comm, case, *_given(case, norm, comm.rank))
        if not isinstance(y, torch.Tensor):
            return short(y), None
        return (y.detach().numpy().copy() if y.layout is torch.strided else short(y)), y.requires_grad

    return program


def _call(own: Answer, comm: Any, case: Batches, x: torch.Tensor, *given: torch.Tensor) -> Any:
    options = () if case.eps == 1e-5 else (case.eps,)
    return own.call(NAME, comm, x, *given, *options, changes=() if x.is_leaf else (x,))


def _backward(case: Batches, norm: Norm) -> Program:
    """The gradients of x, weight and bias."""

    def program(own: Answer, comm: Any) -> Any:
        x, weight, bias = _given(case, norm, comm.rank)
        y = x
        for _ in range(case.layers):
            y = _call(own, comm, case, y, weight, bias)
        dy = torch.tensor(norm.dys[comm.rank], dtype=case.dtype)
        try:
            own.run(y.backward, "backward", dy)
        except RuntimeError as error:
            text = str(error).splitlines()[0]
            if "incorrect number of gradients" in text or "invalid gradient" in text:
                why = "backward returns one gradient for each argument of forward, of its shape; None for comm and eps."
                raise Wrong("backward to return gradients of x, weight and bias", text, why) from None
            raise
        return [None if p.grad is None else p.grad.numpy().copy() for p in (x, weight, bias)]

    return program


# -- judgement --


def _judge_forward(case: Batches, norm: Norm, facts: Sequence[Any]) -> Finding | None:
    for rank, (got, differentiable) in reversed(
        list(enumerate(facts))
    ):  # on rank 0, its own sums look like those of all
        want = norm.output(rank)
        what = f"y of {_asked(case, len(facts))} on rank {rank}"
        if differentiable is None or isinstance(got, str):
            why = "Nothing came back: is the result returned?" if got == "None" else ""
            return Finding(rank, f"{what} to be a tensor", got, why)
        if finding := _kind(case, rank, what, got, want):
            return finding
        if not differentiable:
            why = "Its gradient is asked for next. What is computed in an autograd.Function's forward has the gradient "
            return Finding(
                rank, f"{what} to depend on x", "a tensor that autograd knows nothing of", why + "of backward."
            )
        if finding := _value(case, rank, what, got, want, norm.wrong_outputs(rank)):
            return finding
    return None


def _judge_backward(case: Batches, norm: Norm, facts: Sequence[Any]) -> Finding | None:
    ranks = range(len(facts))
    wanted = (
        _by_autograd(case, norm)
        if case.layers > 1
        else [(norm.of_x(rank), norm.of_weight(rank), norm.of_bias(rank)) for rank in ranks]
    )
    for i, name in enumerate(("x", "weight", "bias")):
        for rank in ranks:
            got, want = facts[rank][i], wanted[rank][i]
            what = f"the gradient of {name} for {_asked(case, len(facts))} on rank {rank}"
            if got is None:
                why = (
                    "backward returns a gradient for each argument of forward, in its order: x, weight and bias first."
                )
                return Finding(rank, what, "None", why)
            if finding := _kind(case, rank, what, got, want):
                return finding
            if case.layers > 1:
                ways: Iterator[tuple[str, np.ndarray]] = iter(())
            else:
                ways = norm.wrong_gradients_of_x(rank) if name == "x" else norm.wrong_gradients_of(name, rank)
            if finding := _value(case, rank, what, got, want, ways):
                return finding
    return None


def _by_autograd(case: Batches, norm: Norm) -> list[tuple[np.ndarray, ...]]:
    """Gradients of several layers, by torch, of all examples in one process; each rank's weights are its own."""
    size = len(norm.xs)
    xs = [torch.tensor(x, requires_grad=True) for x in norm.xs]
    layers = [[torch.tensor(each, requires_grad=True) for each in (norm.weight, norm.bias)] for _ in range(size)]
    ys = xs
    for _ in range(case.layers):
        whole = torch.cat(ys)
        normal = (whole - whole.mean(0)) / (whole.var(0, unbiased=False) + case.eps).sqrt()
        parts = normal.split([len(y) for y in ys])
        ys = [part * weight + bias for part, (weight, bias) in zip(parts, layers, strict=True)]
    torch.autograd.backward(ys, [torch.tensor(dy) for dy in norm.dys])
    return [(x.grad.numpy(), w.grad.numpy(), b.grad.numpy()) for x, (w, b) in zip(xs, layers, strict=True)]  # type: ignore[union-attr]


def _kind(case: Batches, rank: int, what: str, got: np.ndarray, want: np.ndarray) -> Finding | None:
    if got.shape != want.shape:
        why = "An output has the shape of x, and a gradient that of what it is the gradient of."
        return Finding(rank, f"{what} of shape {want.shape}", f"shape {got.shape}", why)
    kind = str(case.dtype)[6:]
    if got.dtype != kind:
        why = "Sums are made in float64; what is returned has the dtype that x has: .to(x.dtype)."
        return Finding(rank, f"{what} of {kind}", f"{got.dtype}", why)
    return None


def _value(
    case: Batches, rank: int, what: str, got: np.ndarray, want: np.ndarray, ways: Iterator[tuple[str, np.ndarray]]
) -> Finding | None:
    rtol, atol = (1e-6, 1e-7) if case.dtype == torch.float64 else (1e-3, 1e-3)
    difference = first_difference(got, want.astype(got.dtype), what, rtol, atol)
    if difference is None:
        return None
    why = case.why
    if not np.isfinite(got).all():
        why = f"That is 0 / 0, or a root of less than 0. {case.why or EMPTY}"
    elif case.offset < 100:  # float32 around 1000 hides which one it is
        others = ((each, value) for each, value in ways if not np.allclose(value, want, rtol, atol))
        same = functools.partial(np.allclose, rtol=rtol / 50, atol=atol / 50)
        why = explanation_of(got, others, same) or case.why
    return Finding(rank, *difference, why or "Mean and variance are over the examples of all ranks.")
