"""What e06_multi_node_optimizer is asked: to train on many ranks as one process would with all their examples."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Judge, on_real, on_virtual, same_bits
from mpcourse.course.check.cases.on_optimizers import (
    BATCH,
    STEPS,
    Training,
    TrainingSeen,
    Values,
    Way,
    program,
    right,
    trained,
    zeroing_alone,
)
from mpcourse.course.check.cases.on_optimizers_why import after_making, why
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import OnVirtualRank
from mpcourse.course.check.wrong import Wrong

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

_MISSING = (
    "A parameter may have a gradient on one rank and None on another, or on none at all. All ranks must sum the same "
    "parameters in the same order: where it is None it counts as zeros. Find out together who has one, before the sums."
)
_GROUPS = (
    "An optimizer has one group or several, and a frozen parameter in them has no gradient: go through all groups, and "
    "pass over what no rank has a gradient for."
)
TRAININGS = (  # why an answer that was right until then stumbles over it; numbers of ranks
    (Training("momentum SGD"), "", SIZES),
    (Training("Adam", adam=True), "", (3, 2)),
    (Training("SGD with two groups, one of them with a frozen parameter", groups=True), _GROUPS, (3,)),
    (Training("SGD where gradients are missing", missing=True, decay=0.1), _MISSING, (3, 1)),
    (Training("Adam with all of this", adam=True, missing=True, groups=True, decay=0.1), _MISSING, SIZES),
)
_MADE = Training("making one", groups=True)
_COPIES = (  # what is right where a method hands out the tensor itself, and goes wrong where it makes a copy
    (
        Training("making one", turned=True),
        "This parameter is transposed, so that contiguous(), reshape(-1) and flatten() make a copy of it: that became "
        "rank 0's, and the parameter did not. Broadcast into a buffer, and write it in place: p.data.copy_(buffer).",
    ),
    (
        Training("making one", single=True),
        "This parameter is float32, so that double() makes a copy of it: that became rank 0's, and the parameter did "
        "not. Broadcast it as it is, or write what came in place: p.data.copy_(buffer).",
    ),
)
_SUMMED_COPY = (
    "This gradient is transposed, so that contiguous(), reshape(-1) and flatten() make a copy of it: was that averaged "
    "and p.grad left as it was? Put the mean back into p.grad."
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    others = turned(comm)
    for ranks in (comm, others):
        for training in (TRAININGS[0][0], TRAININGS[-1][0]):
            alone = ranks is others and comm.rank == comm.size - 1
            own = replace(training, seed=int(alone))
            on_real(answer, ranks, program(own), _judge(own, ranks.size))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for size in SIZES:
        on_virtual(answer, comm, size, program(_MADE, steps=0), after_making)
    for training, hint, sizes in TRAININGS:
        for size in sizes:
            stumbled = (f"{training.what} on {counted(size, 'rank')}", hint) if hint else None
            judge = _judge(training, size)
            on_virtual(answer, comm, size, program(training), judge, stumbled)
    for training, copied in _COPIES:
        _unless_refused(answer, comm, training, 0, functools.partial(after_making, copied=copied))
    turned = Training("SGD with a transposed parameter", turned=True)
    _unless_refused(answer, comm, turned, STEPS, _copied(_judge(turned, 3)))
    asked = "rank 2 to come back from zero_grad(), which it calls alone"
    why = (
        "A rank may call zero_grad on its own: it concerns this rank's gradients, and needs no message and no Barrier."
    )
    on_virtual(answer, comm, 3, zeroing_alone, lambda facts: None, (asked, why))


def _unless_refused(answer: Answer, comm: HasStatusPage, training: Training, steps: int, judge: Judge) -> None:
    """Judge a training of three ranks in which an answer may raise an error: then nobody is misled."""
    try:
        on_virtual(answer, comm, 3, program(training, steps), judge)
    except OnVirtualRank as error:
        if isinstance(error.error, Wrong):
            raise


def _copied(judge: Judge) -> Judge:
    def judged(facts: Sequence[TrainingSeen]) -> Finding | None:
        finding = judge(facts)
        return finding._replace(why=_SUMMED_COPY) if finding else None

    return judged


@functools.cache
def _wanted(training: Training, size: int) -> list[Values]:
    return [ranks[0] for ranks in trained(training, size, Way(right))]


def _judge(training: Training, size: int) -> Judge:
    wanted = _wanted(training, size)  # also imports what torch.optim needs, before any rank is timed

    def judge(facts: Sequence[TrainingSeen]) -> Finding | None:
        finding = after_making(facts)
        for step in range(STEPS):
            finding = finding or _zeroed(facts, step) or _stepped(training, facts, step, wanted[step])
        last = {name: [seen.values[-1][name] for seen in facts] for name in facts[0].values[-1]}
        return finding or same_bits(last)

    return judge


def _zeroed(facts: Sequence[TrainingSeen], step: int) -> Finding | None:
    for rank, seen in enumerate(facts):
        what = f"no gradients after zero_grad() in step {step + 1}, on rank {rank}"
        if seen.zeros[step] and seen.zeros[step] == seen.left[step]:
            says = (
                "zero_grad leaves None: what has no part in the next loss is then passed over. With zeros weight decay "
                "and momentum move it. The wrapped optimizer's own zero_grad() does that, without arguments."
            )
            return Finding(rank, what, f"zeros for {', '.join(seen.zeros[step])}", says)
        if seen.left[step]:
            says = "backward adds to what is there, so that each step would use all gradients so far: pass it on."
            return Finding(rank, what, f"those of {', '.join(seen.left[step])} from the step before", says)
    return None


def _all_near(rows: Sequence[Values], want: Values) -> bool:
    """Whether all ranks have what is wanted: of all numbers at once, for to compare a few takes as long as many."""
    if any(row[name].shape != wanted.shape for row in rows for name, wanted in want.items()):
        return False
    got = np.stack([np.concatenate([row[name].ravel() for name in want]) for row in rows])
    return np.allclose(got, np.concatenate([wanted.ravel() for wanted in want.values()]), 1e-9, 1e-11)


def _stepped(training: Training, facts: Sequence[TrainingSeen], step: int, want: Values) -> Finding | None:
    size = len(facts)
    if _all_near([seen.values[step] for seen in facts], want):
        return None
    for rank, seen in enumerate(facts):
        for name, wanted in want.items():
            got = seen.values[step][name]
            if got.shape == wanted.shape and np.allclose(got, wanted, 1e-9, 1e-11):
                continue
            alone = f"{size} ranks with {BATCH} examples each" if size > 1 else "a rank alone"
            i = int(np.flatnonzero(~np.isclose(got, wanted, 1e-9, 1e-11))[0]) if got.shape == wanted.shape else 0
            place = f"{name}{[int(k) for k in np.unravel_index(i, wanted.shape)]}"
            what = f"{place} on rank {rank} after step {step + 1} as in one process: {wanted.flat[i].item()!r}"
            says = why(training, facts, rank, name, step)
            return Finding(rank, what, f"{got.flat[i].item()!r} ({training.what}, {alone})", says)
    return None
