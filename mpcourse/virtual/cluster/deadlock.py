"""Nobody can go on: who waits for whom, in which circle, and what such a pattern usually means."""

import os
from types import FrameType
from typing import TYPE_CHECKING

from mpcourse.virtual.cluster.errors import Deadlock, Wait
from mpcourse.virtual.cluster.matching import ANY
from mpcourse.virtual.cluster.request import Request
from mpcourse.virtual.line import told

if TYPE_CHECKING:
    from mpcourse.virtual.cluster.waiting import Waiter
    from mpcourse.virtual.cluster.world import World

_CLUSTER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(_CLUSTER))) + os.sep


def explain(world: "World") -> Deadlock:
    """The deadlock that `world` is in."""
    waits = [_wait(world, r, w) for r, w in enumerate(world.waiters) if w.frame is not None]
    cycle = _cycle(waits)
    lines = ["deadlock: no rank can go on"]
    lines += [f"  {wait}{_for(wait)}" for wait in waits]
    returned = sorted(world.done)
    if returned:
        lines.append(f"  rank{'s' if len(returned) > 1 else ''} {_list(returned)} {_has(returned)} returned")
    if cycle:
        lines.append("circle: " + " -> ".join(f"rank {r}" for r in (*cycle, cycle[0])) + " (each waits for the next)")
    lines.append(_why(world, waits, cycle))
    return Deadlock("deadlock", "\n".join(lines), waits, cycle)


def _wait(world: "World", rank: int, waiter: "Waiter") -> Wait:
    pending = _pending(waiter)
    call, peers = waiter.call, set[int]()
    for q in pending:
        peers |= _peers(world, q)
    if pending:
        call = " and ".join(dict.fromkeys(q.call for q in pending[:3])) + (", ..." if len(pending) > 3 else "")
        if any(not q.blocking for q in pending):
            call = f"the wait for {call}"
    elif waiter.message is not None:
        context, source, _ = waiter.message
        comm = next(c for c in world.communicators if c.context == context)
        peers = set(comm.ranks) - {rank} if source == ANY else {comm.ranks[source]}
    return Wait(rank, call, tuple(sorted(peers)), place(waiter.frame))


def _pending(waiter: "Waiter") -> list[Request]:
    """What a rank waits for."""
    begun = (each.begun for each in waiter.requests)
    return [q for q in begun if q.end is None and not q.over]


def _peers(world: "World", q: Request) -> set[int]:
    """The ranks of the world that could end a wait for `q`."""
    if q.collective:
        return set(world.missing(q))
    ranks = q.comm.ranks
    return set(ranks) - {q.owner} if q.peer == ANY else {ranks[q.peer]}


def place(frame: FrameType | None) -> str:
    """The line of the program in which a rank is: `ring.py:12`, and whose call led there."""
    found: list[tuple[str, int]] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_CLUSTER):
            if not found:
                found.append((file, frame.f_lineno))
            if not file.startswith(_LIBRARY):
                if (file, frame.f_lineno) != found[0]:
                    found.append((file, frame.f_lineno))
                break
        frame = frame.f_back
    return ", called from ".join(map(told, found)) or "an unknown line"


def _cycle(waits: list[Wait]) -> list[int]:
    """Ranks that wait for each other in a circle, as short as one can be found."""
    waiting = {w.rank: [p for p in w.peers if p != w.rank] for w in waits}
    best: list[int] = []
    for first in waiting:
        came_from: dict[int, int] = {first: -1}
        queue = [first]
        for rank in queue:
            for peer in waiting.get(rank, ()):
                if peer == first:
                    path = [rank]
                    while came_from[path[-1]] != -1:
                        path.append(came_from[path[-1]])
                    if not best or len(path) < len(best):
                        best = path[::-1]
                elif peer in waiting and peer not in came_from:
                    came_from[peer] = rank
                    queue.append(peer)
    return best


def _why(world: "World", waits: list[Wait], cycle: list[int]) -> str:
    """What this pattern usually means."""
    pending = {w.rank: _pending(waiter) for w in waits if (waiter := world.waiters[w.rank])}
    asked = [q for qs in pending.values() for q in qs]
    if not asked and all(world.waiters[w.rank].message is None for w in waits):
        return "They ask again and again, and nobody goes on to what the others ask for: asking alone sends nothing."
    collective = [q for q in asked if q.collective]
    own = next((q for q in asked if not q.collective and q.peer != ANY and q.comm.ranks[q.peer] == q.owner), None)
    if own is not None:
        verb = "receives from" if own.receives else "sends to"
        return f"Rank {own.owner} {verb} itself and waits for it: its own part needs no message."
    for r in asked:  # a message is there, but with another tag
        if r.receives and not r.collective:
            for s in world.mail.boxes[r.comm.context, r.owner].messages():
                if r.peer in (ANY, s.source):
                    return (
                        f"Rank {s.owner} sent with tag {s.tag} ({world.told(s.line)}), rank {r.owner} waits for tag "
                        f"{r.tag}: a receive takes its own tag only."
                    )
    if collective:
        q = collective[0]
        missing = world.missing(q)
        return (
            f"{q.name} is a collective call: every rank of the communicator must make it, and rank"
            f"{'s' if len(missing) > 1 else ''} {_list(missing)} did not."
        )
    for q in asked:
        peer = None if q.peer == ANY else q.comm.ranks[q.peer]
        if peer in world.done:
            left = "sending it" if q.receives else "receiving it"
            other = "waits for a message from" if q.receives else "sends to"
            return f"Rank {q.owner} {other} rank {peer}, which has returned without {left}."
    if asked and cycle and all(q.receives and q.name.lower().startswith("sendrecv") for r in cycle for q in pending[r]):
        return (
            "All of them have sent, each to a rank that waits for another one. If rank a receives from rank b, then "
            "rank b has to send to rank a."
        )
    if asked and cycle and all(q.receives for r in cycle for q in pending[r]):
        return "Each of them receives before it sends. One side must send first, or use Sendrecv."
    if asked and cycle and not any(q.receives for r in cycle for q in pending[r]):
        return (
            "Each of them sends first, and no send is sure to end before its receive begins: small messages often pass "
            "on real machines, larger ones hang. One side must receive first, or use Sendrecv."
        )
    return "Draw who sends to whom, and in which order: each receive needs one send with its source and tag."


def _for(wait: Wait) -> str:
    if not wait.peers:
        return ""
    return f", for rank{'s' if len(wait.peers) > 1 else ''} {_list(wait.peers)}"


def _list(ranks: list[int] | tuple[int, ...]) -> str:
    told = [str(r) for r in ranks[:8]] + (["..."] if len(ranks) > 8 else [])
    return ", ".join(told)


def _has(ranks: list[int]) -> str:
    return "have" if len(ranks) > 1 else "has"
