"""Who holds up whom at a parameter server: on the virtual clock, and where no rank can go on."""

import re

from mpcourse.course.check.cases.on_models import Finding
from mpcourse.course.check.cases.on_updates import Gradient
from mpcourse.virtual import ClusterError, Event, VirtualRun

# A server that asks one worker after the other by Iprobe, asks less and less often while nothing comes.
PATIENCE = 1.0  # seconds a worker may wait for an answer, where gradients take 1 and more, and messages 0.0001
LATE = 0.5  # seconds by which such a server may take a gradient too late

IN_TURN = (
    "The gradient was there, and the server took it only then: does it receive from one rank after the other? Or does "
    "it wait until all have been served as often? MPI.ANY_SOURCE takes whoever comes first."
)
OTHERS = (
    "The server was sending to rank {}, which was busy and not receiving. An answer goes only to the worker whose "
    "gradient was applied."
)
TOGETHER = (
    "The server took the gradient at once, and the answer came late: does it collect gradients of others first? That "
    "is synchronous. Apply each and answer it before the next receive."
)
ANNOUNCED = (
    "The gradient was there, and the server took it only then. Before, it took a message that rank {} sent ahead of "
    "its gradient, and waited until that was computed. Send when the gradient is there, and nothing before."
)
COLLECTIVE = (
    "No message carried the gradient. In a collective call (Reduce, Gather, Bcast, Barrier) everybody waits for the "
    "slowest: a send and a receive concern two ranks only."
)
ALONE = "An answer concerns one worker alone: Send it to the one whose gradient was applied, for others are busy."
END = "It had its last answer and did not return: after that a worker waits for nobody, in no Barrier and no Bcast."
BEGIN = "The first weights go to all workers before any gradient is taken, so that all compute at the same time."


def held_up(run: VirtualRun, gradients: dict[int, Gradient], seconds: dict[int, float]) -> Finding | None:
    """The first worker that waits for another one. seconds: what a gradient takes each of them."""
    waits = []
    for rank, gradient in gradients.items():
        free = [0.0] + [step.ended for step in gradient.steps]
        busy = [step.begun for step in gradient.steps] + [run.clock[rank]]
        waits += [
            (a, b, rank, k)
            for k, (a, b) in enumerate(zip(free, busy, strict=True))
            if b - a > max(PATIENCE, seconds[rank] / 2)
        ]
    if not waits:
        return None
    begun, ended, rank, k = min(waits)
    others = [
        r for r, g in gradients.items() if r != rank and any(s.begun < ended and s.ended > begun for s in g.steps)
    ]
    slow = max(others, key=lambda r: seconds[r], default=None)
    other = "" if slow is None else f", while rank {slow} computes for {seconds[slow]:g} s each time"
    asked = f"rank {rank} to go on at once after its gradient number {k}{other}"
    if k == 0:
        asked = f"rank {rank} to get its first weights at once"
    got = f"it waited {ended - begun:.1f} s; its own gradients take {seconds[rank]:g} s"
    return Finding(rank, asked, got, BEGIN if k == 0 else _why(run.events, gradients, rank, begun, ended))


def _why(events: list[Event], gradients: dict[int, Gradient], rank: int, begun: float, ended: float) -> str:
    """Why a worker waited from `begun` to `ended`."""
    last = begun >= gradients[rank].steps[-1].ended
    between = [e for e in events if e.kind == "copy" and e.start <= ended and e.end >= begun]
    up = [e for e in between if e.lane == f"rank {rank} -> rank 0" and e.issued > begun - PATIENCE]
    down = [e for e in between if e.lane == f"rank 0 -> rank {rank}"]
    if not up:
        return END if last and not down else COLLECTIVE
    if any(e.start - e.issued > PATIENCE for e in up):
        early = (ANNOUNCED.format(r) for r, g in gradients.items() if r != rank and _announced(events, r, g, ended))
        return next((OTHERS.format(r) for r in _served_late(between, rank)), None) or next(early, IN_TURN)
    if last and any(e.end < begun + PATIENCE for e in down):
        return END
    return next((OTHERS.format(r) for r in _served_late(between, rank)), TOGETHER)


def _announced(events: list[Event], rank: int, gradient: Gradient, at: float) -> bool:
    """Whether what the server took from `rank` before time `at` had been sent before its gradient was computed.

    A request for weights is no such message, for the answer to it came in between.
    """
    begun = max((step.begun for step in gradient.steps if step.begun < at), default=0.0)
    up = [e.issued for e in events if e.lane == f"rank {rank} -> rank 0" and e.issued <= begun]
    down = [e.issued for e in events if e.lane == f"rank 0 -> rank {rank}" and e.end <= begun]
    return bool(up) and max(up) > max(down, default=-1.0)


def _served_late(between: list[Event], rank: int) -> list[int]:
    """Other workers that the server sent to long before they received."""
    late = [
        e.lane.rpartition(" ")[2] for e in between if e.lane.startswith("rank 0 ->") and e.start - e.issued > PATIENCE
    ]
    return [int(r) for r in late if int(r) != rank]


def explained(error: ClusterError, gradients: dict[int, Gradient], kept: dict[int, bool], steps: int) -> ClusterError:
    """A deadlock, with what it most likely means between a server and its workers; other errors as they are.

    kept: by worker, whether its weights are still those of its last gradient.
    """
    if error.kind != "deadlock" or re.search(r"own tag only|itself|ask again", error.text):
        return error
    *lines, why = error.text.splitlines()
    if "collective call" in why:
        if not _answers_all(error, [len(gradient.steps) for gradient in gradients.values()], steps):
            return error
        why = f"{why} {ALONE}"
    elif not (why := _why_stuck(error, gradients, kept, steps)):
        return error
    text = "\n".join([*lines, why])
    return type(error)(error.kind, text, error.waits, error.cycle)


def _answers_all(error: ClusterError, done: list[int], steps: int) -> bool:
    """Whether the server is in a Bcast between two gradients: neither in the beginning nor in the end."""
    return max(done) > 0 and min(done) < steps and any(w.rank == 0 and "bcast()" in w.call.lower() for w in error.waits)


def _why_stuck(error: ClusterError, gradients: dict[int, Gradient], kept: dict[int, bool], steps: int) -> str:
    waits = {wait.rank: wait for wait in error.waits}
    done = {rank: len(gradient.steps) for rank, gradient in gradients.items()}
    stuck = [rank for rank in gradients if rank in waits]
    hungry = [rank for rank in stuck if not _sends(waits[rank].call)]
    total = f"(comm.size - 1) * steps gradients in all, here {len(gradients) * steps}"
    if 0 not in waits:
        return _why_alone(stuck[0], stuck[0] in hungry, done[stuck[0]], steps, total)
    if not _sends(waits[0].call):
        if not stuck:
            few = [rank for rank in gradients if done[rank] < steps]
            if few:
                return f"Rank {few[0]} has returned after {done[few[0]]} gradients, and `steps` is {steps}."
            if len(waits[0].peers) == 1 and len(gradients) > 1:
                return ""
            return f"The server waits for one gradient more than workers send: it takes {total}, each in one message."
        if hungry and not any(done.values()):
            return "The server waits for a gradient, and workers wait for their first weights: send those first."
        if hungry and done[hungry[0]] == 0:
            return f"Rank {hungry[0]} waits for its first weights: every worker gets them before gradients are taken."
        if hungry:
            return (
                f"Rank {hungry[0]} waits for the answer to its gradient number {done[hungry[0]]}, and the server waits "
                "for the next one: each gradient is answered before another one is taken, also the last of a worker."
            )
        return ""
    (to,) = waits[0].peers[:1] or (0,)
    if to not in gradients:
        return ""
    if to not in waits and kept[to]:
        return (
            f"Rank {to} has returned without taking the answer to its last gradient. Each gradient is answered, the "
            "last one too, and where steps is 0, workers take the first weights."
        )
    if to not in waits:
        return f"The server sends rank {to} more than it takes: one answer for each gradient, to who sent that one."
    if _sends(waits[to].call):
        return (
            f"The server sends to rank {to}, which is sending to the server. An answer goes only to the worker whose "
            "gradient was applied, the status.Get_source() of that very receive. Or does a worker send twice before it "
            "receives?"
        )
    return ""


def _why_alone(rank: int, hungry: bool, done: int, steps: int, total: str) -> str:
    """Why `rank` waits for a server that has returned. done: how many gradients it has computed."""
    if not hungry:
        extra = "" if done <= steps else f" Rank {rank} computed {done}, and `steps` is {steps}."
        return f"The server has returned, and rank {rank} still has something to send: the server takes {total}.{extra}"
    if done == 0:
        return f"The server has returned, and rank {rank} waits for its first weights: they go to every worker, first."
    if done == steps:
        return (
            f"The server has returned without the answer to rank {rank}'s last gradient: each gradient is answered, "
            "the last one too."
        )
    return (
        f"The server has returned without an answer to rank {rank}'s gradient number {done}: each gradient is "
        f"answered, and the server takes {total}."
    )


def _sends(call: str) -> bool:
    """Whether a wait in `call` is for a send."""
    return re.match(r"(the wait for )?\w*send\(", call, re.IGNORECASE) is not None
