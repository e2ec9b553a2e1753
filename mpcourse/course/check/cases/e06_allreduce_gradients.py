"""What e06_allreduce_gradients is asked: means of gradients, for parameters of every kind, one kind after the other."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual, same_bits
from mpcourse.course.check.facts.gradients import NAN, SHAPES, Gradient, Row
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.facts.sums import BASE, counts, members
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.virtual.ranks.comm import VirtualComm

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "allreduce_gradients"
BUFFER = "running_mean"

# -- inputs --


@dataclass(frozen=True)
class Kind:
    """A parameter. frozen: it needs no gradient. having: by rank and size, whether a rank has one. memory: "rows", or
    how else its numbers lie. twice: under a second name, too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float64
    frozen: bool = False
    having: Callable[[int, int], bool] = lambda rank, size: True
    memory: str = "rows"
    twice: bool = False


WEIGHT, BIAS = Kind("weight", (3, 2)), Kind("bias", (4,))
FROZEN = Kind("frozen", (2,), frozen=True, having=lambda rank, size: False)
SCALE = Kind("scale", ())
TIED = Kind("tied", (2, 2), twice=True)
TURNED = Kind("turned", (5, 2), memory="columns")
KERNEL = Kind("kernel", (2, 3, 2, 2), memory="channels last")
SMALL = Kind("small", (7,), torch.float32)
SOME = Kind("some", (5,), having=lambda rank, size: size == 1 or rank != 1)
OTHERS = Kind("others", (4, 2), having=lambda rank, size: rank == size - 1, memory="columns")
NEVER = Kind("never", (2, 3), having=lambda rank, size: False)
EVERY = (WEIGHT, NEVER, SMALL, SOME, FROZEN, SCALE, TIED, TURNED, KERNEL, OTHERS, BIAS)


@dataclass(frozen=True)
class ParameterSet:
    """A model's parameters. hint: why an answer that was right until then stumbles over it.

    drawn: gradients are random numbers, by seed; else multiples of a power, so that a sum tells whose are in it.
    """

    parameters: tuple[Kind, ...]
    what: str
    hint: str = ""
    drawn: bool = False


CASES = (
    ParameterSet((WEIGHT, BIAS), "two parameters"),
    ParameterSet((WEIGHT, TIED), "a parameter under two names", "model.parameters() gives a tied parameter once."),
    ParameterSet(
        (FROZEN, WEIGHT, BIAS),
        "a frozen parameter, which has no gradient",
        "A frozen parameter (requires_grad is False) has no gradient on any rank: its .grad is None, and stays None.",
    ),
    ParameterSet(
        (SCALE, WEIGHT, BIAS),
        "a parameter of shape ()",
        "A single number is a parameter like any other, of shape (): it has no axis to cut or to join. .reshape(-1) "
        "makes it a row of one number, and .view_as(p) brings its shape back.",
    ),
    ParameterSet(
        (WEIGHT, TURNED, KERNEL),
        "gradients whose numbers do not lie in memory row by row",
        "A transposed or channels-last gradient is not contiguous, and MPI sums memory as it lies. Sum a contiguous "
        "copy, row = p.grad.contiguous(), and put it back: p.grad.copy_(row).",
    ),
    ParameterSet(
        (WEIGHT, BIAS, SMALL),
        "float32 and float64 in one model",
        "A gradient has its parameter's dtype. In one buffer for all of them it has to come back as that: "
        ".to(p.dtype). Or take a buffer for each dtype.",
    ),
    ParameterSet(
        (WEIGHT, NEVER, BIAS),
        "a parameter without a gradient on any rank",
        "A gradient that is None on all ranks stays None: such a parameter had no part in anybody's loss.",
    ),
    ParameterSet(
        (SOME, WEIGHT),
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
        on_real(answer, ranks, _program(case, seed + int(alone)), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case in CASES:
        for size in SIZES:
            asked = f"the mean over {counted(size, 'rank')}, of {case.what}"
            stumbled = (asked, case.hint) if case.hint else None
            on_virtual(answer, comm, size, _program(case), functools.partial(_judge, case), stumbled)


def _model(case: ParameterSet, rank: int, size: int, seed: int) -> nn.Module:
    """After backward."""
    random = np.random.default_rng([rank, size, seed])
    model, loss = nn.Module(), torch.zeros((), dtype=torch.float64)
    for i, kind in enumerate(case.parameters):
        p = nn.Parameter(_laid(np.full(kind.shape, i + rank / 8), kind), requires_grad=not kind.frozen)
        model.register_parameter(kind.name, p)
        if kind.twice:
            model.register_parameter(f"{kind.name}_again", p)
        numbers = random.standard_normal(kind.shape)
        if kind.having(rank, size):
            gradient = _laid(np.asarray(numbers if case.drawn else _multiples(kind.shape) * float(BASE**rank)), kind)
            for _ in range(1 + kind.twice):  # each use adds its part
                loss = loss + (p * (gradient / (1 + kind.twice))).sum().double()
    model.register_buffer(BUFFER, torch.full((3,), rank + 0.5))
    if loss.requires_grad:
        loss.backward()
    return model


def _multiples(shape: tuple[int, ...]) -> np.ndarray:
    """Small whole numbers, different in neighbouring places; 16 bits round their sums up as well as down."""
    return (1 + 10 * np.arange(np.prod(shape, dtype=int)) % 13).reshape(shape)


def _laid(numbers: np.ndarray, kind: Kind) -> torch.Tensor:
    """A tensor of the kind's dtype, whose numbers lie in memory as it says."""
    x = torch.from_numpy(numbers).to(kind.dtype)
    if kind.memory == "columns":
        return x.t().contiguous().t()
    return x.contiguous(memory_format=torch.channels_last) if kind.memory == "channels last" else x


# -- observation --


@dataclass(frozen=True)
class State:
    """Of a model on one rank, by name: values of parameters and buffers, and gradients or None."""

    values: dict[str, np.ndarray]
    gradients: dict[str, Row]


@dataclass(frozen=True)
class CallSeen:
    """What a call did on one rank. exchanged: whether it made collective calls, as far as is known. shared: two
    parameters whose gradients lie in the same memory afterwards.
    """

    before: State
    after: State
    returned: bool
    exchanged: bool
    shared: tuple[str, ...]


def _program(case: ParameterSet, seed: int = 0) -> Program:
    def run(own: Answer, comm: Any) -> CallSeen:
        model = _model(case, comm.rank, comm.size, seed)
        before = _state(model, case)
        made = comm.world.collectives[comm.me] if isinstance(comm, VirtualComm) else [""]  # real ranks do not tell
        returned = own.call(NAME, comm, model)
        return CallSeen(before, _state(model, case), returned is not None, len(made) > 0, _shared(model, case))

    return run


def _state(model: nn.Module, case: ParameterSet) -> State:
    parameters = {kind.name: getattr(model, kind.name) for kind in case.parameters}
    values = {name: p.detach().numpy().copy() for name, p in [*parameters.items(), *model.named_buffers()]}
    return State(
        values, {name: None if p.grad is None else p.grad.detach().numpy().copy() for name, p in parameters.items()}
    )


def _shared(model: nn.Module, case: ParameterSet) -> tuple[str, ...]:
    there = {
        kind.name: g.detach().numpy() for kind in case.parameters if (g := getattr(model, kind.name).grad) is not None
    }
    pairs = itertools.combinations(there, 2)
    return next((pair for pair in pairs if np.shares_memory(*[there[name] for name in pair])), ())


@dataclass(frozen=True)
class Facts(Gradient):
    """The gradient of a parameter of `kind`. seen: by rank, what the call did there."""

    kind: Kind
    case: ParameterSet
    seen: Sequence[CallSeen]

    dense = property(lambda self: self.kind.memory == "rows")
    shared = property(lambda self: self.seen[self.rank].shared)
    returned = property(lambda self: self.seen[self.rank].returned)
    exchanged = property(lambda self: self.seen[self.rank].exchanged)
    wrong = property(
        lambda self: [f.kind for f in _gradients(self.case, self.seen) if not f.rank and len(f.good) < f.size]
    )

    @property
    def others(self) -> list[Kind]:
        """Those of which all ranks have the mean."""
        return [kind for kind in self.case.parameters if kind not in self.wrong and not kind.frozen]

    @property
    def permuted(self) -> bool:
        got, mean = np.sort(self.got, axis=None), np.sort(self.mean, axis=None)
        return not self.dense and np.allclose(got, mean, *self.tolerance)

    @property
    def misplaced(self) -> bool:
        """Whether all numbers are means, of whatever parameters."""
        means = [f.mean.ravel() for f in _gradients(self.case, self.seen) if f.mean is not None]
        return np.isclose(self.got.reshape(-1, 1), np.concatenate(means), *self.tolerance).any(axis=1).all()

    # What sentences show.

    first, second = property(lambda self: self.shared[0]), property(lambda self: self.shared[1])
    wrong_gradients = property(lambda self: named(sorted(kind.name for kind in self.wrong), "gradient"))
    at = property(lambda self: int(np.flatnonzero(~np.isclose(self.got, self.mean, *self.tolerance))[0]))
    wanted = property(lambda self: repr(float(self.mean.flat[self.at])))

    @property
    def among(self) -> str:
        return f" ({named(self.having)} had one)" if len(self.having) < self.size else ""

    @property
    def place(self) -> str:
        index = tuple(map(int, np.unravel_index(self.at, self.shape)))
        return f" at {index}" if index and (self.case.drawn or self.at) else ""

    @property
    def number(self) -> str:
        """The first wrong number, and whose gradients it is made of: in the first place rank r's is BASE ** r."""
        value = float(self.got.flat[self.at])
        for total, over in ((value, ""), (value * self.size, f", over {self.size}")):
            whole = np.isfinite(total) and abs(total - round(total)) < 1e-6
            times = counts(round(total), self.size) if whole else None
            if times and max(times) == 1 and self.size > 1 and not (self.at or self.case.drawn):
                return f"{value!r}, which is {members(round(total), self.size)}{over}"
        return repr(value)


def _gradients(case: ParameterSet, seen: Sequence[CallSeen]) -> list[Facts]:
    """Facts of all parameters on all ranks."""
    everyone = []
    for kind, rank in itertools.product(case.parameters, range(len(seen))):
        before, after = [f.before.gradients[kind.name] for f in seen], [f.after.gradients[kind.name] for f in seen]
        tolerance = 32 * torch.finfo(kind.dtype).eps
        everyone.append(Facts(rank, kind.name, before, after, (tolerance, tolerance), kind, case, seen))
    return everyone


def _judge(case: ParameterSet, seen: Sequence[CallSeen]) -> Finding | None:
    values = [
        Gradient(rank, name, [f.before.values[name] for f in seen], [f.after.values[name] for f in seen], (1e-5, 1e-6))
        for rank, name in itertools.product(range(len(seen)), seen[0].before.values)
    ]
    everyone = _gradients(case, seen)
    rows = {f"{kind.name}.grad": [f.after.gradients[kind.name] for f in seen] for kind in case.parameters}
    return judge(KEPT, *values) or judge(SHAPES, *everyone) or judge(MEANS, *everyone) or same_bits(rows)


# -- what is said --

SAME = (
    "All ranks must make the same sums in the same order, for the same parameters, also where a gradient is None on "
    "one of them: it counts as zeros there."
)
LEAVE_PARAMETERS = "Gradients are averaged here, p.grad; p and p.data are the parameter itself. The optimizer moves it."

KEPT = [
    Test(
        "a buffer changed",
        lambda f: not f.kept and f.name == BUFFER,
        "{name} to keep its value on rank {rank}",
        "from {own_shown} to {shown}",
        "A buffer is no parameter, and has no gradient: leave it alone.",
    ),
    Test(
        "a parameter changed",
        lambda f: not f.kept,
        "{name} to keep its value on rank {rank}",
        "from {own_shown} to {shown}",
        [
            Rule("averaged", lambda f: f.right(f.got), f"That is an average of parameters. {LEAVE_PARAMETERS}"),
            Rule("moved", always, LEAVE_PARAMETERS),
        ],
    ),
]
WHYS_NOT_NONE = [
    Rule(
        "frozen",
        lambda f: f.kind.frozen,
        "requires_grad is False: it is frozen. With a gradient of zeros, weight decay and momentum would move it.",
    ),
    Rule(
        "no rank has one",
        always,
        "No rank has a gradient for it, so it stays None. Zeros are something else: an optimizer passes None over, and "
        "with zeros weight decay and momentum still move the parameter.",
    ),
]
WHYS_NONE = [
    Rule(
        "lost",
        lambda f: f.own is not None,
        "There was a gradient, and now it is None: the mean takes its place. None is what zero_grad leaves.",
    ),
    Rule(
        "none here",
        always,
        "A gradient that is None here, but not on another rank, counts as zeros, and becomes the mean as everywhere: "
        "p.grad = torch.zeros_like(p) before the sum. Else the copies of the model drift apart.",
    ),
]
TWICE = "Gradients were summed twice. Is what Allreduce has summed already added up, or summed, once more?"
WHYS_VALUE = [
    Rule(
        "shared memory",
        lambda f: f.name in f.shared,
        "The gradients of {first} and {second} lie in the same memory: what is written last is in both. Each needs "
        "memory of its own: a new array for each parameter, or a place of its own in one row.",
    ),
    Rule(
        "NaN",
        lambda f: np.isnan(f.got).any(),
        NAN,
    ),
    Rule(
        "float32",
        lambda f: f.rounded == "float32",
        "Right to 6 digits or so: float64 went through float32, or what has 32 bits through fewer. Sum each gradient "
        "in its own dtype.",
    ),
    Rule(
        "16 bits",
        lambda f: f.rounded,
        "Right to 2 or 3 digits: something went through 16 bits, by .half() or .bfloat16(). Sum each gradient in its "
        "own dtype.",
    ),
    Rule(
        "other places on some ranks",
        lambda f: f.good and f.permuted,
        "The same numbers, in other places: MPI sums memory as it lies, and a transposed tensor lies column by column. "
        "On all ranks the order must be one: .contiguous() before the sum, .copy_(...) after it.",
    ),
    Rule(
        "only where there was one",
        lambda f: f.own is None and f.good == f.having,
        "The ranks which had a gradient have the mean. This one, where it was None, needs it too: p.grad = ... also "
        "where there was none.",
    ),
    Rule(
        "Reduce",
        lambda f: f.good and f.unchanged,
        "{good_have} the mean; all ranks need it, to take the same step. Reduce brings it to one rank only: Allreduce.",
    ),
    Rule("some ranks", lambda f: f.good, "{good_have} the mean; all ranks need the same one, to take the same step."),
    Rule(
        "returned",
        lambda f: f.unchanged and f.returned,
        "Something was returned, and the gradient is as it was: the mean has to be in p.grad.",
    ),
    Rule(
        "no sum",
        lambda f: f.unchanged and not f.exchanged,
        "The gradient is as it was, and no collective call was made: comm.Allreduce sums over ranks.",
    ),
    Rule(
        "copy of what is not contiguous",
        lambda f: (
            f.unchanged
            and f.others
            and all(kind.memory != "rows" for kind in f.wrong)
            and all(kind.memory == "rows" for kind in f.others)
        ),
        "The sum went into a copy: .contiguous(), .reshape(-1) and .flatten() copy a tensor that is not contiguous, "
        "and give the tensor itself only where it is. Put the sum back: p.grad.copy_(...).",
    ),
    Rule(
        "copy in another dtype",
        lambda f: (
            f.unchanged
            and f.others
            and {kind.dtype for kind in f.wrong} == {f.kind.dtype}
            and all(kind.dtype != f.kind.dtype for kind in f.others)
        ),
        "The sum went into a copy: .double(), .float() and .astype() copy where the dtype is another one, and only "
        "there. Put the sum back: p.grad.copy_(...).",
    ),
    Rule(
        "shape ()",
        lambda f: f.unchanged and f.others and set(f.wrong) == {SCALE},
        "A gradient of shape () is left out: it is a parameter like any other.",
    ),
    Rule(
        "copy",
        lambda f: f.unchanged,
        "The gradient is as it was: the sum went into a copy. .clone(), .copy(), .double(), .tolist() and np.array(x) "
        "copy, and x = x + y or x = comm.allreduce(x) give a name to something new. p.grad.numpy() shares memory with "
        "p.grad; else put the mean back: p.grad.copy_(mean).",
    ),
    Rule(
        "tied parameter twice",
        lambda f: f.kind.twice and set(f.wrong) == {f.kind} and f.near(f.total, f.total * f.size, f.mean / f.size),
        "It is one parameter under two names, with one gradient, and was treated twice. model.parameters() and "
        "model.named_parameters() give it once; a walk over modules does not.",
    ),
    Rule(
        "sum of some",
        lambda f: f.near(f.total) and f.others,
        "That is the sum; other parameters' gradients are means: divide {wrong_gradients}, too.",
    ),
    Rule(
        "sum",
        lambda f: f.near(f.total),
        "That is the sum. The mean is asked, which does not grow with the number of ranks: divide by comm.size, into "
        "p.grad itself (p.grad /= comm.size).",
    ),
    Rule(
        "own, divided",
        lambda f: f.own is not None and f.near(f.own / f.size),
        "That is this rank's own gradient, divided by the number of ranks. The sum went elsewhere, or was never made: "
        "comm.Allreduce(MPI.IN_PLACE, x) leaves it in x, comm.Allreduce(x, y) in y.",
    ),
    Rule(
        "divided twice",
        lambda f: f.near(f.mean / f.size),
        "Divided by the number of ranks twice. Once is enough, before the sum or after it.",
    ),
    Rule(
        "divided by ranks that have one",
        lambda f: f.near(f.total / len(f.having)),
        "Divided by the number of ranks that have a gradient. One that is None counts as zeros: divide by {size}.",
    ),
    Rule("summed twice", lambda f: f.near(f.total * f.size, f.mean + f.total, 2 * f.mean), TWICE),
    Rule(
        "another operation",
        lambda f: f.near(*[combine(f.had, axis=0) for combine in (np.max, np.min, np.prod)]),
        "The ranks' gradients were put together by something else than a sum: op=MPI.SUM, and divide.",
    ),
    Rule(
        "added",
        lambda f: f.own is not None and f.near(f.own + f.mean, f.own + f.total),
        "The sum was added to the gradient that was there: put it in its place, p.grad.copy_(...) or p.grad = ...",
    ),
    Rule(
        "other places",
        lambda f: f.permuted,
        "The right numbers in wrong places: a transposed tensor lies in memory column by column. .contiguous() before "
        "the sum, and .copy_(...) after it, keep numbers in their places.",
    ),
    Rule(
        "mixed",
        lambda f: f.case.drawn or f.misplaced,
        f"Are numbers in other places than they belong, or in other orders on different ranks? {SAME} Memory of a "
        "tensor that is not contiguous lies in another order than its rows.",
    ),
    Rule("else", always, f"The mean is the sum of all ranks' gradients, over the number of ranks. {SAME}"),
]
MEANS = [
    Test(
        "not None",
        lambda f: f.mean is None and f.got is not None,
        "{name}.grad on rank {rank} to stay None, as on all ranks",
        "{shown}",
        WHYS_NOT_NONE,
    ),
    Test(
        "None",
        lambda f: f.mean is not None and f.got is None,
        "{name}.grad on rank {rank} to be the mean over all ranks{among}",
        "None",
        WHYS_NONE,
    ),
    Test(
        "value",
        lambda f: f.rank not in f.good,
        "{name}.grad on rank {rank}{place} to be the mean over all ranks{among}, {wanted}",
        "{number}",
        WHYS_VALUE,
    ),
]
