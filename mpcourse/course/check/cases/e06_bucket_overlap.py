"""What e06_bucket_overlap is asked: means of gradients, in few collective calls, most of them during backward."""

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Case, all_on_real, all_on_virtual, attribute, same_bits
from mpcourse.course.check.facts import means
from mpcourse.course.check.facts.gradients import Gradient, Row, Rows, by_rank, each, gradients_of
from mpcourse.course.check.rules import Finding, Rule, Test, Whys, judge
from mpcourse.course.check.virtual_run import LINK
from mpcourse.virtual import LINKS, compute
from mpcourse.virtual.ranks import Topology, VirtualRun
from mpcourse.virtual.ranks.collective_call import CollectiveCall, seconds
from mpcourse.virtual.ranks.comm import VirtualComm

NAME = "BucketedMean"
STEPS = 3
RATE = 0.1
EXAMPLES, WIDTH = 4, 4

# -- inputs --


class Chain(nn.Module):
    """Layers one after the other; the gradients of the last one are computed first. more: other parts, by name."""

    def __init__(self, layers: int = 4, width: int = WIDTH, **more: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        for name, part in more.items():
            setattr(self, name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def mixed() -> Chain:
    """Make layers with a frozen bias, a parameter without dimensions, and one that is larger than a bucket."""
    model = Chain(2, scale=nn.Parameter(torch.tensor(1.0)), wide=nn.Linear(WIDTH, 5 * WIDTH))
    model.layers[0].bias.requires_grad_(False)
    return model


def either_first(model: Any, x: torch.Tensor, rank: int) -> torch.Tensor:
    """Multiply two branches. Odd ranks compute, and differentiate, the second one first."""
    h, branches = model(x), [model.left, model.right]
    parts = [torch.tanh(branch(h)) for branch in (branches if rank % 2 == 0 else reversed(branches))]
    return parts[0] * parts[1]


@dataclass(frozen=True, eq=False)
class BucketCase(Case):
    """output: a rank's loss is the sum of its squares. bucket: bytes of one, in layers of `width` units with bias.

    why: as `Case.stumbled`. two: whether another network, with buckets of its own, is trained in the same process.
    timed: whether the time of a step is judged, and nothing else.
    """

    what: str
    why: str = ""
    make: Callable[[], Chain] = Chain
    output: Callable[[Any, torch.Tensor, int], torch.Tensor] = lambda model, x, rank: model(x)
    dtype: torch.dtype = torch.float64
    bucket: float = 1.0
    width: int = WIDTH
    two: bool = False
    timed: bool = False
    sizes: Sequence[int] = SIZES
    link: str | Topology = LINK

    tolerance = property(lambda self: (1e-9, 1e-11) if self.dtype == torch.float64 else (1e-4, 1e-6))
    bucket_bytes = property(lambda self: int(self.bucket * (self.width + 1) * self.width * self.dtype.itemsize))

    @functools.cached_property
    def drawn(self) -> Chain:
        """Draw the network, the same on all ranks. Nothing changes this one."""
        model = self.make().to(self.dtype)
        draw = np.random.default_rng(11)
        for p in model.parameters():
            p.data.copy_(torch.tensor(draw.uniform(-1, 1, p.shape)))
        return model

    def loss(self, model: Chain, rank: int, step: int) -> torch.Tensor:
        """Return the loss of a rank's own examples of a step."""
        x = np.random.default_rng([rank, step]).standard_normal((EXAMPLES, self.width))
        return self.output(model, torch.tensor(x, dtype=self.dtype), rank).square().sum()

    @property
    def nbytes(self) -> list[int]:
        """The bytes of each trained parameter, from the last to the first."""
        return [p.numel() * p.element_size() for p in self.drawn.parameters() if p.requires_grad][::-1]

    def buckets(self, most: int, large_apart: bool = False) -> int:
        """Count the buckets, if each holds `most` bytes or fewer, by the rule of the exercise.

        large_apart: if a parameter that is larger than a bucket leaves the bucket before it open.
        """
        number, room = 0, -1
        for nbytes in self.nbytes:
            if large_apart and nbytes > self.bucket_bytes:
                number += 1
            elif nbytes > room:
                number, room = number + 1, most - nbytes
            else:
                room -= nbytes
        return number

    @functools.cache  # noqa: B019
    def own_gradients(self, size: int) -> list[list[dict[str, Row]]]:
        """Return, by step and rank, what a rank's own backward computes; every step is made with the right mean.

        A parameter that no rank's backward reaches has zeros on rank 0.
        """
        model, steps = copy.deepcopy(self.drawn), []
        held = dict(model.named_parameters())
        for step in range(STEPS):
            everyone = []
            for rank in range(size):
                self.loss(model, rank, step).backward()
                everyone.append(gradients_of(held))
                model.zero_grad()
            for name, p in held.items():
                if p.requires_grad and all(rows[name] is None for rows in everyone):
                    everyone[0][name] = np.zeros_like(p.detach().numpy())
            for f in each(Gradient, everyone, everyone, self.tolerance):
                held[f.name].grad = None if f.mean is None else torch.tensor(f.mean.astype(f.had[0].dtype))
            _descend(model)
            steps.append(everyone)
        return steps

    def layer_seconds(self, size: int) -> float:
        """Return how long a layer computes in backward, where a step is timed: longer than its all-reduce."""
        link = SLOW.slowest(range(size))
        return LONGER * seconds("Iallreduce", size, self.bucket_bytes, link.latency, 1 / link.bandwidth)

    # -- observation --

    def program(self, own: Answer, comm: Any) -> "list[Step]":
        virtual = isinstance(comm, VirtualComm)  # real ranks do not tell their calls
        made = comm.world.collectives[comm.me] if virtual else []
        networks = []
        for _ in range(1 + self.two):
            model = copy.deepcopy(self.drawn)
            timed: Any = model.layers if self.timed else ()
            for layer in timed:
                layer.weight.register_post_accumulate_grad_hook(lambda _: compute(comm, self.layer_seconds(comm.size)))
            mean = own.call(NAME, comm, model, self.bucket_bytes)
            wait = attribute(mean, "wait", f"a {NAME}", "The class keeps the methods that its task names.")
            networks.append((model, wait))
        if virtual:
            comm.Barrier()
        steps = []
        for step in range(STEPS):
            for model, wait in reversed(networks):
                since, begun = len(made), comm.world.clock[comm.me] if virtual else 0.0
                own.run(self.loss(model, comm.rank, step).backward, "backward")
                early = len(made) - since
                own.run(wait, "wait")
                ended = comm.world.clock[comm.me] if virtual else 0.0
                seen = Step(gradients_of(dict(model.named_parameters())), made[since:], early, begun, ended)
                _descend(model)
            steps.append(seen)  # of the network whose buckets were made first
        return steps

    def findings(self, seen: "Sequence[list[Step]]") -> Iterator[Finding | None]:
        if self.timed:
            yield judge(TIME, Timing(self, seen))
            return
        own = self.own_gradients(len(seen))
        for step in range(STEPS):
            now = [steps[step] for steps in seen]
            everyone = each(Facts, own[step], [s.grads for s in now], self.tolerance, self, step, own)
            yield judge(means.SHAPES, *everyone)
            yield judge(MEANS, *everyone)
            yield same_bits({f"{name}.grad": [s.grads[name] for s in now] for name in now[0].grads})
            yield judge(CALLS, *[Calls(rank, self, s) for rank, s in enumerate(now)])

    def judge_run(self, run: VirtualRun) -> Finding | None:
        return judge(MESSAGES, run)

    def stumbled(self, size: int) -> tuple[str, str] | None:
        return (f"the mean of gradients of {self.what}", self.why) if self.why else None


def _descend(model: nn.Module) -> None:
    """Make a step of SGD, and leave no gradients."""
    for p in model.parameters():
        if p.grad is not None and p.requires_grad and p.grad.shape == p.shape:
            p.data.sub_(RATE * p.grad)
    model.zero_grad()


LAYERS, WIDE = 8, 64  # of the network whose step is timed
LONGER = 1.25  # times as long as its all-reduce a layer computes there, in backward
# Layers of 64 units take as long on this link as layers of 256 units on 10 GbE: bytes take longer than latency, and the
# arrays stay small, which saves the processor's time.
TEN_GBE = LINKS["10 GbE"]
SLOW = Topology(between=replace(TEN_GBE, bandwidth=TEN_GBE.bandwidth * (WIDE + 1) * WIDE / (257 * 256)))
BRANCHES = BucketCase(
    "two branches, which odd ranks compute in the opposite order",
    "On these ranks gradients are not computed in the same order, as in a network with branches. The order of buckets "
    "is fixed when they are made, on all ranks alike, and a bucket begins when those before it have begun.",
    lambda: Chain(1, left=nn.Linear(WIDTH, WIDTH), right=nn.Linear(WIDTH, WIDTH)),
    either_first,
)
MISSING = BucketCase(
    "a network in which not all ranks use all layers",
    "Here backward does not reach all parameters on all ranks, so that some hooks are never called. wait() begins the "
    "buckets that are left, in their order; a gradient that was not computed counts as zeros.",
    lambda: Chain(3, sometimes=nn.Linear(WIDTH, WIDTH), never=nn.Linear(WIDTH, WIDTH)),
    lambda model, x, rank: model(x) + (torch.tanh(model.sometimes(x)) if rank % 2 == 0 else 0),
)
CASES = (
    BucketCase("four layers, a bucket each", bucket=1.1),
    BucketCase(
        "four layers, two in a bucket", "Here a bucket has more than one layer.", dtype=torch.float32, bucket=2.0
    ),
    BucketCase(  # before what is rarer
        f"{LAYERS} layers, a bucket each",
        make=functools.partial(Chain, LAYERS, WIDE),
        width=WIDE,
        timed=True,
        sizes=(4, 2),
        link=SLOW,
    ),
    BucketCase(
        "four layers, whose parameters are all larger than a bucket",
        "A parameter that is larger than bucket_bytes is a bucket of its own, also the first one.",
        bucket=0.1,
    ),
    BucketCase(
        "a network with a weight that is used twice, a frozen bias and a parameter without dimensions",
        "A frozen parameter has no gradient: it belongs to no bucket. What backward adds up for a weight that is used "
        "twice is complete when its hook runs.",
        mixed,
        lambda model, x, rank: model.wide(model.scale * model(model(x))),
        bucket=3.0,  # the small parameters before and behind the large one would fit into one
    ),
    BucketCase(
        "one of two networks that are trained in one process",
        "Each network has buckets of its own: what is counted and kept for them belongs to self, not to the class or "
        "to the module, where another BucketedMean finds it.",
        two=True,
        sizes=(2,),
    ),
    BRANCHES,
    MISSING,
)
check = functools.partial(all_on_real, cases=(CASES[0], BRANCHES, MISSING))
check_virtually = functools.partial(all_on_virtual, cases=CASES)

# -- facts --


@dataclass(frozen=True)
class Step:
    """A training step on one rank.

    grads: after the step. calls: its collective calls; early: how many of them during backward. begun, ended: by the
    rank's clock.
    """

    grads: Rows
    calls: list[CollectiveCall]
    early: int
    begun: float
    ended: float


@dataclass(frozen=True)
class Facts(Gradient):
    """A gradient after a step. own_gradients: as of the case."""

    case: BucketCase
    step: int
    own_gradients: list[list[dict[str, Row]]]

    frozen = property(lambda self: self.mean is None)
    rows = property(lambda self: [np.zeros(self.shape) if row is None else row for row in self.given])
    before = property(lambda self: by_rank(self.own_gradients[self.step - 1], self.name))
    old_mean = property(lambda self: replace(self, given=self.before, step=self.step - 1).mean)

    @property
    def mixed(self) -> bool:
        """Whether it is a mean of some ranks' gradients of this parameter, and other ranks' of another one."""
        now = self.own_gradients[self.step]
        others = [by_rank(now, name) for name in now[0] if name != self.name]
        alike = [rows for rows in others if all(row is not None and row.shape == self.shape for row in rows)]
        choices = (rows for theirs in alike for rows in itertools.product(*zip(self.rows, theirs, strict=True)))
        return any(self.near(np.mean(rows, axis=0)) for rows in choices)

    @property
    def left_out(self) -> list[int]:
        """The ranks for which zeros are in the mean; empty where there are none such."""
        ranks = range(self.size)
        some = (out for n in range(1, self.size) for out in itertools.combinations(ranks, n))
        fits = (out for out in some if self.near(sum(self.rows[r] for r in ranks if r not in out) / self.size))
        return [*next(fits, ())]

    @property
    def stale(self) -> bool:
        """Whether it is the mean, with what the step before has left where ranks have none."""
        left = (self.old_mean, self.old_mean * self.size)
        return self.near(*[np.mean([old if row is None else row for row in self.given], axis=0) for old in left])

    good_alone = property(lambda self: named(self.good))
    who_is_left_out = property(lambda self: named(self.left_out))

    @property
    def place(self) -> str:
        where = f"after step {self.step + 1} on rank {self.rank} of {self.size}"
        return f"the gradient of {self.name} {where}, for {self.case.what}"


@dataclass(frozen=True)
class Calls:
    """The collective calls of a step on one rank. Real ranks do not count them, and a rank alone need not make any."""

    rank: int
    case: BucketCase
    step: Step

    number = property(lambda self: len(self.step.calls))
    most = property(lambda self: self.case.buckets(self.case.bucket_bytes))
    parameters = property(lambda self: sum(p.requires_grad for p in self.case.drawn.parameters()))
    all_but_one = property(lambda self: self.most - 1)
    names = property(lambda self: ", ".join(sorted({call.name for call in self.step.calls})))


@dataclass(frozen=True)
class Timing:
    """The last step on ranks with a clock, in milliseconds."""

    case: BucketCase
    seen: Sequence[list[Step]]

    size = property(lambda self: len(self.seen))
    last = property(lambda self: [steps[-1] for steps in self.seen])
    calls = property(lambda self: self.last[0].calls)
    backward = property(lambda self: 1e3 * LAYERS * self.case.layer_seconds(self.size))
    one = property(lambda self: self.backward / LAYERS / LONGER)  # an all-reduce
    best = property(lambda self: self.backward + self.one)
    took = property(lambda self: 1e3 * (max(s.ended for s in self.last) - min(s.begun for s in self.last)))
    blocking = property(lambda self: min((c.name for c in self.calls if not c.name.startswith("I")), default=""))
    carried = property(lambda self: sum(call.nbytes for call in self.calls) / (LAYERS * self.case.bucket_bytes))

    def first(self, step: int) -> float:
        """Return when rank 0 made the first call of a step, as a part of backward."""
        seen = self.seen[0][step]
        return (min((call.at for call in seen.calls), default=0.0) - seen.begun) * 1e3 / self.backward


# -- what is said --

WHYS_VALUE: Whys = [
    *means.NUMBERS,
    Rule(
        "own since the second step",
        lambda f: f.unchanged and f.step,
        "That is this rank's own gradient, and in the first step it was the mean. Between steps zero_grad() sets "
        "p.grad to None, and backward makes a new tensor for it, which is part of no bucket. wait() puts the mean into "
        "this one.",
    ),
    Rule("own, where it was right before", lambda f: f.unchanged and f.case.why, "{case.why}"),
    Rule(
        "own", lambda f: f.unchanged, "That is this rank's own gradient: wait() puts the mean of all ranks into p.grad."
    ),
    Rule(
        "own, divided",
        lambda f: f.own is not None and f.near(f.own / f.size),
        "That is this rank's own gradient, divided by the number of ranks. There is a sum in the array from the "
        "request's Wait on.",
    ),
    *means.FACTORS,
    Rule(
        "mixed",
        lambda f: f.mixed,
        "That adds gradients of different parameters: ranks have begun their buckets in different orders, and the "
        "collective calls of a communicator meet in the order in which each rank makes them. Fix the order of buckets "
        "when they are made, and begin one when those before it have begun.",
    ),
    Rule(
        "of the step before",
        lambda f: f.step and f.near(f.old_mean, f.old_mean / f.size),
        "That is the mean of the step before: what counts what is ready begins anew in each step.",
    ),
    Rule(
        "left from the step before",
        lambda f: f.step and f.stale,
        "Not all ranks have this gradient in this step, and on those without it the bucket still holds what it held in "
        "the step before. It counts as zeros there.",
    ),
    Rule(
        "zeros",
        lambda f: not f.got.any(),
        "These are zeros: was the bucket filled before backward had put its gradients into p.grad? A hook of "
        "p.register_hook runs before that, one of p.register_post_accumulate_grad_hook after it.",
    ),
    Rule(
        "begun before it was computed",
        lambda f: f.case is BRANCHES and f.left_out,
        "Zeros are in the mean for {who_is_left_out}: there the bucket began before this gradient was computed. A "
        "bucket is ready when each of its own parameters has its gradient, however many hooks were called.",
    ),
    Rule("right before", lambda f: f.case.why, "{case.why}"),
    "Is the request's Wait called before the sum is read, and is each part put where it belongs?",
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
        [
            Rule(
                "not reached",
                lambda f: f.own is None and f.good,
                "On {good_alone} it is the mean. wait() puts it into p.grad on all ranks, also where backward did not "
                "reach the parameter and p.grad is None.",
            ),
            Rule("hint", lambda f: f.case.why, "{case.why}"),
            "wait() puts it into p.grad.",
        ],
    ),
    Test("value", lambda f: not f.frozen and f.difference, "{asked}", "{found}", WHYS_VALUE),
]
WHYS_NUMBER: Whys = [
    Rule("two networks", lambda f: f.case.two, "{case.why}"),
    Rule(
        "empty bucket",
        lambda f: any(call.nbytes == 0 for call in f.step.calls),
        "One of these buckets is empty. A new bucket begins where the next parameter does not fit, and only if there "
        "is one in the bucket already: the first parameter may be larger than bucket_bytes.",
    ),
    Rule(
        "goes on behind a large one",
        lambda f: f.number == f.case.buckets(f.case.bucket_bytes, large_apart=True),
        "A bucket holds parameters that follow each other. Where the next one does not fit, the bucket is closed, also "
        "if that one is larger than a bucket; or else it waits for layers whose gradients are computed much later.",
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
    (
        "A bucket takes the next parameter only if it has no more than bucket_bytes with it, and a parameter has "
        "p.numel() * p.element_size() bytes."
    ),
]
CALLS = [
    Test(
        "number",
        lambda f: f.number not in (0, f.most),
        "{most} collective calls in a step of {case.what}: one for each bucket of {case.bucket_bytes} bytes",
        "{number} ({names})",
        WHYS_NUMBER,
    ),
    Test(
        "too late",
        lambda f: f.number and f.case is BRANCHES and f.step.early < f.most - 1,
        "at least {all_but_one} of {most} all-reduces to begin during backward in a step of {case.what}",
        "{step.early}",
        "On odd ranks the second bucket is ready before the first. When the first has begun, the second can begin at "
        "once: a hook goes on as long as the next bucket is ready.",
    ),
]
MESSAGES = [
    Test(
        "messages",
        lambda run: run.messages.any(),
        "a non-blocking all-reduce for each bucket",
        lambda run: f"{run.messages.sum()} messages from rank to rank",
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
            "A bucket begins as soon as the last of its gradients is computed, and is waited for in wait() only.",
        ],
    )
]
