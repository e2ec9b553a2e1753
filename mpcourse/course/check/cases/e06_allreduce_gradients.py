"""What e06_allreduce_gradients is asked: means of gradients, for parameters of every kind, one kind after the other."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Case, all_on_real, all_on_virtual, same_bits
from mpcourse.course.check.facts import means
from mpcourse.course.check.facts.gradients import Gradient, Rows, by_rank, each, gradients_of, values_of
from mpcourse.course.check.facts.sums import BASE, counts, members
from mpcourse.course.check.rules import Finding, Rule, Test, Whys, judge
from mpcourse.virtual.ranks.comm import VirtualComm

NAME = "allreduce_gradients"
BUFFER = "running_mean"

# -- inputs --


@dataclass(frozen=True)
class Kind:
    """A parameter.

    having: by rank and size, whether a rank has a gradient. memory: "rows", or how else its numbers lie. twice: under
    a second name, too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float64
    frozen: bool = False
    having: Callable[[int, int], bool] = lambda rank, size: True
    memory: str = "rows"
    twice: bool = False

    dense = property(lambda self: self.memory == "rows")
    tolerance = property(lambda self: (32 * torch.finfo(self.dtype).eps,) * 2)

    def laid(self, numbers: Any) -> torch.Tensor:
        """Return a tensor of this dtype, whose numbers lie in memory as `memory` says."""
        x = torch.from_numpy(np.asarray(numbers)).to(self.dtype)
        if self.memory == "columns":
            return x.t().contiguous().t()
        return x.contiguous(memory_format=torch.channels_last) if self.memory == "channels last" else x

    def multiples(self, rank: int) -> np.ndarray:
        """Return multiples of BASE ** rank, which tell whose numbers are in a sum.

        They differ in neighbouring places, and 16 bits round their sums up as well as down.
        """
        return (1 + 10 * np.arange(np.prod(self.shape, dtype=int)) % 13).reshape(self.shape) * float(BASE**rank)


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
class ParameterSet(Case):
    """A model's parameters. hint: as `Case.stumbled`. seed: of gradients; None: they are `multiples`."""

    parameters: tuple[Kind, ...]
    what: str
    hint: str = ""
    seed: int | None = None

    def model(self, rank: int, size: int) -> nn.Module:
        """Make a rank's model and run backward."""
        random = np.random.default_rng([rank, size, self.seed or 0])
        model, loss = nn.Module(), torch.zeros((), dtype=torch.float64)
        for i, kind in enumerate(self.parameters):
            p = nn.Parameter(kind.laid(np.full(kind.shape, i + rank / 8)), requires_grad=not kind.frozen)
            for name in (kind.name, f"{kind.name}_again")[: 1 + kind.twice]:
                model.register_parameter(name, p)
            gradient = kind.laid(kind.multiples(rank) if self.seed is None else random.standard_normal(kind.shape))
            if kind.having(rank, size):
                for _ in range(1 + kind.twice):  # each use adds its part
                    loss = loss + (p * (gradient / (1 + kind.twice))).sum().double()
        model.register_buffer(BUFFER, torch.full((3,), rank + 0.5))
        if loss.requires_grad:
            loss.backward()
        return model

    def program(self, own: Answer, comm: Any) -> "Seen":
        model = self.model(comm.rank, comm.size)
        held = {kind.name: model.get_parameter(kind.name) for kind in self.parameters}
        all_values = held | dict(model.named_buffers())
        values, given = values_of(all_values), gradients_of(held)
        made = comm.world.collectives[comm.me] if isinstance(comm, VirtualComm) else [""]  # real ranks do not tell
        returned = own.call(NAME, comm, model) is not None
        there = {name: p.grad.detach().numpy() for name, p in held.items() if p.grad is not None}
        pairs = (pair for pair in itertools.combinations(there, 2) if np.shares_memory(there[pair[0]], there[pair[1]]))
        return Seen(values, values_of(all_values), given, gradients_of(held), returned, len(made) > 0, next(pairs, ()))

    def gradients(self, seen: Sequence["Seen"]) -> "list[Facts]":
        """Return facts of all parameters on all ranks."""
        given, got = [s.given for s in seen], [s.results for s in seen]
        return [
            Facts(rank, kind.name, by_rank(given, kind.name), by_rank(got, kind.name), kind.tolerance, self, seen, kind)
            for kind in self.parameters
            for rank in range(len(seen))
        ]

    def findings(self, seen: Sequence["Seen"]) -> Iterator[Finding | None]:
        yield judge(KEPT, *each(Gradient, [s.before for s in seen], [s.after for s in seen], (1e-5, 1e-6)))
        yield judge(means.SHAPES, *self.gradients(seen))
        yield judge(MEANS, *self.gradients(seen))
        yield same_bits({f"{kind.name}.grad": [s.results[kind.name] for s in seen] for kind in self.parameters})

    def stumbled(self, size: int) -> tuple[str, str] | None:
        return (f"the mean over {counted(size, 'rank')}, of {self.what}", self.hint) if self.hint else None


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
        seed=0,
    ),
)
check = functools.partial(all_on_real, cases=(CASES[0], CASES[-1], replace(CASES[-1], seed=2)))
check_virtually = functools.partial(all_on_virtual, cases=CASES)

# -- facts --


@dataclass(frozen=True)
class Seen:
    """What a call did on one rank.

    before, after: values of parameters and buffers. given, results: gradients, before and after. exchanged: whether it
    made collective calls, as far as is known. shared: two parameters whose gradients lie in the same memory afterwards.
    """

    before: Rows
    after: Rows
    given: Rows
    results: Rows
    returned: bool
    exchanged: bool
    shared: tuple[str, ...]


@dataclass(frozen=True)
class Facts(Gradient):
    """The gradient of a parameter of `kind`. seen: by rank, what the call did there."""

    case: ParameterSet
    seen: Sequence[Seen]
    kind: Kind

    mine = property(lambda self: self.seen[self.rank])
    wrong = property(lambda self: [f.kind for f in self.case.gradients(self.seen) if len(f.good) < f.size])
    means = property(lambda self: [f.mean.ravel() for f in self.case.gradients(self.seen) if f.mean is not None])
    reached = property(lambda self: [kind for kind in self.case.parameters if not kind.frozen])
    others = property(lambda self: [kind for kind in self.reached if kind not in self.wrong])  # those that are right

    @property
    def permuted(self) -> bool:
        got, mean = np.sort(self.got, axis=None), np.sort(self.mean, axis=None)
        return not self.kind.dense and np.allclose(got, mean, *self.tolerance)

    @property
    def misplaced(self) -> bool:
        """Whether all numbers are means, of whatever parameters."""
        return np.isclose(self.got.reshape(-1, 1), np.concatenate(self.means), *self.tolerance).any(axis=1).all()

    # What sentences show.

    wrong_gradients = property(lambda self: named(sorted({kind.name for kind in self.wrong}), "gradient"))
    at = property(lambda self: int(np.flatnonzero(~np.isclose(self.got, self.mean, *self.tolerance))[0]))
    wanted = property(lambda self: repr(float(self.mean.flat[self.at])))
    among = property(lambda self: f" ({named(self.having)} had one)" if len(self.having) < self.size else "")

    @property
    def place(self) -> str:
        index = tuple(map(int, np.unravel_index(self.at, self.shape)))
        return f" at {index}" if index and (self.case.seed is not None or self.at) else ""

    @property
    def number(self) -> str:
        """Show the first wrong number, and whose gradients are in it: in the first place rank r's is BASE ** r."""
        value = float(self.got.flat[self.at])
        for total, over in ((value, ""), (value * self.size, f", over {self.size}")):
            whole = np.isfinite(total) and abs(total - round(total)) < 1e-6
            times = counts(round(total), self.size) if whole else None
            if times and max(times) == 1 and self.size > 1 and not (self.at or self.case.seed is not None):
                return f"{value!r}, which is {members(round(total), self.size)}{over}"
        return repr(value)


# -- what is said --

SAME = (
    "All ranks must make the same sums in the same order, for the same parameters, also where a gradient is None on "
    "one of them: it counts as zeros there."
)
LEAVE_PARAMETERS = "Gradients are averaged here, p.grad; p and p.data are the parameter itself. The optimizer moves it."

KEPT = [
    Test(
        "a value changed",
        lambda f: not f.kept,
        "{name} to keep its value on rank {rank}",
        "from {own_shown} to {shown}",
        [
            Rule(
                "buffer", lambda f: f.name == BUFFER, "A buffer is no parameter, and has no gradient: leave it alone."
            ),
            Rule("averaged", lambda f: f.right(f.got), f"That is an average of parameters. {LEAVE_PARAMETERS}"),
            LEAVE_PARAMETERS,
        ],
    )
]
WHYS_VALUE: Whys = [
    Rule(
        "shared memory",
        lambda f: f.name in f.mine.shared,
        "The gradients of {mine.shared[0]} and {mine.shared[1]} lie in the same memory: what is written last is in "
        "both. Each needs memory of its own: a new array for each parameter, or a place of its own in one row.",
    ),
    *means.NUMBERS,
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
    means.REDUCED,
    Rule("some ranks", lambda f: f.good, "{good_have} the mean; all ranks need the same one, to take the same step."),
    Rule(
        "returned",
        lambda f: f.unchanged and f.mine.returned,
        "Something was returned, and the gradient is as it was: the mean has to be in p.grad.",
    ),
    Rule(
        "no sum",
        lambda f: f.unchanged and not f.mine.exchanged,
        "The gradient is as it was, and no collective call was made: comm.Allreduce sums over ranks.",
    ),
    Rule(
        "copy of what is not contiguous",
        lambda f: f.unchanged and f.others and not any(k.dense for k in f.wrong) and all(k.dense for k in f.others),
        "The sum went into a copy: .contiguous(), .reshape(-1) and .flatten() copy a tensor that is not contiguous, "
        "and give the tensor itself only where it is. Put the sum back: p.grad.copy_(...).",
    ),
    Rule(
        "copy in another dtype",
        lambda f: f.unchanged and f.others and all((k in f.wrong) == (k.dtype == f.kind.dtype) for k in f.reached),
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
    *means.FACTORS,
    Rule(
        "summed twice",
        lambda f: f.near(f.total * f.size, f.mean + f.total, 2 * f.mean),
        "Gradients were summed twice. Is what Allreduce has summed already added up, or summed, once more?",
    ),
    Rule(
        "another operation",
        lambda f: f.near(*[combine(f.had, axis=0) for combine in (np.max, np.min, np.prod)]),
        "The ranks' gradients were put together by something else than a sum: op=MPI.SUM, and divide.",
    ),
    Rule(
        "other places",
        lambda f: f.permuted,
        "The right numbers in wrong places: a transposed tensor lies in memory column by column. .contiguous() before "
        "the sum, and .copy_(...) after it, keep numbers in their places.",
    ),
    Rule(
        "mixed",
        lambda f: f.case.seed is not None or f.misplaced,
        f"Are numbers in other places than they belong, or in other orders on different ranks? {SAME} Memory of a "
        "tensor that is not contiguous lies in another order than its rows.",
    ),
    f"The mean is the sum of all ranks' gradients, over the number of ranks. {SAME}",
]
MEANS = [
    Test(
        "not None",
        lambda f: f.mean is None and f.got is not None,
        "{name}.grad on rank {rank} to stay None, as on all ranks",
        "{shown}",
        [
            Rule(
                "frozen",
                lambda f: f.kind.frozen,
                "requires_grad is False: it is frozen. With a gradient of zeros, weight decay and momentum would move "
                "it.",
            ),
            means.NO_RANK_HAS_ONE,
        ],
    ),
    Test(
        "None",
        lambda f: f.mean is not None and f.got is None,
        "{name}.grad on rank {rank} to be the mean over all ranks{among}",
        "None",
        [
            Rule(
                "lost",
                lambda f: f.own is not None,
                "There was a gradient, and now it is None: the mean takes its place. None is what zero_grad leaves.",
            ),
            means.COUNTS_AS_ZEROS,
        ],
    ),
    Test(
        "value",
        lambda f: f.rank not in f.good,
        "{name}.grad on rank {rank}{place} to be the mean over all ranks{among}, {wanted}",
        "{number}",
        WHYS_VALUE,
    ),
]
