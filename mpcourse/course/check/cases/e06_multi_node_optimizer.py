"""What e06_multi_node_optimizer is asked: to train on many ranks as one process would with all their examples."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import nn

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Case, all_on_real, all_on_virtual, on_virtual, same_bits
from mpcourse.course.check.facts import means
from mpcourse.course.check.facts.gradients import Gradient, Rows, by_rank, each, gradients_of, values_of
from mpcourse.course.check.rules import Finding, Rule, Test, Whys, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import OnVirtualRank
from mpcourse.course.check.wrong import Wrong, first_difference

NAME = "MultiNodeOptimizer"
BATCH = 4  # examples a rank
RATES = (1.0, 0.25, 2.0)  # by what the learning rate is multiplied before each step
TOLERANCE = (1e-9, 1e-11)
KINDS = {"zero_grad": "method", "step": "method", "param_groups": "list of dicts"}

# The first optimizer imports much of torch. Now, before time counts that a rank may compute. Without a backward, whose
# threads would not survive a fork.
torch.optim.Adam([nn.Parameter(torch.zeros(1))]).step()

# -- inputs --


class Model(nn.Module):
    """Two layers; `side` only counts where it is asked for, `idle` nowhere, `fixed` is frozen. All float64."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 1)
        self.side, self.idle = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(2))
        self.fixed = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, x: torch.Tensor, side: bool) -> torch.Tensor:
        hidden = torch.tanh(self.first(x)) * self.fixed
        return self.second(hidden + self.side.sin() if side else hidden)


@dataclass(frozen=True)
class Training(Case):
    """A training to check the optimizer on.

    adam: the optimizer; else SGD with momentum. decay: its weight decay. missing: whether gradients are None on some
    ranks, and one on all. groups: two of them, the second with a frozen parameter, too. turned: whether one parameter
    lies in memory in another order than its shape says. single: whether all are float32. hint: as `Case.stumbled`.
    """

    what: str
    hint: str = ""
    sizes: Sequence[int] = SIZES
    steps: int = len(RATES)
    adam: bool = False
    decay: float = 0.0
    missing: bool = False
    groups: bool = False
    turned: bool = False
    single: bool = False

    @property
    def names(self) -> list[list[str]]:
        """Return the names of the parameters that the optimizer holds, by group."""
        first = ["first.weight", "first.bias", *(["side", "idle"] if self.missing else [])]
        second = ["second.weight", "second.bias"]
        return [first, [*second, "fixed"]] if self.groups else [first + second]

    def start(self, rank: int) -> tuple[dict[str, nn.Parameter], torch.optim.Optimizer, Model]:
        """Make a model and the optimizer to be wrapped; return its parameters by name, the optimizer and the model."""
        model = Model() if self.single else Model().double()
        if self.turned:
            model.first.weight = nn.Parameter(torch.zeros(3, 4, dtype=torch.float64).t())
        held = {name: model.get_parameter(name) for group in self.names for name in group}
        for i, (name, p) in enumerate(model.named_parameters()):
            own = rank if name in held else 0  # a parameter that no optimizer holds is the same on all ranks
            p.data.copy_(torch.from_numpy(np.random.default_rng([i, own]).standard_normal(p.shape)))
        groups = [{"params": [held[name] for name in group]} for group in self.names]
        if self.adam:
            return held, torch.optim.Adam(groups, lr=0.05, weight_decay=self.decay), model
        return held, torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=self.decay), model

    def loss(self, model: Model, step: int, rank: int, size: int) -> torch.Tensor:
        """Return the mean over a rank's own examples."""
        random = np.random.default_rng([step, rank, size])
        x, y = (torch.from_numpy(random.standard_normal((BATCH, n))) for n in (3, 1))
        side = self.missing and rank == (step + 1) % size and step != 2  # in one step no rank has it
        return nn.functional.mse_loss(model(x, side), y)

    @functools.cache  # noqa: B019
    def in_one_process(self, size: int) -> list[dict[str, np.ndarray]]:
        """Return the parameters after each step by the mean of all ranks' gradients."""
        held, optimizer, model = self.start(0)
        history = []
        for step, factor in enumerate(RATES):
            optimizer.zero_grad()
            for rank in range(size):
                (self.loss(model, step, rank, size) / size).backward()
            for group in optimizer.param_groups:
                group["lr"] *= factor
            optimizer.step()
            history.append(values_of(held))
        return history

    def stumbled(self, size: int) -> tuple[str, str] | None:
        return (f"{self.what} on {counted(size, 'rank')}", self.hint) if self.hint else None

    # -- observation --

    def program(self, own: Answer, comm: Any) -> "Seen":
        held, inner, model = self.start(comm.rank)
        start, rate = values_of(held), inner.param_groups[0]["lr"]
        optimizer = own.call(NAME, inner, comm)
        kinds = {name: _kind(getattr(optimizer, name)) if hasattr(optimizer, name) else "" for name in KINDS}
        seen = Seen(kinds, start, values_of(held), rate, inner.param_groups[0]["lr"])
        used: list[tuple[Rows, float]] = []
        inner.register_step_post_hook(lambda *_: used.append((gradients_of(held), inner.param_groups[0]["lr"])))
        for step, factor in enumerate(RATES[: self.steps] if seen.kinds == KINDS else ()):
            own.run(optimizer.zero_grad, "optimizer.zero_grad")
            left = gradients_of(held)
            self.loss(model, step, comm.rank, comm.size).backward()
            given, kept = gradients_of(held), dict(inner.state)
            rate *= factor
            for group in optimizer.param_groups:  # as a scheduler does
                group["lr"] *= factor
            used.clear()
            own.run(optimizer.step, "optimizer.step")
            forgot = any(inner.state.get(p) is not state for p, state in kept.items())
            after = gradients_of(held)
            by, at = used[0] if used else (after, rate)
            seen.steps.append(Step(left, given, by, after, values_of(held), len(used), at == rate, forgot))
        return seen

    def findings(self, seen: Sequence["Seen"]) -> Iterator[Finding | None]:
        def everyone(given: Sequence[Rows], results: Sequence[Rows], step: int = -1) -> list[Facts]:
            return each(Facts, given, results, TOLERANCE, self, seen, step)

        yield judge(STARTS, *everyone([s.start for s in seen], [s.made for s in seen]))
        yield judge(INTERFACE, *[Member(r, *kind) for r, s in enumerate(seen) for kind in s.kinds.items()])
        for step in range(self.steps):
            now = [s.steps[step] for s in seen]
            yield judge(ZEROED, *everyone([s.left for s in now], [s.left for s in now], step))
            yield judge(STEPPED, *everyone([s.given for s in now], [s.used for s in now], step))
        last = [s.steps[-1].values if s.steps else s.made for s in seen]
        yield same_bits({name: by_rank(last, name) for name in last[0]})


MISSING = (
    "A parameter may have a gradient on one rank and None on another, or on none at all. All ranks must sum the same "
    "parameters in the same order: where it is None it counts as zeros. Find out together who has one, before the sums."
)
GROUPS = (
    "An optimizer has one group or several, and a frozen parameter in them has no gradient: go through all groups, and "
    "pass over what no rank has a gradient for."
)
TRAININGS = (
    Training("making one", steps=0, groups=True),
    Training("momentum SGD"),
    Training("Adam", "", (3, 2), adam=True),
    Training("SGD with two groups, one of them with a frozen parameter", GROUPS, (3,), groups=True),
    Training("SGD where gradients are missing", MISSING, (3, 1), missing=True, decay=0.1),
    Training("Adam with all of this", MISSING, adam=True, missing=True, groups=True, decay=0.1),
)
COPIES = (  # what is right where a method hands out the tensor itself, and goes wrong where it makes a copy
    Training("making one", sizes=(3,), steps=0, turned=True),
    Training("making one", sizes=(3,), steps=0, single=True),
    Training("SGD with a transposed parameter", sizes=(3,), turned=True),
)
check = functools.partial(all_on_real, cases=(TRAININGS[1], TRAININGS[-1]))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Judge on virtual ranks; one process calls this."""
    all_on_virtual(answer, comm, TRAININGS)
    try:
        all_on_virtual(answer, comm, COPIES)
    except OnVirtualRank as error:
        if isinstance(error.error, Wrong):  # an answer may refuse such parameters: that misleads no learner
            raise
    on_virtual(answer, comm, 3, _zero_alone, lambda seen: None, ALONE)


def _zero_alone(own: Answer, comm: Any) -> None:
    """Call zero_grad on the last rank only."""
    optimizer = own.call(NAME, TRAININGS[1].start(comm.rank)[1], comm)
    if comm.rank == comm.size - 1:
        own.run(optimizer.zero_grad, "optimizer.zero_grad")


def _kind(value: Any) -> str:
    """Return "method", "list of dicts", or the name of another type."""
    if isinstance(value, list) and value and all(isinstance(group, dict) for group in value):
        return "list of dicts"
    return "method" if callable(value) else type(value).__name__


# -- facts --


@dataclass(frozen=True)
class Step:
    """One step on one rank.

    left, given: gradients after zero_grad, and after this rank's backward. used: gradients when the wrapped optimizer
    stepped first; where it made no step, as `after`. after, values: gradients and parameters after the step. calls: how
    often the wrapped optimizer stepped. rate_kept: whether it stepped by the learning rate that was set. forgot:
    whether it lost what it keeps of earlier steps.
    """

    left: Rows
    given: Rows
    used: Rows
    after: Rows
    values: dict[str, np.ndarray]
    calls: int
    rate_kept: bool
    forgot: bool


@dataclass
class Seen:
    """What was seen on one rank.

    kinds: by name, the types of what a training loop takes from the optimizer. start, made: parameters before and after
    it was made. rate, rate_made: the learning rate, before and after.
    """

    kinds: dict[str, str]
    start: dict[str, np.ndarray]
    made: dict[str, np.ndarray]
    rate: float
    rate_made: float
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Member:
    """What a training loop takes from what the learner's class makes. kind: its type; empty where it is missing."""

    rank: int
    name: str
    kind: str

    wanted = property(lambda self: KINDS[self.name])
    shown = property(lambda self: "method: is @property missing?" if self.kind == "method" else self.kind)


@dataclass(frozen=True)
class Facts(Gradient):
    """A parameter's gradients around a step, on all ranks; or before the first step its values, when it was made."""

    training: Training
    seen: Sequence[Seen]
    step: int

    mine = property(lambda self: self.seen[self.rank])
    now = property(lambda self: [seen.steps[self.step] for seen in self.seen])
    here = property(lambda self: self.now[self.rank])

    # When it is made.

    roots = property(lambda self: [r for r, start in enumerate(self.given) if np.array_equal(self.got, start)])

    @property
    def wrong_starts(self) -> set[str]:
        first = self.seen[0].start
        return {name for seen in self.seen for name in first if not np.array_equal(seen.made[name], first[name])}

    # In a step.

    value = property(lambda self: self.here.values[self.name])
    calls = property(lambda self: [step.calls for step in self.now])
    alike = property(lambda self: all(np.array_equal(step.values[self.name], self.value) for step in self.now))
    earlier = property(lambda self: [step.given for seen in self.seen for step in seen.steps[: self.step]])

    @functools.cached_property
    def wrong(self) -> tuple[str, str] | None:
        """Return where the parameter's value is not the right one, as two phrases; None where it is."""
        want = self.training.in_one_process(self.size)[self.step][self.name]
        after = f"{self.name} on rank {self.rank} of {self.size} after step {self.number} of {self.training.what}"
        return first_difference(self.value, want, f"{after}, as in one process,", *TOLERANCE)

    @property
    def moved(self) -> bool:
        before = self.mine.steps[self.step - 1].values if self.step else self.mine.made
        return any(not np.array_equal(self.here.values[name], value) for name, value in before.items())

    @property
    def first_group_only(self) -> bool:
        first, *others = self.training.names
        given, used = [s.given for s in self.now], [s.used for s in self.now]
        facts = [Gradient(0, n, by_rank(given, n), by_rank(used, n), TOLERANCE) for n in first]
        return any(self.name in group for group in others) and all(len(f.good) == f.size for f in facts)

    # What sentences show.

    number = property(lambda self: self.step + 1)
    root = property(lambda self: self.roots[0])
    wanted = property(lambda self: Gradient(0, self.name, self.given, self.given, TOLERANCE).shown)
    found_start = property(lambda self: f"{self.shown}, as it was" if self.kept else self.shown)
    wrong_parameters = property(lambda self: named(sorted(self.wrong_starts), "parameter"))
    asked_value, found_value = property(lambda self: self.wrong[0]), property(lambda self: self.wrong[1])

    @property
    def place(self) -> str:
        step = f"the wrapped optimizer's step {self.number} on rank {self.rank} of {self.size}"
        return f"the gradient of {self.name} in {step}, for {self.training.what},"


# -- what is said --

ALONE = (
    "rank 2 to come back from zero_grad(), which it calls alone",
    "A rank may call zero_grad on its own: it concerns this rank's gradients, and needs no message and no Barrier.",
)
WHYS_START: Whys = [
    Rule(
        "a copy of what is transposed",
        lambda f: f.kept and f.training.turned,
        "This parameter is transposed, so that contiguous(), reshape(-1) and flatten() make a copy of it: that became "
        "rank 0's, and the parameter did not. Broadcast into a buffer, and write it in place: p.data.copy_(buffer).",
    ),
    Rule(
        "a copy in another dtype",
        lambda f: f.kept and f.training.single,
        "This parameter is float32, so that double() makes a copy of it: that became rank 0's, and the parameter did "
        "not. Broadcast it as it is, or write what came in place: p.data.copy_(buffer).",
    ),
    Rule("NaN", lambda f: np.isnan(f.got).any(), "NaN: was a buffer read before anything was written into it?"),
    Rule(
        "frozen",
        lambda f: f.kept and f.wrong_starts == {"fixed"},
        "A frozen parameter has a value, too, and the model computes with it: broadcast it like the others.",
    ),
    Rule(
        "some",
        lambda f: f.kept and f.wrong_starts < set(f.mine.start),
        "Broadcast {wrong_parameters} too. Go through all groups of the optimizer.",
    ),
    Rule(
        "all",
        lambda f: f.kept,
        "Ranks begin with different models: broadcast rank 0's parameters, and write them in place, p.data.copy_(x). "
        "p = x gives a name to something else, and a copy that is broadcast changes nothing.",
    ),
    Rule("another root", lambda f: f.roots, "Those are rank {root}'s: root=0, on all ranks."),
    Rule(
        "mean",
        lambda f: f.near(f.mean),
        "That is the mean of all ranks' parameters. Rank 0's are asked: a mean of random starts is a poor start.",
    ),
    Rule(
        "rank 0 changed",
        lambda f: f.rank == 0,
        "Rank 0's own parameters are those that all get: there they stay as they are.",
    ),
    "Parameters in another order, or a buffer that was not yet there? Broadcast one after the other, in place.",
]
STARTS = [
    Test(
        "another start",
        lambda f: 0 not in f.roots,
        "{name} on rank {rank} to be that of rank 0 when the optimizer is made, {wanted}",
        "{found_start}",
        WHYS_START,
    )
]
SCHEDULER = "A scheduler sets the learning rate in optimizer.param_groups: hand on the wrapped optimizer's own list."
WHYS_MEMBER: Whys = [
    Rule("groups", lambda f: f.name == "param_groups", SCHEDULER),
    Rule("property", lambda f: f.kind, "Is it a property? {name}() is called."),
    "A training loop calls optimizer.{name}() in every step.",
]
INTERFACE = [
    Test(
        "missing",
        lambda f: not f.kind,
        f"what {NAME} makes to have {{name}}",
        f"none: {NAME} has no attribute '{{name}}'",
        WHYS_MEMBER,
    ),
    Test("kind", lambda f: f.kind != f.wanted, "optimizer.{name} to be a {wanted}", "a {shown}", WHYS_MEMBER),
]
ZEROED = [
    Test(
        "left",
        lambda f: f.got is not None,
        "no gradients after zero_grad() in step {number}, on rank {rank}",
        "{name} has one, {shown}",
        [
            Rule(
                "zeros",
                lambda f: not f.got.any(),
                "zero_grad leaves None: what has no part in the next loss is then passed over. With zeros weight decay "
                "and momentum move it. The wrapped optimizer's own zero_grad() does that, without arguments.",
            ),
            "backward adds to what is there, so that each step would use all gradients so far: pass it on.",
        ],
    )
]
WHYS_GRADIENT: Whys = [
    *means.NUMBERS,
    Rule(
        "mean in a copy",
        lambda f: f.training.turned and f.unchanged,
        "This gradient is transposed, so that contiguous(), reshape(-1) and flatten() make a copy of it: was that "
        "averaged and p.grad left as it was? Put the mean back into p.grad.",
    ),
    Rule(
        "mean after the step",
        lambda f: f.unchanged and min(f.calls) and f.right(f.here.after[f.name]),
        "The mean was made after the step: each rank has moved by its own gradients, which .grad no longer shows. "
        "Average first, then step.",
    ),
    Rule(
        "averaged parameters",
        lambda f: f.unchanged and f.alike and min(f.calls) == 1,
        "Each rank has stepped by its own gradients, and then parameters were averaged. For plain SGD that comes to "
        "the same, for Adam it does not: twice the gradient is not twice the step. Average gradients, then step.",
    ),
    Rule(
        "rank 0's gradients",
        lambda f: f.alike and f.near(f.given[0]),
        "All ranks have stepped by rank 0's gradients: average those of all.",
    ),
    Rule(
        "first group",
        lambda f: f.unchanged and f.first_group_only,
        "Gradients of the first group were averaged, those of the others were not: go through all.",
    ),
    means.REDUCED,
    Rule(
        "own gradients",
        lambda f: f.unchanged,
        "Each rank has stepped by its own gradients: average them over all ranks, into p.grad, before the step.",
    ),
    *means.FACTORS,
    "Is every gradient the sum over ranks, divided by their number, once, when the wrapped optimizer steps?",
]
STEPPED = [
    Test(
        "nothing moved",
        lambda f: f.wrong and not f.moved,
        "{asked_value}",
        "{found_value}",
        "Nothing has moved: step has to call the wrapped optimizer's step, after gradients were averaged.",
    ),
    Test(
        "not None",
        lambda f: f.wrong and f.mean is None and f.got is not None,
        "{place} to stay None, as on all ranks",
        "{shown}",
        [
            Rule(
                "since it had one",
                lambda f: any(given[f.name] is not None for given in f.earlier),
                "No rank has a gradient for {name} in step {number}, and there it was given one of zeros, which weight "
                "decay and momentum turn into a step. Who has gradients differs from step to step: find out in each.",
            ),
            means.NO_RANK_HAS_ONE,
        ],
    ),
    Test(
        "None",
        lambda f: f.wrong and f.mean is not None and f.got is None,
        "{place} to be the mean over all ranks",
        "None",
        means.COUNTS_AS_ZEROS,
    ),
    Test(
        "another rate",
        lambda f: f.wrong and f.mine.rate != f.mine.rate_made,
        "{asked_value}",
        "{found_value}",
        "The learning rate was {mine.rate:g}, and {mine.rate_made:.3g} once the optimizer was made: it stays. Divide "
        "the sum of gradients: Adam's steps do not grow with it, and a smaller rate makes them smaller.",
    ),
    Test("another gradient", lambda f: f.wrong and f.rank not in f.good, "{asked}", "{found}", WHYS_GRADIENT),
    Test(
        "another step",
        lambda f: f.wrong,
        "{asked_value}",
        "{found_value}",
        [
            Rule(
                "old learning rate",
                lambda f: not f.here.rate_kept,
                "The learning rate was changed in optimizer.param_groups before this step, and the step was made with "
                "the old one: hand on the wrapped optimizer's own list, not a copy of it.",
            ),
            Rule(
                "two steps",
                lambda f: f.here.calls > 1,
                "The wrapped optimizer has made {here.calls} steps: once is enough, after gradients were averaged.",
            ),
            Rule(
                "no memory",
                lambda f: f.here.forgot or not f.here.calls,
                "That is a step without what the optimizer keeps of earlier ones: momentum, or Adam's averages. Call "
                "the wrapped optimizer's own step, always the same optimizer's, and leave its state alone.",
            ),
        ],
    ),
]
