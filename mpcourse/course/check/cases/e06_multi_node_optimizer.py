"""What e06_multi_node_optimizer is asked: to train on many ranks as one process would with all their examples."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import nn

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual, same_bits
from mpcourse.course.check.facts.gradients import NAN, Gradient, Row
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import OnVirtualRank
from mpcourse.course.check.wrong import Wrong

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "MultiNodeOptimizer"
BATCH = 4  # examples a rank
SLOWER = {1: 0.25, 2: 2.0}  # before these steps the learning rate is multiplied
STEPS = 3
TOLERANCE = (1e-9, 1e-11)

# The first optimizer imports much of torch. Now, before time counts that a rank may compute.
torch.optim.Adam([nn.Parameter(torch.zeros(1))]).step()

# -- inputs --


@dataclass(frozen=True)
class Training:
    """adam: the optimizer; else SGD with momentum. decay: its weight decay. missing: whether gradients are None on some
    ranks, and one on all. groups: two of them, the second with a frozen parameter, too. turned: whether one parameter
    lies in memory in another order than its shape says. single: whether all are float32. seed: of all numbers.
    """

    what: str
    adam: bool = False
    decay: float = 0.0
    missing: bool = False
    groups: bool = False
    turned: bool = False
    single: bool = False
    seed: int = 0


MISSING = (
    "A parameter may have a gradient on one rank and None on another, or on none at all. All ranks must sum the same "
    "parameters in the same order: where it is None it counts as zeros. Find out together who has one, before the sums."
)
GROUPS = (
    "An optimizer has one group or several, and a frozen parameter in them has no gradient: go through all groups, and "
    "pass over what no rank has a gradient for."
)
MADE = Training("making one", groups=True)
TRAININGS = (  # why an answer that was right until then stumbles over it; numbers of ranks
    (Training("momentum SGD"), "", SIZES),
    (Training("Adam", adam=True), "", (3, 2)),
    (Training("SGD with two groups, one of them with a frozen parameter", groups=True), GROUPS, (3,)),
    (Training("SGD where gradients are missing", missing=True, decay=0.1), MISSING, (3, 1)),
    (Training("Adam with all of this", adam=True, missing=True, groups=True, decay=0.1), MISSING, SIZES),
)
COPIES = (  # what is right where a method hands out the tensor itself, and goes wrong where it makes a copy; steps
    (Training("making one", turned=True), 0),
    (Training("making one", single=True), 0),
    (Training("SGD with a transposed parameter", turned=True), STEPS),
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    others = turned(comm)
    for ranks in (comm, others):
        for training in (TRAININGS[0][0], TRAININGS[-1][0]):
            alone = ranks is others and comm.rank == comm.size - 1
            own = replace(training, seed=int(alone))
            on_real(answer, ranks, _program(own), functools.partial(_judge, own, STEPS))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for size in SIZES:
        on_virtual(answer, comm, size, _program(MADE, 0), functools.partial(_judge, MADE, 0))
    for training, hint, sizes in TRAININGS:
        for size in sizes:
            trained(training, size)  # imports what torch.optim needs, before any rank is timed
            stumbled = (f"{training.what} on {counted(size, 'rank')}", hint) if hint else None
            judged = functools.partial(_judge, training, STEPS)
            on_virtual(answer, comm, size, _program(training), judged, stumbled)
    for training, steps in COPIES:
        try:
            on_virtual(answer, comm, 3, _program(training, steps), functools.partial(_judge, training, steps))
        except OnVirtualRank as error:
            if isinstance(error.error, Wrong):  # an answer may refuse such parameters: that misleads no learner
                raise
    on_virtual(answer, comm, 3, _zero_alone, lambda seen: None, ALONE)


class Model(nn.Module):
    """Two layers; `side` only counts where it is asked for, `idle` nowhere, `fixed` is frozen. All float64."""

    def __init__(self, seed: int, training: Training) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 1)
        self.side, self.idle = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(2))
        self.fixed = nn.Parameter(torch.zeros(4), requires_grad=False)
        if training.turned:
            self.first.weight = nn.Parameter(torch.zeros(3, 4).t())
        if not training.single:
            self.double()
        random = np.random.default_rng([seed, training.seed])
        for p in self.parameters():
            p.data.copy_(torch.from_numpy(random.standard_normal(p.shape)))
        if not training.groups:  # then no optimizer holds it, and nobody makes it alike on all ranks
            self.fixed.data.copy_(torch.arange(1, 5) / 4)

    def forward(self, x: torch.Tensor, side: bool) -> torch.Tensor:
        hidden = torch.tanh(self.first(x)) * self.fixed
        return self.second(hidden + self.side.sin() if side else hidden)


def _inner(model: Model, training: Training) -> torch.optim.Optimizer:
    """The optimizer to be wrapped."""
    own = {p: name for name, p in model.named_parameters() if training.missing or name not in ("side", "idle")}
    late = [p for p, name in own.items() if name.startswith("second")] + [model.fixed]
    groups: list[dict[str, Any]] = [{"params": [p for p, name in own.items() if name != "fixed"]}]
    if training.groups:
        groups = [{"params": [p for p in own if not any(p is q for q in late)]}, {"params": late}]
    if training.adam:
        return torch.optim.Adam(groups, lr=0.05, weight_decay=training.decay)
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=training.decay)


def _loss(model: Model, training: Training, step: int, rank: int, size: int) -> torch.Tensor:
    """A rank's own: the mean over its examples."""
    random = np.random.default_rng([step, rank, training.seed])
    x, y = torch.from_numpy(random.standard_normal((BATCH, 3))), torch.from_numpy(random.standard_normal((BATCH, 1)))
    side = training.missing and rank == (step + 1) % size and step != 2  # in one step no rank has it
    return nn.functional.mse_loss(model(x, side), y)


# -- observation --

Values = dict[str, np.ndarray]
Grads = dict[str, Row]


@dataclass
class Seen:
    """On one rank. kinds: by name, the types of what a training loop takes from the optimizer. start, made: parameters
    before and after it was made. rates: learning rates, before and after. left: parameters with a gradient after
    zero_grad, by step; zeros: those of them where it is zeros. had: the gradients before each step, after: those after
    it. values: parameters after it.
    """

    kinds: dict[str, str]
    start: Values
    made: Values
    rates: tuple[list[float], list[float]]
    left: list[list[str]] = field(default_factory=list)
    zeros: list[list[str]] = field(default_factory=list)
    had: list[Grads] = field(default_factory=list)
    after: list[Grads] = field(default_factory=list)
    values: list[Values] = field(default_factory=list)


def _program(training: Training, steps: int = STEPS) -> Program:
    """So many steps of it, by the learner's optimizer, on one rank. None if it lacks what a step needs."""

    def run(own: Answer, comm: Any) -> Seen:
        model = Model(comm.rank, training)
        inner = _inner(model, training)
        mine = _held(inner, model)
        start, rates = _values(mine), _rates(inner)
        optimizer = own.call(NAME, inner, comm)
        seen = Seen(_kinds(optimizer), start, _values(mine), (rates, _rates(inner)))
        for step in range(steps if seen.kinds == KINDS else 0):
            own.run(optimizer.zero_grad, "optimizer.zero_grad")
            seen.left.append([name for name, p in mine.items() if p.grad is not None])
            seen.zeros.append([name for name, p in mine.items() if p.grad is not None and not p.grad.any()])
            _loss(model, training, step, comm.rank, comm.size).backward()
            seen.had.append(_gradients(mine))
            for group in optimizer.param_groups:  # as a scheduler does
                group["lr"] *= SLOWER.get(step, 1.0)
            own.run(optimizer.step, "optimizer.step")
            seen.after.append(_gradients(mine))
            seen.values.append(_values(mine))
        return seen

    return run


KINDS = {"zero_grad": "method", "step": "method", "param_groups": "list of dicts"}


def _kinds(optimizer: Any) -> dict[str, str]:
    """The types of what a training loop takes from an optimizer; "" for what it does not have."""
    kinds = {}
    for name in KINDS:
        value = getattr(optimizer, name, None)
        kinds[name] = "method" if callable(value) else type(value).__name__ if hasattr(optimizer, name) else ""
        if isinstance(value, list) and value and all(isinstance(group, dict) for group in value):
            kinds[name] = "list of dicts"
    return kinds


def _zero_alone(own: Answer, comm: Any) -> None:
    """One rank calls zero_grad once more than the others."""
    training = Training("zero_grad on one rank")
    optimizer = own.call(NAME, _inner(Model(comm.rank, training), training), comm)
    if comm.rank == comm.size - 1:
        own.run(optimizer.zero_grad, "optimizer.zero_grad")


def _held(inner: torch.optim.Optimizer, model: Model) -> dict[str, nn.Parameter]:
    """The parameters that the optimizer holds, by name."""
    known = {id(p) for group in inner.param_groups for p in group["params"]}
    return {name: p for name, p in model.named_parameters() if id(p) in known}


def _values(parameters: dict[str, nn.Parameter]) -> Values:
    return {name: p.detach().numpy().copy() for name, p in parameters.items()}


def _gradients(parameters: dict[str, nn.Parameter]) -> Grads:
    return {name: None if p.grad is None else p.grad.detach().numpy().copy() for name, p in parameters.items()}


def _rates(inner: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in inner.param_groups]


# -- the oracle, and what misconceptions make of a training --


def right(grads: Sequence[Row], rank: int) -> Row:
    """The mean over ranks, where a missing gradient counts as zeros."""
    return Gradient(rank, "", grads, (), TOLERANCE).mean


@dataclass(frozen=True)
class Way:
    """How gradients are put together, and what else is done: the right way, or one that somebody may take for it.

    mean: of all ranks' gradients, None among them, and the rank that asks: what the optimizer is given there. average:
    of all parameters after each step. slower: whether changes of the learning rate count. steps: how many the wrapped
    optimizer makes each time. only: the number of groups whose gradients are averaged; None: all. forgets: whether what
    the wrapped optimizer keeps of earlier steps is lost. apart: whether ranks come to differ; else one model stands for
    all of them.
    """

    mean: Callable[[Sequence[Row], int], Row] = right
    average: bool = False
    slower: bool = True
    steps: int = 1
    only: int | None = None
    forgets: bool = False
    apart: bool = False


@functools.cache
def trained(training: Training, size: int, way: Way = Way(), steps: int = STEPS) -> list[list[Values]]:  # noqa: B008
    """Parameters after each step, by step and rank, if ranks did it that way from rank 0's parameters on."""
    models = [Model(0, training) for _ in range(size if way.apart else 1)]
    inners = [_inner(model, training) for model in models]
    mine = [_held(inner, model) for inner, model in zip(inners, models, strict=True)]
    history = []
    for step in range(steps):
        own = []
        for rank in range(size):
            at = rank if way.apart else 0
            inners[at].zero_grad()
            _loss(models[at], training, step, rank, size).backward()
            own.append(_gradients(mine[at]))
        for rank in range(len(models)):
            averaged = {id(p) for group in inners[rank].param_groups[: way.only] for p in group["params"]}
            for name, p in mine[rank].items():
                g = way.mean([grads[name] for grads in own], rank) if id(p) in averaged else own[rank][name]
                p.grad = None if g is None else torch.from_numpy(np.broadcast_to(g, p.shape).copy())
            for group in inners[rank].param_groups:
                group["lr"] *= SLOWER.get(step, 1.0) if way.slower else 1.0
            if way.forgets:
                inners[rank].state.clear()
            for _ in range(way.steps):
                inners[rank].step()
        if way.average:
            for name in mine[0]:
                average = torch.stack([parameters[name].data for parameters in mine]).mean(0)
                for parameters in mine:
                    parameters[name].data.copy_(average)
        after = [_values(parameters) for parameters in mine]
        history.append(after if way.apart else after * size)
    return history


def scaled(scale: Callable[[Sequence[Row]], float]) -> Way:
    """A way in which ranks step by the mean, times scale(gradients)."""

    def mean(grads: Sequence[Row], rank: int) -> Row:
        its = right(grads, rank)
        return None if its is None else its * scale(grads)

    return Way(mean)


def own_divided(grads: Sequence[Row], rank: int) -> Row:
    own = grads[rank]
    return None if own is None else own / len(grads)


def or_zeros(grads: Sequence[Row], rank: int) -> Row:
    """The mean; zeros, of the right shape by broadcasting, where no rank has a gradient."""
    mean = right(grads, rank)
    return np.zeros(1) if mean is None else mean


OWN = Way(lambda grads, rank: grads[rank], apart=True)

# -- facts --


@dataclass(frozen=True)
class Interface:
    """What a training loop takes from what the learner's class makes. asked, got: two names, and the types of both."""

    rank: int
    kinds: dict[str, str]

    missing = property(lambda self: next((name for name, kind in self.kinds.items() if not kind), None))
    no_method = property(lambda self: next((n for n in ("zero_grad", "step") if self.kinds[n] != "method"), None))
    type_of_no_method = property(lambda self: self.kinds[self.no_method])
    groups = property(lambda self: self.kinds["param_groups"])


@dataclass(frozen=True)
class Start(Gradient):
    """A parameter before and after the optimizer was made. everyone: all parameters, on all ranks."""

    training: Training
    seen: Sequence[Seen]

    differs = property(lambda self: not _same(self.got, self.given[0]))
    wanted = property(lambda self: Gradient(0, self.name, self.given, self.given, TOLERANCE).shown)
    roots = property(lambda self: [r for r, start in enumerate(self.given) if _same(self.got, start)])
    root = property(lambda self: self.roots[0])
    wrong = property(
        lambda self: {
            name
            for seen in self.seen
            for name, first in self.seen[0].start.items()
            if not _same(seen.made[name], first)
        }
    )
    wrong_parameters = property(lambda self: named(sorted(self.wrong), "parameter"))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(a, b)


@dataclass(frozen=True)
class Zeroed:
    """The gradients that a call of zero_grad has left."""

    rank: int
    number: int
    left: Sequence[str]
    zeros: Sequence[str]

    left_names, zeros_names = property(lambda self: ", ".join(self.left)), property(lambda self: ", ".join(self.zeros))


@dataclass(frozen=True)
class Stepped(Gradient):
    """A parameter after a step, whose gradients were `given` before it and are `results` afterwards."""

    training: Training
    seen: Sequence[Seen]
    step: int

    mine = property(lambda self: self.seen[self.rank])
    value = property(lambda self: self.mine.values[self.step][self.name])
    want = property(lambda self: trained(self.training, self.size)[self.step][0][self.name])
    wrong = property(lambda self: not _near(self.value, self.want))

    @property
    def moved(self) -> bool:
        before = self.mine.values[self.step - 1] if self.step else self.mine.made
        return any(not np.array_equal(self.mine.values[self.step][name], before[name]) for name in before)

    def went(self, way: Way) -> bool:
        """Whether all ranks' parameters until now are those of a training that goes this way."""
        steps = zip(trained(self.training, self.size, way, self.step + 1), range(self.step + 1), strict=True)
        pairs = [(row, seen.values[step]) for rows, step in steps for row, seen in zip(rows, self.seen, strict=True)]
        return all(_near(got[name], row[name]) for row, got in pairs for name in row)

    @property
    def means_after(self) -> bool:
        """Whether all gradients after this step are means over ranks."""
        everyone = [
            Stepped(0, name, *_around(self.seen, self.step, name), TOLERANCE, self.training, self.seen, self.step)
            for name in self.mine.values[0]
        ]
        return all(len(f.good) == f.size for f in everyone if f.had)

    # What sentences show.

    number = property(lambda self: self.step + 1)
    others = property(
        lambda self: [r for r, s in enumerate(self.seen) if not _same(s.values[self.step][self.name], self.value)]
    )
    other_ranks = property(lambda self: named(self.others))
    rates = property(lambda self: self.mine.rates)
    rate = property(lambda self: f"{self.rates[0][0]:g}")
    rate_now = property(lambda self: f"{self.rates[1][0]:.3g}")
    alone = property(lambda self: f"{self.size} ranks with {BATCH} examples each" if self.size > 1 else "a rank alone")
    at = property(
        lambda self: (
            np.argwhere(~np.isclose(self.value, self.want, *TOLERANCE))[0]
            if self.value.shape == self.want.shape
            else [0]
        )
    )
    place = property(lambda self: f"{self.name}{[int(i) for i in self.at]}")
    wanted = property(lambda self: repr(self.want[tuple(self.at)].item()))
    found = property(lambda self: repr(self.value[tuple(self.at)].item()))


def _near(got: np.ndarray, want: np.ndarray) -> bool:
    return got.shape == want.shape and np.allclose(got, want, *TOLERANCE)


def _around(seen: Sequence[Seen], step: int, name: str) -> tuple[list[Row], list[Row]]:
    """A parameter's gradients before and after a step, by rank."""
    return [s.had[step][name] for s in seen], [s.after[step][name] for s in seen]


def _judge(training: Training, steps: int, seen: Sequence[Seen]) -> Finding | None:
    ranks, names = range(len(seen)), [*seen[0].start]
    starts = [
        Start(r, name, [s.start[name] for s in seen], [s.made[name] for s in seen], TOLERANCE, training, seen)
        for r in ranks
        for name in names
    ]
    finding = judge(STARTS, *starts)
    if finding or not steps:
        return finding
    if finding := judge(INTERFACE, *[Interface(r, s.kinds) for r, s in enumerate(seen)]):
        return finding
    for step in range(steps):
        zeroed = [Zeroed(r, step + 1, s.left[step], s.zeros[step]) for r, s in enumerate(seen)]
        stepped = [
            Stepped(r, name, *_around(seen, step, name), TOLERANCE, training, seen, step)
            for r in ranks
            for name in names
        ]
        if finding := judge(ZEROED, *zeroed) or judge(STEPPED, *stepped):
            return finding
    return same_bits({name: [s.values[-1][name] for s in seen] for name in names})


# -- what is said --

ALONE = (
    "rank 2 to come back from zero_grad(), which it calls alone",
    "A rank may call zero_grad on its own: it concerns this rank's gradients, and needs no message and no Barrier.",
)
START = "{name} on rank {rank} to be that of rank 0 when the optimizer is made, {wanted}"
STARTS = [
    Test(
        "a copy was made",
        lambda f: f.differs and f.kept and f.training.turned,
        START,
        "{shown}, as it was",
        "This parameter is transposed, so that contiguous(), reshape(-1) and flatten() make a copy of it: that became "
        "rank 0's, and the parameter did not. Broadcast into a buffer, and write it in place: p.data.copy_(buffer).",
    ),
    Test(
        "a copy in another dtype was made",
        lambda f: f.differs and f.kept and f.training.single,
        START,
        "{shown}, as it was",
        "This parameter is float32, so that double() makes a copy of it: that became rank 0's, and the parameter did "
        "not. Broadcast it as it is, or write what came in place: p.data.copy_(buffer).",
    ),
    Test(
        "another start",
        lambda f: f.differs,
        START,
        "{shown}",
        [
            Rule("NaN", lambda f: np.isnan(f.got).any(), "NaN: was a buffer read that nobody wrote into?"),
            Rule(
                "frozen",
                lambda f: f.kept and f.wrong == {"fixed"},
                "A frozen parameter has a value, too, and the model computes with it: broadcast it like the others.",
            ),
            Rule(
                "some",
                lambda f: f.kept and f.wrong < set(f.seen[0].start),
                "Broadcast {wrong_parameters} too. Go through all groups of the optimizer.",
            ),
            Rule(
                "all",
                lambda f: f.kept,
                "Ranks begin with different models: broadcast rank 0's parameters, and write them in place, "
                "p.data.copy_(x). p = x gives a name to something else, and a copy that is broadcast changes nothing.",
            ),
            Rule("another root", lambda f: f.roots, "Those are rank {root}'s: root=0, on all ranks."),
            Rule(
                "mean",
                lambda f: f.near(f.mean),
                "That is the mean of all ranks' parameters. Rank 0's are asked: a mean of random starts is a poor "
                "start.",
            ),
            Rule(
                "rank 0 changed",
                lambda f: f.rank == 0,
                "Rank 0's own parameters are those that all get: there they stay as they are.",
            ),
            Rule(
                "else",
                always,
                "Parameters in another order, or a buffer that was not yet there? Broadcast one after the other, in "
                "place.",
            ),
        ],
    ),
]
SCHEDULER = "A scheduler sets the learning rate in optimizer.param_groups: hand on the wrapped optimizer's own list."
INTERFACE = [
    Test(
        "no groups",
        lambda f: f.missing == "param_groups",
        f"what {NAME} makes to have param_groups",
        f"none: {NAME} has no attribute 'param_groups'",
        SCHEDULER,
    ),
    Test(
        "missing",
        lambda f: f.missing,
        f"what {NAME} makes to have {{missing}}",
        f"none: {NAME} has no attribute '{{missing}}'",
        "A training loop calls optimizer.{missing}() in every step.",
    ),
    Test(
        "no method",
        lambda f: f.no_method,
        "optimizer.{no_method} to be a method",
        "a {type_of_no_method}",
        "Is it a property? {no_method}() is called.",
    ),
    Test(
        "a method of groups",
        lambda f: f.groups == "method",
        "optimizer.param_groups to be the wrapped optimizer's list of dicts",
        "a method: is @property missing?",
        SCHEDULER,
    ),
    Test(
        "no list",
        lambda f: f.groups != "list of dicts",
        "optimizer.param_groups to be the wrapped optimizer's list of dicts",
        "a {groups}",
        SCHEDULER,
    ),
]
ZEROED = [
    Test(
        "zeros",
        lambda f: f.zeros and f.zeros == f.left,
        "no gradients after zero_grad() in step {number}, on rank {rank}",
        "zeros for {zeros_names}",
        "zero_grad leaves None: what has no part in the next loss is then passed over. With zeros weight decay and "
        "momentum move it. The wrapped optimizer's own zero_grad() does that, without arguments.",
    ),
    Test(
        "left",
        lambda f: f.left,
        "no gradients after zero_grad() in step {number}, on rank {rank}",
        "those of {left_names} from the step before",
        "backward adds to what is there, so that each step would use all gradients so far: pass it on.",
    ),
]
WHYS_STEP = [
    Rule(
        "nothing moved",
        lambda f: not f.moved,
        "Nothing has moved: step has to call the wrapped optimizer's step, after gradients were averaged.",
    ),
    Rule(
        "NaN",
        lambda f: np.isnan(f.value).any(),
        NAN,
    ),
    Rule(
        "rounded",
        lambda f: f.got is not None and f.had and f.rounded,
        "The mean of gradients was rounded to {rounded} on its way: average gradients in the dtype that they have.",
    ),
    Rule(
        "mean in a copy",
        lambda f: f.training.turned and f.unchanged,
        "This gradient is transposed, so that contiguous(), reshape(-1) and flatten() make a copy of it: was that "
        "averaged and p.grad left as it was? Put the mean back into p.grad.",
    ),
    Rule(
        "old learning rate",
        lambda f: f.went(Way(slower=False)),
        "The learning rate was changed in optimizer.param_groups before this step, and the step was made with the old "
        "one: hand on the wrapped optimizer's own list, not a copy of it.",
    ),
    Rule(
        "mean after the step",
        lambda f: f.went(OWN) and f.means_after,
        "The mean was made after the step: each rank has moved by its own gradients, which .grad no longer shows. "
        "Average first, then step.",
    ),
    Rule(
        "own gradients",
        lambda f: f.went(OWN),
        "Each rank has stepped by its own gradients: average them over all ranks, into p.grad, before the step.",
    ),
    Rule(
        "sum",
        lambda f: f.went(scaled(len)),
        "That is a step by the sum of gradients, not by their mean: divide by the number of ranks. Else the learning "
        "rate grows with it.",
    ),
    Rule(
        "divided twice",
        lambda f: f.went(scaled(lambda grads: 1 / len(grads))),
        "Divided by the number of ranks twice. Once is enough.",
    ),
    Rule(
        "own gradients, divided",
        lambda f: f.went(Way(own_divided, apart=True)),
        "That is a step by each rank's own gradient, divided by the number of ranks: the sum over ranks is missing, or "
        "went into a copy.",
    ),
    Rule(
        "averaged parameters",
        lambda f: f.went(replace(OWN, average=True)),
        "Each rank has stepped by its own gradients, and then parameters were averaged. For plain SGD that comes to "
        "the same, for Adam it does not: twice the gradient is not twice the step. Average gradients, then step.",
    ),
    Rule(
        "rank 0's gradients",
        lambda f: f.went(Way(lambda grads, rank: grads[0])),
        "All ranks have stepped by rank 0's gradients: average those of all.",
    ),
    Rule(
        "first group",
        lambda f: f.went(Way(only=1, apart=True)),
        "Gradients of the first group were averaged, those of the others were not: go through all.",
    ),
    Rule(
        "two steps",
        lambda f: f.went(Way(steps=2)),
        "The wrapped optimizer has made two steps: once is enough, after gradients were averaged.",
    ),
    Rule(
        "no memory",
        lambda f: f.went(Way(forgets=True)),
        "That is a step without what the optimizer keeps of earlier ones: momentum, or Adam's averages. Call the "
        "wrapped optimizer's own step, always the same optimizer's, and leave its state alone.",
    ),
    Rule(
        "zeros for None",
        lambda f: f.went(Way(or_zeros)),
        "A gradient that no rank has was taken for zeros. None means that the optimizer passes the parameter over; "
        "with zeros weight decay and momentum move it.",
    ),
    Rule(
        "divided by ranks that have one",
        lambda f: f.went(scaled(lambda grads: len(grads) / sum(g is not None for g in grads))),
        "Divided by the number of ranks that have a gradient. One that is None counts as zeros: divide by comm.size.",
    ),
    Rule(
        "None stays None",
        lambda f: f.went(Way(lambda grads, rank: None if grads[rank] is None else right(grads, rank), apart=True)),
        "Where a gradient is None on this rank, but not on another, it becomes the mean, too: else this rank passes "
        "over a parameter that the others move.",
    ),
    Rule(
        "zeros in this step",
        lambda f: not f.had and f.got is not None,
        "No rank has a gradient for {name} in step {number}, and there it was given one of zeros, which weight decay "
        "and momentum turn into a step. Who has gradients differs from step to step: find out in each.",
    ),
    Rule(
        "another rate",
        lambda f: f.rates[0] != f.rates[1],
        "The learning rate was {rate}, and {rate_now} once the optimizer was made: it stays. Divide the sum of "
        "gradients: Adam's steps do not grow with it, and a smaller rate makes them smaller.",
    ),
    Rule(
        "ranks differ",
        lambda f: f.others,
        "Rank {rank} and {other_ranks} have different parameters now. From the same start, with the same gradients and "
        "the same learning rate, all ranks make the same step: do all of them have the mean?",
    ),
    Rule(
        "else",
        always,
        "All ranks made the same step, another one than one process. Is every gradient the sum over ranks, divided by "
        "their number, once, and has the wrapped optimizer made one step by it?",
    ),
]
STEPPED = [
    Test(
        "another step",
        lambda f: f.wrong,
        "{place} on rank {rank} after step {number} as in one process: {wanted}",
        "{found} ({training.what}, {alone})",
        WHYS_STEP,
    )
]
