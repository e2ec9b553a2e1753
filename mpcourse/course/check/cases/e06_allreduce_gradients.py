"""What e06_allreduce_gradients is asked: means of gradients, for parameters of every kind, one kind after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases import on_gradients as kinds
from mpcourse.course.check.cases.on_gradients import EVERY, CallSeen, Kind, mean, program
from mpcourse.course.check.cases.on_gradients_why import why
from mpcourse.course.check.cases.on_models import SIZES, Finding, Judge, on_real, on_virtual, same_bits
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.facts.sums import counts, members
from mpcourse.course.check.status_page import HasStatusPage

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm


@dataclass(frozen=True)
class ParameterSet:
    """A model's parameters. hint: why an answer that was right until then stumbles over it.

    drawn: gradients are random numbers, by seed; else powers of a base, so that a sum tells whose gradients are in it.
    """

    parameters: tuple[Kind, ...]
    what: str
    hint: str = ""
    drawn: bool = False


_BOTH = (kinds.WEIGHT, kinds.BIAS)
CASES = (
    ParameterSet(_BOTH, "two parameters"),
    ParameterSet(
        (kinds.WEIGHT, kinds.TIED), "a parameter under two names", "model.parameters() gives a tied parameter once."
    ),
    ParameterSet(
        (kinds.FROZEN, *_BOTH),
        "a frozen parameter, which has no gradient",
        "A frozen parameter (requires_grad is False) has no gradient on any rank: its .grad is None, and stays None.",
    ),
    ParameterSet(
        (kinds.SCALE, *_BOTH),
        "a parameter of shape ()",
        "A single number is a parameter like any other, of shape (): it has no axis to cut or to join. .reshape(-1) "
        "makes it a row of one number, and .view_as(p) brings its shape back.",
    ),
    ParameterSet(
        (kinds.WEIGHT, kinds.TURNED, kinds.KERNEL),
        "gradients whose numbers do not lie in memory row by row",
        "A transposed or channels-last gradient is not contiguous, and MPI sums memory as it lies. Sum a contiguous "
        "copy, row = p.grad.contiguous(), and put it back: p.grad.copy_(row).",
    ),
    ParameterSet(
        (*_BOTH, kinds.SMALL),
        "float32 and float64 in one model",
        "A gradient has its parameter's dtype. In one buffer for all of them it has to come back as that: "
        ".to(p.dtype). Or take a buffer for each dtype.",
    ),
    ParameterSet(
        (kinds.WEIGHT, kinds.NEVER, kinds.BIAS),
        "a parameter without a gradient on any rank",
        "A gradient that is None on all ranks stays None: such a parameter had no part in anybody's loss.",
    ),
    ParameterSet(
        (kinds.SOME, kinds.WEIGHT),
        "a parameter without a gradient on some ranks",
        "A parameter may have a gradient on one rank and None on another. All ranks must sum the same parameters in "
        "the same order: where it is None it counts as zeros, torch.zeros_like(p). Whether anybody has one is for all "
        "ranks to find out together, before the sums.",
    ),
    ParameterSet(
        EVERY,
        "parameters of all kinds",
        "Each kind alone was right: is there an order, or a place, that differs?",
        True,
    ),
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    others = turned(comm)
    last = CASES[-1]
    for ranks, case, seed in ((comm, CASES[0], 0), (comm, last, 0), (comm, last, 2), (others, last, 0)):
        alone = ranks is others and comm.rank == comm.size - 1
        on_real(answer, ranks, program(case.parameters, case.drawn, seed + int(alone)), _judge(case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case in CASES:
        for size in SIZES:
            asked = f"the mean over {counted(size, 'rank')}, of {case.what}"
            stumbled = (asked, case.hint) if case.hint else None
            on_virtual(answer, comm, size, program(case.parameters, case.drawn), _judge(case), stumbled)


def _judge(case: ParameterSet) -> Judge:
    def judge(facts: Sequence[CallSeen]) -> Finding | None:
        return (
            _kept(facts)
            or _shapes(case, facts)
            or _gradients(case, facts)
            or same_bits(
                {f"{kind.name}.grad": [seen.after.gradients[kind.name] for seen in facts] for kind in case.parameters}
            )
        )

    return judge


def _kept(facts: Sequence[CallSeen]) -> Finding | None:
    """Parameters and buffers keep their values."""
    for rank, seen in enumerate(facts):
        for name, before in seen.before.values.items():
            after = seen.after.values[name]
            if after.dtype == before.dtype and np.array_equal(after, before):
                continue
            what = f"{name} to keep its value on rank {rank}"
            got = f"from {_first(before)} to {_first(after)}"
            if name == "running_mean":
                return Finding(rank, what, got, "A buffer is no parameter, and has no gradient: leave it alone.")
            values = [f.before.values[name] for f in facts]
            says = "Gradients are averaged here, p.grad; p and p.data are the parameter itself. The optimizer moves it."
            if _close(after, np.mean(values, axis=0)) or _close(after, np.sum(values, axis=0)):
                says = f"That is an average of parameters. {says}"
            return Finding(rank, what, got, says)
    return None


def _shapes(case: ParameterSet, facts: Sequence[CallSeen]) -> Finding | None:
    """Gradients have their parameters' shapes, also where they were set by .grad.data, which takes any."""
    for kind in case.parameters:
        for rank, seen in enumerate(facts):
            got = seen.after.gradients[kind.name]
            if got is not None and got.shape != kind.shape:
                what = f"{kind.name}.grad of shape {kind.shape} on rank {rank}"
                return Finding(rank, what, f"shape {got.shape}", "A gradient has the shape of its parameter.")
    return None


def _gradients(case: ParameterSet, facts: Sequence[CallSeen]) -> Finding | None:
    wrong = [
        (rank, kind)
        for kind in case.parameters
        for rank, seen in enumerate(facts)
        if not _right(seen.after.gradients[kind.name], mean(facts, kind.name))
    ]
    if not wrong:
        return None
    rank, kind = wrong[0]
    got, want = facts[rank].after.gradients[kind.name], mean(facts, kind.name)
    says = why(facts, rank, kind, {k.name for _, k in wrong}, case.parameters, case.drawn)
    where = f"{kind.name}.grad on rank {rank}"
    having = [r for r, seen in enumerate(facts) if seen.before.gradients[kind.name] is not None]
    among = f" ({named(having)} had one)" if want is not None and len(having) < len(facts) else ""
    if want is None:
        return Finding(rank, f"{where} to stay None, as on all ranks", _first(got), says)
    if got is None:
        return Finding(rank, f"{where} to be the mean over all ranks{among}", "None", says)
    i = int(np.flatnonzero(~np.isclose(got, want, *_tolerance(got.dtype)))[0])
    value, wanted = float(got.flat[i]), float(want.flat[i])
    value_text = repr(value) + ("" if case.drawn else _of_whom(value, len(facts)))
    place = f" at {tuple(map(int, np.unravel_index(i, got.shape)))}" if got.ndim and case.drawn else ""
    return Finding(rank, f"{where}{place} to be the mean over all ranks{among}, {wanted!r}", value_text, says)


def _of_whom(value: float, size: int) -> str:
    """Whose gradients a number is made of: rank r's are BASE ** r."""
    for total, over in ((value, ""), (value * size, f", over {size}")):
        whole = np.isfinite(total) and abs(total - round(total)) < 1e-6
        times = counts(round(total), size) if whole else None
        if times and max(times) == 1 and size > 1:
            return f", which is {members(round(total), size)}{over}"
    return ""


def _right(got: np.ndarray | None, want: np.ndarray | None) -> bool:
    if got is None or want is None:
        return got is want
    return bool(np.isclose(got, want, *_tolerance(got.dtype)).all())


def _tolerance(dtype: np.dtype) -> tuple[float, float]:
    return 32 * float(np.finfo(dtype).eps), 32 * float(np.finfo(dtype).eps)


def _close(got: np.ndarray, want: np.ndarray) -> bool:
    return got.shape == want.shape and np.allclose(got, want, 1e-5, 1e-6)


def _first(x: np.ndarray | None) -> str:
    if x is None or not x.size:
        return "None" if x is None else "nothing"
    return f"{float(x.flat[0])!r}" + (" ..." if x.size > 1 else "")
