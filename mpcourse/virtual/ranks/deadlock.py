"""No rank can go on: which rank waits for which, and in which circle."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpcourse.common.deadlock import Call, Kind, Sent, Wait, circle, listed, meaning
from mpcourse.virtual.ranks.errors import ClusterError, Deadlock
from mpcourse.virtual.ranks.matching import ANY
from mpcourse.virtual.ranks.place import asked, place
from mpcourse.virtual.ranks.request import Request

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.waiting import Waiter
    from mpcourse.virtual.ranks.world import World


def explain(world: "World") -> Deadlock:
    """Return the deadlock that `world` is in."""
    waits = waiting(world)
    cycle = circle(waits)
    lines = ["deadlock: no rank can go on"]
    lines += [f"  {told(wait)}" for wait in waits]
    returned = sorted(world.done)
    if returned:
        lines.append(f"  {listed(returned)} {'have' if len(returned) > 1 else 'has'} returned")
    if cycle:
        lines.append("circle: " + " -> ".join(f"rank {r}" for r in (*cycle, cycle[0])) + " (each waits for the next)")
    if not any(wait.calls for wait in waits):
        lines.append(
            "They ask again and again, and no rank goes on to what the others ask for: asking alone sends nothing."
        )
    else:
        lines.append(meaning(waits, dict.fromkeys(returned), _not_received(world)))
    return Deadlock("deadlock", "\n".join(lines), waits, cycle)


def waiting(world: "World") -> list[Wait]:
    """Return the ranks that wait for others, and where."""
    return [_wait(world, r, w) for r, w in enumerate(world.waiters) if w.frame is not None]


def told(wait: Wait) -> str:
    """Say where a rank waits, and for which ranks."""
    return f"{wait}{f', for {listed(wait.peers)}' if wait.peers else ''}"


def stalled(world: "World", alive: Sequence[int]) -> ClusterError:
    """Return the error for a fault of the cluster, in which no thread runs; it says where each rank of `alive` is."""
    waits = {wait.rank: wait for wait in waiting(world)}
    lines = ["no virtual rank has gone on for 5 seconds, and none of them computes or sleeps:"]
    for rank in range(world.size):
        if rank in world.done:
            lines.append(f"  rank {rank} has returned")
        elif rank not in alive:
            lines.append(f"  rank {rank} has ended in the middle of its program")
        elif rank in waits:
            lines.append(f"  {told(waits[rank])}")
        else:
            call, caller = asked(world.frame_of(rank))
            lines.append(f"  rank {rank} " + (f"is in {call}, {place(caller)}" if call else "has not begun"))
    lines.append("This is a fault of mpcourse, not of the program: please report it together with the program.")
    return ClusterError("stalled", "\n".join(lines), list(waits.values()))


def _wait(world: "World", rank: int, waiter: "Waiter") -> Wait:
    pending = [q for q in waiter.requests if q.end is None and not q.over]
    text = asked(waiter.frame)[0] if waiter.requests else waiter.call()
    calls = [_call(world, q) for q in pending]
    if pending:
        text = " and ".join(dict.fromkeys(q.call for q in pending[:3])) + (", ..." if len(pending) > 3 else "")
        if any(not q.blocking for q in pending):
            text = f"the wait for {text}"
    elif waiter.message is not None:  # the rank probes
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
