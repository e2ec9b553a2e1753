"""What e06_bucket_overlap is asked: means of gradients, in few collective calls, most of them during backward."""

import copy
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, attribute, on_real, on_virtual, same_bits
from mpcourse.course.check.facts.gradients import SHAPES, Gradient, Row
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference
from mpcourse.virtual import LINKS, compute
from mpcourse.virtual.ranks import Topology
from mpcourse.virtual.ranks.collective_call import CollectiveCall, seconds

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "BucketedMean"
STEPS = 3
RATE = 0.1
EXAMPLES, WIDTH = 4, 4
Grads = dict[str, Row]

# -- inputs --


class Chain(nn.Module):
    """Layers one after the other. The gradients of the last one are computed first."""

    def __init__(self, layers: int = 4, width: int = WIDTH) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Mixed(Chain):
    """A weight that is used twice, a frozen bias, a parameter without dimensions, one that is larger than a bucket."""

    def __init__(self) -> None:
        super().__init__(2)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.layers[0].bias.requires_grad_(False)
        self.wide = nn.Linear(WIDTH, 5 * WIDTH)

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        once = super().forward(x, rank)
        return self.wide(self.scale * super().forward(once, rank))


class Branches(Chain):
    """Two equal branches, which odd ranks compute in the opposite order; so their gradients come in that order."""

    def __init__(self) -> None:
        super().__init__(1)
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        h = super().forward(x, rank)
        branches = (self.left, self.right) if rank % 2 == 0 else (self.right, self.left)
        parts = [torch.tanh(branch(h)) for branch in branches]
        return parts[0] * parts[1]


class Missing(Chain):
    """A layer that only even ranks use, and one that no rank uses."""

    def __init__(self) -> None:
        super().__init__(3)
        self.sometimes, self.never = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        h = super().forward(x, rank)
        return h + torch.tanh(self.sometimes(x)) if rank % 2 == 0 else h


@dataclass(frozen=True)
class BucketCase:
    """make: the network. bucket: bytes of one, in layers of `width` units with bias. why: of an answer right so far.

    two: whether another network, with buckets of its own, is trained in the same process.
    """

    make: Callable[[], nn.Module]
    what: str
    dtype: torch.dtype = torch.float64
    bucket: float = 1.0
    why: str = ""
    width: int = WIDTH
    two: bool = False

    @property
    def bucket_bytes(self) -> int:
        return int(self.bucket * (self.width + 1) * self.width * self.dtype.itemsize)

    def network(self) -> nn.Module:
        """The network, its parameters drawn from a fixed seed: so they are the same on all ranks."""
        return copy.deepcopy(self.drawn)

    @functools.cached_property
    def drawn(self) -> nn.Module:
        """The network that `network` copies, and nothing changes."""
        model = self.make().to(self.dtype)
        draw = np.random.default_rng(11)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.tensor(draw.uniform(-1, 1, p.shape)))
        return model

    def loss(self, model: nn.Module, rank: int, step: int) -> torch.Tensor:
        """The loss of a rank's own examples of a step."""
        x = np.random.default_rng([rank, step]).standard_normal((EXAMPLES, self.width))
        return model(torch.tensor(x, dtype=self.dtype), rank).square().sum()

    def buckets(self, most: int) -> int:
        """The number of buckets, if each holds `most` bytes or fewer, by the rule of the exercise."""
        number, room = 0, -1
        for p in reversed([p for p in self.drawn.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if nbytes > room:
                number, room = number + 1, most
            room -= nbytes
        return number


CASES = (
    BucketCase(Chain, "four layers, a bucket each", bucket=1.1),
    BucketCase(Chain, "four layers, two in a bucket", torch.float32, 2.0, "Here a bucket has more than one layer."),
    BucketCase(
        Chain,
        "four layers, whose parameters are all larger than a bucket",
        bucket=0.1,
        why="A parameter that is larger than bucket_bytes is a bucket of its own, also the first one.",
    ),
    BucketCase(
        Mixed,
        "a network with a weight that is used twice, a frozen bias and a parameter without dimensions",
        bucket=2.0,
        why="A frozen parameter has no gradient: it belongs to no bucket. What backward adds up for a weight that is "
        "used twice is complete when its hook runs.",
    ),
    BucketCase(
        Chain,
        "one of two networks that are trained in one process",
        two=True,
        why="Each network has buckets of its own: what is counted and kept for them belongs to self, not to the class "
        "or to the module, where another BucketedMean finds it.",
    ),
    BucketCase(
        Branches,
        "two branches, which odd ranks compute in the opposite order",
        why="On these ranks gradients are not computed in the same order, as in a network with branches. The order of "
        "buckets is fixed when they are made, on all ranks alike, and a bucket begins when those before it have begun.",
    ),
    BucketCase(
        Missing,
        "a network of which not all ranks use all layers",
        why="Here backward does not reach all parameters on all ranks, so that some hooks are never called. wait() "
        "begins the buckets that are left, in their order; a gradient that was not computed counts as zeros.",
    ),
)
LAYERS, WIDE = 8, 64  # of the network whose step is timed
TIMED = BucketCase(functools.partial(Chain, LAYERS, WIDE), f"{LAYERS} layers, a bucket each", width=WIDE)
# Where bytes take longer than latency, without large arrays, which take a processor's time: as long as those of layers
# of 256 units on the link that it is made of.
LINK = LINKS["10 GbE"]
SLOW = Topology(between=replace(LINK, bandwidth=LINK.bandwidth * TIMED.bucket_bytes / (257 * 256 * 8)))
LONGER = 1.25  # times as long as its all-reduce a layer computes there, in backward


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for case in (CASES[0], *CASES[-2:]):
            on_real(answer, ranks, _program(case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case in CASES:
        for size in (2,) if case.two else SIZES:
            stumbled = (f"the mean of gradients of {case.what}", case.why) if case.why else None
            ran = on_virtual(answer, comm, size, _program(case, True), functools.partial(_judge, case), stumbled)
            if finding := judge(MESSAGES, Messages(int(ran.run.messages.sum()))):
                raise ran.wrong(*finding)
        if case is CASES[1]:  # before what is rarer
            for size in (4, 2):
                on_virtual(answer, comm, size, _program(TIMED, True, _layer_seconds(size)), _judge_time, link=SLOW)


def _layer_seconds(size: int) -> float:
    """What a layer of TIMED computes in backward."""
    link = SLOW.slowest(range(size))
    return LONGER * seconds("Iallreduce", size, TIMED.bucket_bytes, link.latency, 1 / link.bandwidth)


# -- the oracle --


def _gradients(model: nn.Module) -> Grads:
    """A copy of each parameter's gradient, by name; None where a parameter has none."""
    return {name: None if p.grad is None else p.grad.detach().numpy().copy() for name, p in model.named_parameters()}


def _descend(model: nn.Module) -> None:
    """A step of SGD, and no gradients after it."""
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None and p.requires_grad and p.grad.shape == p.shape:
                p.sub_(RATE * p.grad)
    model.zero_grad()


@functools.cache
def _by_rank(case: BucketCase, size: int) -> list[list[Grads]]:
    """Of each step, what each rank's own backward computes; every step is made with the right mean.

    A parameter that no rank's backward reaches has zeros everywhere.
    """
    model, steps = case.network(), []
    for step in range(STEPS):
        each = []
        for rank in range(size):
            model.zero_grad()
            case.loss(model, rank, step).backward()
            each.append(_gradients(model))
        steps.append(each)
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue
            if all(own[name] is None for own in each):
                each[0][name] = np.zeros(p.shape, str(p.dtype)[6:])
            rows = [own[name] for own in each]
            p.grad = torch.tensor(np.mean([np.zeros(p.shape) if row is None else row for row in rows], axis=0)).to(
                p.dtype
            )
        _descend(model)
    return steps


# -- observation --


@dataclass
class Seen:
    """What one rank has after each step, the step's collective calls, how many of them it made during backward, and
    when the step began and ended.
    """

    grads: list[Grads] = field(default_factory=list)
    calls: list[list[CollectiveCall]] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


def _program(case: BucketCase, counts: bool = False, layer: float = 0.0) -> Program:
    """Some steps. counts: collective calls, of virtual ranks. layer: seconds of a layer's backward on their clock."""

    def program(own: Answer, comm: Any) -> Seen:
        seen, model = Seen(), case.network()
        made = comm.world.collectives[comm.me] if counts else []
        if layer:
            for name, p in model.named_parameters():
                if name.endswith("weight"):
                    p.register_post_accumulate_grad_hook(lambda _: compute(comm, layer, "backward"))
        wait = _made(own, comm, case, model)
        other = case.network()
        wait_for_other = _made(own, comm, case, other) if case.two else None
        if counts:
            comm.Barrier()
        for step in range(STEPS):
            if wait_for_other:
                own.run(case.loss(other, comm.rank, step).backward, "backward")
                own.run(wait_for_other, "wait")
                other.zero_grad()
            seen.begun.append(comm.world.clock[comm.me] if counts else 0.0)
            before = len(made)
            own.run(case.loss(model, comm.rank, step).backward, "backward")
            seen.early.append(len(made) - before)
            own.run(wait, "wait")
            seen.ended.append(comm.world.clock[comm.me] if counts else 0.0)
            seen.grads.append(_gradients(model))
            seen.calls.append(made[before:])
            _descend(model)
        return seen

    return program


def _made(own: Answer, comm: Any, case: BucketCase, model: nn.Module) -> Callable[[], None]:
    """Make a BucketedMean and return its `wait`."""
    mean = own.call(NAME, comm, model, case.bucket_bytes)
    return attribute(mean, "wait", f"a {NAME}", "The class keeps the methods that its task names.")


@dataclass(frozen=True)
class Facts(Gradient):
    """A gradient after a step. own_grads: what every rank's own backward computes, by step and rank."""

    case: BucketCase
    step: int
    own_grads: Sequence[Sequence[Grads]]

    rows = property(lambda self: self._rows(self.given))
    frozen = property(lambda self: self.mean is None)

    def _rows(self, given: Sequence[Row]) -> np.ndarray:
        """One a rank, zeros for None."""
        return np.stack([np.zeros(self.shape) if row is None else row for row in given])

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        want = self.mean.astype(str(self.case.dtype)[6:])
        return first_difference(self.got, want, self.place, *self.tolerance)

    @property
    def mixed(self) -> bool:
        """Whether it is a mean of some ranks' gradients of this parameter, and other ranks' of another one."""
        for name, own in self.own_grads[self.step][0].items():
            theirs: list[Any] = [grads[name] for grads in self.own_grads[self.step]]
            if name == self.name or own is None or own.shape != self.shape or any(row is None for row in theirs):
                continue
            for mask in itertools.islice(itertools.product((False, True), repeat=self.size), 1, None):
                chosen = np.array(mask).reshape(-1, *[1] * len(self.shape))
                if self.near(np.where(chosen, np.stack(theirs), self.rows).mean(0)):
                    return True
        return False

    @property
    def before(self) -> np.ndarray:
        """The ranks' own gradients in the step before, or NaN in the first step, which nothing is near to."""
        if not self.step:
            return np.full((self.size, *self.shape), np.nan)
        return self._rows([grads[self.name] for grads in self.own_grads[self.step - 1]])

    @property
    def stale(self) -> bool:
        """Whether it is the mean, with what the step before has left where ranks have none."""
        left = (self.before.mean(0), self.before.sum(0))
        return self.near(*[np.mean([old if row is None else row for row in self.given], axis=0) for old in left])

    # What sentences show.

    asked, found = property(lambda self: self.difference[0]), property(lambda self: self.difference[1])
    place = property(
        lambda self: (
            f"the gradient of {self.name} after step {self.step + 1} on rank {self.rank} of {self.size}, for "
            f"{self.case.what}"
        )
    )


@dataclass(frozen=True)
class Calls:
    """The collective calls of a step on one rank. early: how many of them were made during backward.

    Real ranks do not count them, and a rank alone need not make any.
    """

    rank: int
    case: BucketCase
    calls: Sequence[CollectiveCall]
    early: int

    number = property(lambda self: len(self.calls))
    most = property(lambda self: self.case.buckets(self.case.bucket_bytes))
    parameters = property(lambda self: sum(p.requires_grad for p in self.case.drawn.parameters()))
    all_but_one = property(lambda self: self.most - 1)
    names = property(lambda self: ", ".join(sorted({call.name for call in self.calls})))


@dataclass(frozen=True)
class Timing:
    """The last step of TIMED on ranks with a clock, in milliseconds."""

    seen: Sequence[Seen]
    rank = None

    size = property(lambda self: len(self.seen))
    calls = property(lambda self: self.seen[0].calls[-1])
    backward = property(lambda self: 1e3 * LAYERS * _layer_seconds(self.size))
    one = property(lambda self: self.backward / LAYERS / LONGER)  # an all-reduce
    best = property(lambda self: self.backward + self.one)
    took = property(lambda self: 1e3 * (max(f.ended[-1] for f in self.seen) - min(f.begun[-1] for f in self.seen)))
    blocking = property(
        lambda self: min((call.name for call in self.calls if not call.name.startswith("I")), default="")
    )
    carried = property(lambda self: sum(call.nbytes for call in self.calls) / (LAYERS * TIMED.bucket_bytes))

    def first(self, step: int) -> float:
        """When rank 0 made the first call of a step, as a part of backward."""
        seen = self.seen[0]
        return (min((call.at for call in seen.calls[step]), default=0.0) - seen.begun[step]) * 1e3 / self.backward


@dataclass(frozen=True)
class Messages:
    """How many messages went from rank to rank, beside collective calls."""

    number: int
    rank = None


def _judge(case: BucketCase, seen: Sequence[Seen]) -> Finding | None:
    own_grads = _by_rank(case, len(seen))
    tolerance = (1e-9, 1e-11) if case.dtype == torch.float64 else (1e-4, 1e-6)
    for step in range(STEPS):
        everyone, rows = [], {}
        for name in seen[0].grads[step]:
            rows[f"{name}.grad"] = results = [s.grads[step][name] for s in seen]
            given = [grads[name] for grads in own_grads[step]]
            everyone += [
                Facts(rank, name, given, results, tolerance, case, step, own_grads) for rank in range(len(seen))
            ]
        calls = [Calls(rank, case, s.calls[step], s.early[step]) for rank, s in enumerate(seen)]
        finding = judge(SHAPES, *everyone) or judge(MEANS, *everyone) or same_bits(rows) or judge(CALLS, *calls)
        if finding:
            return finding
    return None


def _judge_time(seen: Sequence[Seen]) -> Finding | None:
    return judge(TIME, Timing(seen))


# -- what is said --

WHYS_VALUE = [
    Rule(
        "rounded",
        lambda f: f.rounded,
        "That is the mean, rounded to {rounded}. The array of a bucket has the dtype of its parameters, which need not "
        "be torch's default.",
    ),
    Rule(
        "sum",
        lambda f: f.near(f.total),
        "That is the sum over ranks. Divide it by the number of ranks.",
    ),
    Rule(
        "own since the second step",
        lambda f: f.unchanged and f.step,
        "That is this rank's own gradient, and in the first step it was the mean. Between steps zero_grad() sets "
        "p.grad to None, and backward makes a new tensor for it, which is part of no bucket. wait() puts the mean into "
        "this one.",
    ),
    Rule("own, where it was right before", lambda f: f.unchanged and f.case.why, "{case.why}"),
    Rule(
        "own",
        lambda f: f.unchanged,
        "That is this rank's own gradient: wait() puts the mean of all ranks into p.grad.",
    ),
    Rule(
        "own, divided",
        lambda f: f.own is not None and f.near(f.own / f.size),
        "That is this rank's own gradient, divided by the number of ranks. There is a sum in the array from the "
        "request's Wait on.",
    ),
    Rule(
        "divided twice",
        lambda f: f.near(f.mean / f.size),
        "That is divided by the number of ranks twice: each gradient before the sum, and the sum once more.",
    ),
    Rule(
        "added",
        lambda f: f.own is not None and f.near(f.own + f.mean),
        "That is the mean added to this rank's own gradient. The mean takes its place.",
    ),
    Rule(
        "divided by ranks that have one",
        lambda f: f.near(f.total / len(f.having)),
        "That is the mean over the ranks that have a gradient of this parameter. The others' counts as zeros, and the "
        "sum is divided by the number of all ranks.",
    ),
    Rule(
        "mixed",
        lambda f: f.mixed,
        "That adds gradients of different parameters: ranks have begun their buckets in different orders, and the "
        "collective calls of a communicator meet in the order in which each rank makes them. Fix the order of buckets "
        "when they are made, and begin one when those before it have begun.",
    ),
    Rule(
        "of the step before",
        lambda f: f.near(f.before.mean(0), f.before.mean(0) / f.size),
        "That is the mean of the step before: what counts what is ready begins anew in each step.",
    ),
    Rule(
        "left from the step before",
        lambda f: f.stale,
        "Not all ranks have this gradient in this step, and on those without it the bucket still holds what it held in "
        "the step before. It counts as zeros there.",
    ),
    Rule(
        "zeros",
        lambda f: not f.got.any(),
        "These are zeros: was the bucket filled before backward had computed its gradients?",
    ),
    Rule(
        "else",
        lambda f: f.size > 1,
        "Is the request's Wait called before the sum is read, and is each part put where it belongs?",
    ),
    Rule("alone", always, "{case.why}"),
]
MEANS = [
    Test(
        "frozen",
        lambda f: f.frozen and f.got is not None,
        "{place}, which is frozen, to stay None",
        "an array",
        "A parameter with requires_grad=False belongs to no bucket.",
    ),
    Test(
        "None",
        lambda f: not f.frozen and f.got is None,
        "{place} to be the mean of all ranks'",
        "None",
        [Rule("hint", lambda f: f.case.why, "{case.why}"), Rule("always", always, "wait() puts it into p.grad.")],
    ),
    Test("value", lambda f: not f.frozen and f.difference, "{asked}", "{found}", WHYS_VALUE),
]
WHYS_NUMBER = [
    Rule("two networks", lambda f: f.case.two, "{case.why}"),
    Rule(
        "empty bucket",
        lambda f: any(call.nbytes == 0 for call in f.calls),
        "One of these buckets is empty. A new bucket begins where the next parameter does not fit, and only if there "
        "is one in the bucket already: the first parameter may be larger than bucket_bytes.",
    ),
    Rule(
        ">=",
        lambda f: f.number == f.case.buckets(f.case.bucket_bytes - 1) != f.parameters,
        "A bucket may hold exactly bucket_bytes: a new one begins where there would be more (>, not >=).",
    ),
    Rule(
        "more",
        lambda f: f.number > f.most,
        "Gradients of a bucket travel in one array. Which parameters belong together is decided once, when the buckets "
        "are made, from the last parameter to the first.",
    ),
    Rule(
        "one",
        lambda f: f.number == 1,
        "One bucket for all begins when all gradients are there. bucket_bytes says how many bytes a bucket takes at "
        "most, and a parameter has p.numel() * p.element_size() of them.",
    ),
    Rule(
        "fewer",
        always,
        "A bucket takes the next parameter only if it has no more than bucket_bytes with it, and a parameter has "
        "p.numel() * p.element_size() bytes.",
    ),
]
CALLS = [
    Test(
        "number",
        lambda f: f.calls and f.number != f.most,
        "{most} collective calls in a step of {case.what}: one for each bucket of {case.bucket_bytes} bytes",
        "{number} ({names})",
        WHYS_NUMBER,
    ),
    Test(
        "too late",
        lambda f: f.calls and f.case.make is Branches and f.early < f.most - 1,
        "at least {all_but_one} of {most} all-reduces to begin during backward in a step of {case.what}",
        "{early}",
        "On odd ranks the second bucket is ready before the first. When the first has begun, the second can begin at "
        "once: a hook goes on as long as the next bucket is ready.",
    ),
]
MESSAGES = [
    Test(
        "messages",
        lambda f: f.number,
        "a non-blocking all-reduce for each bucket",
        "{number} messages from rank to rank",
        "comm.Iallreduce begins an all-reduce and returns a request; its Wait completes it.",
    )
]
TIME = [
    Test(
        "too long",
        lambda f: f.took > f.backward + 0.5 * LAYERS * f.one,
        f"a step of about {{best:.1f}} ms on {{size}} ranks: backward takes {{backward:.1f}}, and of {LAYERS} "
        "all-reduces of {one:.1f} each all but the last overlap",
        "{took:.1f} ms",
        [
            Rule(
                "more bytes",
                lambda f: f.carried > 1.5,
                "These calls carry {carried:.1f} times the bytes of all gradients. All that is needed is their sum.",
            ),
            Rule(
                "blocking",
                lambda f: f.blocking,
                "comm.{blocking} returns when the result is there, and backward waits for it. comm.Iallreduce "
                "begins an all-reduce and returns a request at once; wait() waits for the requests.",
            ),
            Rule(
                "only in the first step",
                lambda f: f.first(-1) >= 0.99 and f.first(0) < 0.5,
                "In the first step they overlap, and later not: what counts what is ready begins anew in each step.",
            ),
            Rule(
                "after backward",
                lambda f: f.first(-1) >= 0.99,
                "All of them begin when backward is over. A hook begins a bucket as soon as the last of its gradients "
                "is computed. Backward computes those of the last layer first, so the first bucket has the last "
                "parameters. (A lambda that is made in a loop sees the loop's last value, unless a default keeps its "
                "own: i=i.)",
            ),
            Rule(
                "else",
                always,
                "A bucket begins as soon as the last of its gradients is computed, and is waited for in wait() only.",
            ),
        ],
    )
]
