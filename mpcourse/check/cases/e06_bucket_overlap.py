"""What e06_bucket_overlap is asked: means of gradients, in few collective calls, most of them during backward."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.check.answer import Answer
from mpcourse.check.cases.on_buckets import (
    OWN,
    STEPS,
    Branches,
    Case,
    Chain,
    Grads,
    Missing,
    Mixed,
    by_rank,
    descend,
    gradients,
    mean_of,
    misread,
)
from mpcourse.check.cases.on_models import SIZES, Finding, Program, attribute, on_real, on_virtual, same_bits
from mpcourse.check.cases.on_ranks import turned
from mpcourse.check.status_page import HasLogbook
from mpcourse.check.virtual_run import LINK
from mpcourse.check.wrong import first_difference
from mpcourse.virtual import LINKS, compute
from mpcourse.virtual.cluster.collective_call import seconds

if TYPE_CHECKING:
    from mpcourse.check.traced_mpi import WatchedComm

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
    Case(Chain, "four layers, a bucket each"),
    Case(Chain, "four layers, two in a bucket", torch.float32, 2.0, "Here a bucket has more than one layer."),
    Case(
        Mixed, "a network with a weight that is used twice, a frozen bias and a parameter without dimensions",
        bucket=2.0, why="A frozen parameter has no gradient: it belongs to no bucket. What backward adds up for a "
        "weight that is used twice is complete when its hook runs.",
    ),
    Case(Branches, "two branches, which odd ranks compute in the opposite order", why=ORDER),
    Case(Missing, "a network of which not all ranks use all layers", why=MISSING),
)  # fmt: skip
COLLECTIVE = {
    "Allreduce", "Iallreduce", "allreduce", "Reduce", "Ireduce", "reduce", "Bcast", "Ibcast", "bcast", "Barrier",
    "Ibarrier", "barrier", "Allgather", "Iallgather", "allgather", "Allgatherv", "Iallgatherv", "Gather", "Igather",
    "gather", "Reduce_scatter", "Ireduce_scatter", "Reduce_scatter_block", "Ireduce_scatter_block", "Alltoall",
    "Ialltoall", "alltoall", "Scatter", "Iscatter", "scatter",
}  # fmt: skip
LAYERS, WIDE = 8, 256  # of the network whose step is timed; wide enough for bytes to take longer than latency
TIMED = Case(functools.partial(Chain, LAYERS, WIDE), f"{LAYERS} layers, a bucket each", width=WIDE)
LONGER = 1.25  # times as long as its all-reduce a layer computes there, in backward


class Call(NamedTuple):
    """A collective call: its name, when its rank made it, and the bytes of the array that it was given."""

    name: str
    at: float
    nbytes: int


class Counting:
    """A communicator that notes its collective calls."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._comm, name)
        if name not in COLLECTIVE:
            return found

        def noted(*args: Any, **kwargs: Any) -> Any:
            nbytes = max((a.nbytes for a in args if isinstance(a, np.ndarray | torch.Tensor)), default=0)
            self.calls.append(Call(name, self._comm.world.clock[self._comm.me], nbytes))
            return found(*args, **kwargs)

        return noted


@dataclass
class Facts:
    """What one rank has after each step, the step's collective calls, and when it began and ended."""

    grads: list[Grads] = field(default_factory=list)
    calls: list[list[Call]] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


def check(answer: Answer, comm: "WatchedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for case in (CASES[0], CASES[3], CASES[4]):
            on_real(answer, ranks, _program(case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasLogbook) -> None:
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
                on_virtual(answer, comm, size, _program(TIMED, True, _layer_seconds(size)), _overlaps)


# -- programs of ranks --


def _program(case: Case, counts: bool = False, layer: float = 0.0) -> Program:
    """Some steps. counts: collective calls, of virtual ranks. layer: seconds of a layer's backward on their clock."""

    def program(own: Answer, comm: Any) -> Facts:
        facts, model = Facts(), case.network()
        watched = Counting(comm) if counts else comm
        if layer:
            for name, p in model.named_parameters():
                if name.endswith("weight"):
                    p.register_post_accumulate_grad_hook(lambda _: compute(comm, layer, "backward"))
        mean = own.call(NAME, watched, model, case.bucket_bytes)
        wait = attribute(mean, "wait", f"a {NAME}", "The class keeps the methods that its task names.")
        made = len(watched.calls) if counts else 0
        if counts:
            comm.Barrier()
        for step in range(STEPS):
            facts.begun.append(comm.world.clock[comm.me] if counts else 0.0)
            own.run(case.loss(model, comm.rank, step).backward, "backward")
            own.run(wait, "wait")
            facts.ended.append(comm.world.clock[comm.me] if counts else 0.0)
            facts.grads.append(gradients(model))
            if counts:
                facts.calls.append(watched.calls[made:])
                made = len(watched.calls)
            descend(model)
        return facts

    return program


def _layer_seconds(size: int) -> float:
    """What a layer of TIMED computes in backward."""
    link = LINKS[LINK] if isinstance(LINK, str) else LINK.slowest(range(size))
    return LONGER * seconds("Iallreduce", size, TIMED.bucket_bytes, link.latency, 1 / link.bandwidth)


# -- judgement --


@functools.cache
def _own(case: Case, size: int) -> list[list[Grads]]:
    return by_rank(case, size)


def _judge(case: Case, facts: Sequence[Facts]) -> Finding | None:
    size, model = len(facts), case.network()
    parameters = dict(model.named_parameters())
    for step in range(STEPS):
        for name, p in parameters.items():
            own = [grads[name] for grads in _own(case, size)[step]]
            for rank in range(size):
                if finding := _value(case, facts, step, rank, name, p, own):
                    return finding
        rows = {f"{name}.grad": [fact.grads[step][name] for fact in facts] for name in parameters}
        if finding := same_bits(rows):
            return finding
        if finding := _number(case, facts, step):
            return finding
    return None


def _value(
    case: Case, facts: Sequence[Facts], step: int, rank: int, name: str, p: torch.Tensor, own: list[np.ndarray | None]
) -> Finding | None:
    size, got = len(facts), facts[rank].grads[step][name]
    what = f"the gradient of {name} after step {step + 1} on rank {rank} of {size}, for {case.what}"
    if not p.requires_grad:
        why = "A parameter with requires_grad=False belongs to no bucket."
        return None if got is None else Finding(rank, f"{what}, which is frozen, to stay None", "an array", why)
    if got is None:
        return Finding(rank, f"{what} to be the mean of all ranks'", "None", case.why or "wait() puts it into p.grad.")
    want = mean_of(own, p)
    rtol, atol = (1e-9, 1e-11) if case.dtype == torch.float64 else (1e-4, 1e-6)
    difference = first_difference(got, want, what, rtol, atol)
    if difference is None:
        return None
    why = _why(case, step, rank, name, got, own)
    if case.why and why == OWN:  # where nothing was missing it was right
        why = case.why
    return Finding(rank, *difference, why or case.why)


def _why(case: Case, step: int, rank: int, name: str, got: np.ndarray, own: list[np.ndarray | None]) -> str:
    size, everything = len(own), _own(case, len(own))
    if got.shape != (np.shape(next((row for row in own if row is not None), got))):
        return "A gradient has the shape of its parameter."

    def is_(other: np.ndarray) -> bool:
        return got.shape == np.shape(other) and np.allclose(got, other, 1e-6, 1e-8)

    if any(row is not None for row in own):
        others = {
            other: [grads[other] for grads in everything[step]]
            for other, row in everything[step][0].items()
            if other != name and row is not None and row.shape == got.shape
        }
        for why, made in misread(own, others, rank):
            if is_(made):
                return why
    if step:
        before = [grads[name] for grads in everything[step - 1]]
        rows = [np.zeros_like(got) if row is None else row for row in before]
        if is_(np.mean(rows, axis=0)):
            return "That is the mean of the step before: what counts what is ready begins anew in each step."
    if not got.any():
        return "These are zeros: was the bucket filled before backward had computed its gradients?"
    if size > 1:
        return "Is the request's Wait called before the sum is read, and is each part put where it belongs?"
    return ""


def _number(case: Case, facts: Sequence[Facts], step: int) -> Finding | None:
    most = len(case.buckets())
    for rank, fact in enumerate(facts):
        if fact.calls and len(fact.calls[step]) > most:
            names = sorted({call.name for call in fact.calls[step]})
            asked = (
                f"{most} collective calls in a step of {case.what}: one for each bucket of {case.bucket_bytes} bytes"
            )
            why = (
                "Gradients of a bucket travel in one array. Which parameters belong together is decided once, when the "
                "buckets are made, from the last parameter to the first."
            )
            return Finding(rank, asked, f"{len(fact.calls[step])} ({', '.join(names)})", why)
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
    names = {call.name for call in calls}
    first = min((call.at for call in calls), default=0.0) - facts[0].begun[-1]
    carried = sum(call.nbytes for call in calls) / (LAYERS * TIMED.bucket_bytes)
    if not calls:
        why = ""
    elif carried > 1.5:
        why = f"These calls carry {carried:.1f} times the bytes of all gradients. Only the gradients need be summed."
    elif not any(name.startswith("I") for name in names):
        why = (
            f"comm.{min(names)} returns when the result is there, and backward waits for it. comm.Iallreduce begins an "
            "all-reduce and returns a request at once; wait() waits for the requests."
        )
    elif first >= 0.99 * backward and facts[0].calls[0][0].at - facts[0].begun[0] < 0.5 * backward:
        why = "In the first step they overlap, and later not: what counts what is ready begins anew in each step."
    elif first >= 0.99 * backward and len(calls) > 1:
        why = (
            "All of them begin when backward is over. A hook begins a bucket as soon as the last of its gradients is "
            "computed. Backward computes those of the last layer first, so the first bucket has the last parameters."
        )
    elif len(calls) == 1:
        why = "One bucket for all begins when all gradients are there. bucket_bytes says how much a bucket takes."
    elif any(not name.startswith("I") for name in names):
        why = "Some of these calls block: in backward there is time for non-blocking ones only."
    else:
        why = "A bucket begins as soon as the last of its gradients is computed, and is waited for in wait() only."
    asked = (
        f"a step of about {1e3 * (backward + alone / LAYERS):.1f} ms on {size} ranks: backward takes "
        f"{1e3 * backward:.1f}, and of {LAYERS} all-reduces of {1e3 * alone / LAYERS:.1f} each all but the last overlap"
    )
    return Finding(None, asked, f"{1e3 * took:.1f} ms", why)
