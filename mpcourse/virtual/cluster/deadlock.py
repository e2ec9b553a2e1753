"""Nobody can go on: who waits for whom, and in which circle."""

import os
import sys
from types import FrameType
from typing import TYPE_CHECKING

from mpcourse.deadlock import Call, Kind, Sent, Wait, circle, listed, meaning
from mpcourse.virtual.cluster.errors import Deadlock
from mpcourse.virtual.cluster.matching import ANY
from mpcourse.virtual.cluster.request import Request
from mpcourse.virtual.line import location

if TYPE_CHECKING:
    from mpcourse.virtual.cluster.waiting import Waiter
    from mpcourse.virtual.cluster.world import World

_CLUSTER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(_CLUSTER))) + os.sep


def explain(world: "World") -> Deadlock:
    """The deadlock that `world` is in."""
    waits = [_wait(world, r, w) for r, w in enumerate(world.waiters) if w.frame is not None]
    cycle = circle(waits)
    lines = ["deadlock: no rank can go on"]
    lines += [f"  {wait}{f', for {listed(wait.peers)}' if wait.peers else ''}" for wait in waits]
    returned = sorted(world.done)
    if returned:
        lines.append(f"  {listed(returned)} {'have' if len(returned) > 1 else 'has'} returned")
    if cycle:
        lines.append("circle: " + " -> ".join(f"rank {r}" for r in (*cycle, cycle[0])) + " (each waits for the next)")
    if not any(wait.calls for wait in waits):
        lines.append(
            "They ask again and again, and nobody goes on to what the others ask for: asking alone sends nothing."
        )
    else:
        lines.append(meaning(waits, dict.fromkeys(returned), _not_received(world)))
    return Deadlock("deadlock", "\n".join(lines), waits, cycle)


def _wait(world: "World", rank: int, waiter: "Waiter") -> Wait:
    pending = [q for q in (each.begun for each in waiter.requests) if q.end is None and not q.over]
    text, calls = waiter.call, [_call(world, q) for q in pending]
    if pending:
        text = " and ".join(dict.fromkeys(q.call for q in pending[:3])) + (", ..." if len(pending) > 3 else "")
        if any(not q.blocking for q in pending):
            text = f"the wait for {text}"
    elif waiter.message is not None:  # it probes
        context, source, tag = waiter.message
        ranks = world.members[context]
        peers = tuple(r for r in ranks if r != rank) if source == ANY else (ranks[source],)
        calls = [Call("Probe", "receive", peers, None if tag == ANY else tag, any_source=source == ANY, comm=context)]
    return Wait(rank, text, tuple(sorted({p for c in calls for p in c.peers})), place(waiter.frame), tuple(calls))


def _call(world: "World", q: Request) -> Call:
    if q.collective:
        return Call(q.name, "collective", tuple(world.missing(q)), comm=q.context)
    ranks, any_source = q.ranks, q.peer == ANY
    peers = tuple(r for r in sorted(ranks) if r != q.owner) if any_source else (ranks[q.peer],)
    kind: Kind = "receive" if q.receives else "send"
    return Call(q.name, kind, peers, None if q.tag == ANY else q.tag, any_source=any_source, comm=q.context)


def _not_received(world: "World") -> list[Sent]:
    by_receiver = world.matching.queues.items()
    return [
        Sent(m.owner, dest, m.tag, world.location(m.line), context)
        for (context, dest), queues in by_receiver
        for m in queues.messages()
    ]


def place(frame: FrameType | None) -> str:
    """The line of the program in which a rank is: `ring.py:12`, and whose call led there, not counting torch's."""
    lines: list[tuple[str, int]] = []
    torch = sys.modules.get("torch")  # virtual ranks need none
    libraries = (_LIBRARY, os.path.dirname(torch.__file__ or "") + os.sep) if torch else (_LIBRARY,)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_CLUSTER):
            if not lines:
                lines.append((file, frame.f_lineno))
            if not file.startswith(libraries):
                if (file, frame.f_lineno) != lines[0]:
                    lines.append((file, frame.f_lineno))
                break
        frame = frame.f_back
    return ", called from ".join(map(location, lines)) or "an unknown line"
