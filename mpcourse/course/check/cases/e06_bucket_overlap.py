"""What e06_bucket_overlap is asked: means of gradients, in few collective calls, most of them during backward."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_buckets import (
    STEPS,
    Branches,
    BucketCase,
    Chain,
    Grads,
    Missing,
    Mixed,
    by_rank,
    descend,
    gradients,
    mean_of,
)
from mpcourse.course.check.cases.on_buckets_why import ONE_AT_A_TIME, OWN, number_why, why_of
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, attribute, on_real, on_virtual, same_bits
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, first_difference
from mpcourse.virtual import LINKS, compute
from mpcourse.virtual.ranks import Topology
from mpcourse.virtual.ranks.collective_call import CollectiveCall, seconds

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "BucketedMean"
ORDER = (
    "On these ranks gradients are not computed in the same order, as in a network with branches. The order of buckets "
    "is fixed when they are made, on all ranks alike, and a bucket begins when those before it have begun."
)
MISSING = (
    "Here backward does not reach all parameters on all ranks, so that some hooks are never called. wait() begins the "
    "buckets that are left, in their order; a gradient that was not computed counts as zeros."
)
CASES = (
    BucketCase(Chain, "four layers, a bucket each"),
    BucketCase(Chain, "four layers, two in a bucket", torch.float32, 2.0, "Here a bucket has more than one layer."),
    BucketCase(
        Mixed, "a network with a weight that is used twice, a frozen bias and a parameter without dimensions",
        bucket=2.0, why="A frozen parameter has no gradient: it belongs to no bucket. What backward adds up for a "
        "weight that is used twice is complete when its hook runs.",
    ),
    BucketCase(Branches, "two branches, which odd ranks compute in the opposite order", why=ORDER),
    BucketCase(Missing, "a network of which not all ranks use all layers", why=MISSING),
)  # fmt: skip
LAYERS, WIDE = 8, 64  # of the network whose step is timed
TIMED = BucketCase(functools.partial(Chain, LAYERS, WIDE), f"{LAYERS} layers, a bucket each", width=WIDE)
# Where bytes take longer than latency, without large arrays, which take a processor's time: as long as those of layers
# of 256 units on the link that it is made of.
LINK = LINKS["10 GbE"]
SLOW = Topology(between=replace(LINK, bandwidth=LINK.bandwidth * TIMED.bucket_bytes / (257 * 256 * 8)))
LONGER = 1.25  # times as long as its all-reduce a layer computes there, in backward


@dataclass
class Facts:
    """What one rank has after each step, the step's collective calls, how many of them it made during backward, and
    when the step began and ended.
    """

    grads: list[Grads] = field(default_factory=list)
    calls: list[list[CollectiveCall]] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for case in (CASES[0], CASES[3], CASES[4]):
            on_real(answer, ranks, _program(case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case in CASES:
        for size in SIZES:
            stumbled = (f"the mean of gradients of {case.what}", case.why) if case.why else None
            ran = on_virtual(answer, comm, size, _program(case, True), functools.partial(_judge, case), stumbled)
            if ran.run.messages.any():
                why = "comm.Iallreduce begins an all-reduce and returns a request; its Wait completes it."
                got = f"{int(ran.run.messages.sum())} messages from rank to rank"
                raise ran.wrong(None, "a non-blocking all-reduce for each bucket", got, why)
        if case is CASES[1]:  # before what is rarer
            for size in (4, 2):
                on_virtual(answer, comm, size, _program(TIMED, True, _layer_seconds(size)), _overlaps, link=SLOW)


# -- programs of ranks --


def _program(case: BucketCase, counts: bool = False, layer: float = 0.0) -> Program:
    """Some steps. counts: collective calls, of virtual ranks. layer: seconds of a layer's backward on their clock."""

    def program(own: Answer, comm: Any) -> Facts:
        facts, model = Facts(), case.network()
        made = comm.world.collectives[comm.me] if counts else []
        if layer:
            for name, p in model.named_parameters():
                if name.endswith("weight"):
                    p.register_post_accumulate_grad_hook(lambda _: compute(comm, layer, "backward"))
        mean = own.call(NAME, comm, model, case.bucket_bytes)
        wait = attribute(mean, "wait", f"a {NAME}", "The class keeps the methods that its task names.")
        if counts:
            comm.Barrier()
        for step in range(STEPS):
            facts.begun.append(comm.world.clock[comm.me] if counts else 0.0)
            before = len(made)
            own.run(case.loss(model, comm.rank, step).backward, "backward")
            facts.early.append(len(made) - before)
            own.run(wait, "wait")
            facts.ended.append(comm.world.clock[comm.me] if counts else 0.0)
            _shapes(model)
            facts.grads.append(gradients(model))
            if counts:
                facts.calls.append(made[before:])
            descend(model)
        return facts

    return program


def _shapes(model: torch.nn.Module) -> None:
    """Raise Wrong where a gradient has another shape than its parameter, as one can that was set by .grad.data."""
    for name, p in model.named_parameters():
        if p.grad is not None and p.grad.shape != p.shape:
            what = f"a gradient of {name} of shape {tuple(p.shape)}"
            raise Wrong(what, f"{tuple(p.grad.shape)}", "A gradient has the shape of its parameter.")


def _layer_seconds(size: int) -> float:
    """What a layer of TIMED computes in backward."""
    link = SLOW.slowest(range(size))
    return LONGER * seconds("Iallreduce", size, TIMED.bucket_bytes, link.latency, 1 / link.bandwidth)


# -- judgement --


@functools.cache
def _own(case: BucketCase, size: int) -> list[list[Grads]]:
    return by_rank(case, size)


def _judge(case: BucketCase, facts: Sequence[Facts]) -> Finding | None:
    size, parameters = len(facts), dict(case.drawn.named_parameters())
    for step in range(STEPS):
        for name, p in parameters.items():
            want = mean_of([grads[name] for grads in _own(case, size)[step]], p)
            for rank in range(size):
                if finding := _value(case, facts, step, rank, name, p, want):
                    return finding
        rows = {f"{name}.grad": [fact.grads[step][name] for fact in facts] for name in parameters}
        if finding := same_bits(rows):
            return finding
        if finding := _number(case, facts, step):
            return finding
    return None


def _value(
    case: BucketCase,
    facts: Sequence[Facts],
    step: int,
    rank: int,
    name: str,
    p: torch.Tensor,
    want: np.ndarray,
) -> Finding | None:  # fmt: skip
    size, got = len(facts), facts[rank].grads[step][name]
    what = f"the gradient of {name} after step {step + 1} on rank {rank} of {size}, for {case.what}"
    if not p.requires_grad:
        why = "A parameter with requires_grad=False belongs to no bucket."
        return None if got is None else Finding(rank, f"{what}, which is frozen, to stay None", "an array", why)
    if got is None:
        return Finding(rank, f"{what} to be the mean of all ranks'", "None", case.why or "wait() puts it into p.grad.")
    rtol, atol = (1e-9, 1e-11) if case.dtype == torch.float64 else (1e-4, 1e-6)
    difference = first_difference(got, want, what, rtol, atol)
    if difference is None:
        return None
    why = why_of(case, step, rank, name, got, _own(case, size))
    if case.why and why == OWN:  # where nothing was missing it was right
        why = case.why
    return Finding(rank, *difference, why or case.why)


def _number(case: BucketCase, facts: Sequence[Facts], step: int) -> Finding | None:
    most = len(case.buckets)
    for rank, fact in enumerate(facts):
        if not fact.calls or not fact.calls[step]:  # real ranks are not counted; one rank alone need not call anybody
            continue
        calls, what = fact.calls[step], f"in a step of {case.what}"
        if len(calls) != most:
            asked = f"{most} collective calls {what}: one for each bucket of {case.bucket_bytes} bytes"
            got = f"{len(calls)} ({', '.join(sorted({call.name for call in calls}))})"
            return Finding(rank, asked, got, number_why(len(calls), most))
        if case.make is Branches and fact.early[step] < most - 1:
            asked = f"at least {most - 1} of {most} all-reduces to begin during backward {what}"
            return Finding(rank, asked, str(fact.early[step]), ONE_AT_A_TIME)
    return None


def _overlaps(facts: Sequence[Facts]) -> Finding | None:
    """Whether most of the all-reduces are hidden behind backward, in the last step."""
    size = len(facts)
    backward = LAYERS * _layer_seconds(size)
    alone = backward / LONGER  # of all all-reduces
    took = max(f.ended[-1] for f in facts) - min(f.begun[-1] for f in facts)
    if took <= backward + 0.5 * alone:
        return None
    calls = facts[0].calls[-1]
    blocking = sorted({call.name for call in calls if not call.name.startswith("I")})
    first = min((call.at for call in calls), default=0.0) - facts[0].begun[-1]
    carried = sum(call.nbytes for call in calls) / (LAYERS * TIMED.bucket_bytes)
    if carried > 1.5:
        why = f"These calls carry {carried:.1f} times the bytes of all gradients. All that is needed is their sum."
    elif blocking:
        why = (
            f"comm.{blocking[0]} returns when the result is there, and backward waits for it. comm.Iallreduce begins "
            "an all-reduce and returns a request at once; wait() waits for the requests."
        )
    elif first >= 0.99 * backward and facts[0].calls[0][0].at - facts[0].begun[0] < 0.5 * backward:
        why = "In the first step they overlap, and later not: what counts what is ready begins anew in each step."
    elif first >= 0.99 * backward:
        why = (
            "All of them begin when backward is over. A hook begins a bucket as soon as the last of its gradients is "
            "computed. Backward computes those of the last layer first, so the first bucket has the last parameters. "
            "(A lambda that is made in a loop sees the loop's last value, unless a default keeps its own: i=i.)"
        )
    else:
        why = "A bucket begins as soon as the last of its gradients is computed, and is waited for in wait() only."
    asked = (
        f"a step of about {1e3 * (backward + alone / LAYERS):.1f} ms on {size} ranks: backward takes "
        f"{1e3 * backward:.1f}, and of {LAYERS} all-reduces of {1e3 * alone / LAYERS:.1f} each all but the last overlap"
    )
    return Finding(None, asked, f"{1e3 * took:.1f} ms", why)
