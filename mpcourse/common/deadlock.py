"""Explain what a deadlock most likely means, from the calls in which virtual or real ranks wait.

Ranks are numbered in one communicator. Nothing here needs MPI, because another process may explain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["receive", "send", "collective"]
_RECEIVES = ("recv", "probe", "mprobe", "sendrecv", "sendrecv_replace")
_SENDS = ("send", "ssend", "rsend", "bsend")


def kind_of(name: str) -> Kind:
    """Say what a method of a communicator does. "irecv" and "Recv_init" receive; a sendrecv waits for its message."""
    plain = name.lower().removesuffix("_init")
    for begun in (plain, plain.removeprefix("i")):
        if begun in _RECEIVES:
            return "receive"
        if begun in _SENDS:
            return "send"
    return "collective"


@dataclass(frozen=True)
class Call:
    """A call on a communicator.

    name: of the method, e.g. "Recv". kind: what it does. peers: the ranks that can end the call, each of them alone;
    for a collective call, the ranks that have not made it. tag: None if any tag fits, or if there is none. root: None
    if the call has none. any_source: whether it receives from any rank. comm: a number that tells communicators apart.
    """

    name: str
    kind: Kind
    peers: tuple[int, ...] = ()
    tag: int | None = None
    root: int | None = None
    any_source: bool = False
    comm: int = 0


@dataclass(frozen=True)
class Wait:
    """A rank that cannot go on.

    call: as messages show it, e.g. "Recv(source=1, tag=0)". peers: the ranks that it waits for. line: of the program,
    e.g. "ring.py:12". calls: what it waits for; a Waitall has several.
    """

    rank: int
    call: str
    peers: tuple[int, ...]
    line: str
    calls: tuple[Call, ...] = ()

    def __str__(self) -> str:
        return f"rank {self.rank} waits in {self.call}, {self.line}"


@dataclass(frozen=True)
class Sent:
    """A message that was not received.

    line: where it was sent, empty if unknown. comm: a number that tells communicators apart.
    """

    source: int
    dest: int
    tag: int
    line: str = ""
    comm: int = 0


def circle(waits: Sequence[Wait]) -> list[int]:
    """Return the shortest circle of ranks in which each waits for the next, and the last for the first, or []."""
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


def meaning(waits: Sequence[Wait], returned: Mapping[int, Call | None], sent: Sequence[Sent] = ()) -> str:
    """Explain the misconception behind a deadlock, in one or two sentences.

    returned: the ranks that have returned, each with its last call if it is known. sent: messages not received.
    """
    asked = [(wait.rank, call) for wait in waits for call in wait.calls]
    for rank, call in asked:
        if call.kind != "collective" and call.peers == (rank,):
            verb = "receives from" if call.kind == "receive" else "sends to"
            return f"Rank {rank} {verb} itself and waits for it: its own part needs no message."
    return (
        _two_collectives(asked)
        or _other_tag(asked, sent)
        or _not_by_all(asked)
        or _left_by(asked, returned)
        or _in_circle(waits)
        or "Draw who sends to whom, and in which order: each receive needs one send with its source and tag."
    )


def _two_collectives(asked: Sequence[tuple[int, Call]]) -> str:
    """Explain that ranks are in different collective calls of one communicator."""
    for comm in sorted({call.comm for _, call in asked}):
        collective = [(rank, call) for rank, call in asked if call.kind == "collective" and call.comm == comm]
        names = sorted({call.name for _, call in collective})
        if len(names) > 1:
            return (
                f"{' and '.join(names)} are collective calls: every rank of the communicator must make the same ones, "
                "in the same order."
            )
        roots = {rank: call.root for rank, call in collective if call.root is not None}
        if len(set(roots.values())) > 1:
            named = ", ".join(f"rank {rank} names {root}" for rank, root in sorted(roots.items()))
            return f"Every rank must name the same root in {names[0]}: it says who collects, not who calls. {named}."
    return ""


def _other_tag(asked: Sequence[tuple[int, Call]], sent: Sequence[Sent]) -> str:
    """Explain that a message has arrived, but with another tag."""
    for rank, call in asked:
        for message in sent:
            fits = call.comm == message.comm and message.dest == rank and message.source in call.peers
            if call.kind == "receive" and fits and call.tag is not None and call.tag != message.tag:
                where = f" ({message.line})" if message.line else ""
                return (
                    f"Rank {message.source} sent with tag {message.tag}{where}, rank {rank} waits for tag {call.tag}: "
                    "a receive takes its own tag only."
                )
    return ""


def _not_by_all(asked: Sequence[tuple[int, Call]]) -> str:
    for _, call in asked:
        if call.kind == "collective" and call.peers:
            why = (
                f"{call.name} is a collective call: every rank of the communicator must make it, and "
                f"{listed(call.peers)} did not."
            )
            named = f" Its root is rank {call.root}, for it says root={call.root}; without that it is rank 0."
            return why + (named if call.root else "")
    return ""


def _left_by(asked: Sequence[tuple[int, Call]], returned: Mapping[int, Call | None]) -> str:
    """Explain that a rank waits for a rank that has returned."""
    for rank, call in asked:
        if not call.peers or any(peer not in returned for peer in call.peers):
            continue
        if call.any_source:
            return (
                f"Rank {rank} waits for a message from any rank, and the others have returned without sending it one."
            )
        peer, last = call.peers[0], returned[call.peers[0]]
        if call.kind == "send":
            return f"Rank {rank} sends to rank {peer}, which has returned without receiving it."
        if last and last.kind == "collective" and not last.name.startswith(("I", "i")):
            return (
                f"Rank {peer} called {last.name}, which is collective: only the same call on every rank answers it, no "
                "receive."
            )
        return f"Rank {rank} waits for a message from rank {peer}, which has returned without sending it."
    return ""


def _in_circle(waits: Sequence[Wait]) -> str:
    ranks = circle(waits)
    calls = [call for wait in waits if wait.rank in ranks for call in wait.calls]
    if not calls:
        return ""
    sendrecv = "sendrecv" if calls[0].name.islower() else "Sendrecv"
    if all(call.kind == "receive" and call.name.lower().startswith("sendrecv") for call in calls):
        return (
            "All of them have sent, each to a rank that waits for another one. If rank a receives from rank b, then "
            "rank b has to send to rank a."
        )
    if all(call.kind == "receive" for call in calls):
        return f"Each of them receives before it sends. One side must send first, or use {sendrecv}."
    if all(call.kind == "send" for call in calls):
        return (
            "Each of them sends first, and no send is sure to end before its receive begins: small messages often pass "
            f"on real machines, larger ones hang. One side must receive first, or use {sendrecv}."
        )
    return ""


def listed(ranks: Sequence[int], most: int = 8) -> str:
    """List ranks: "rank 1", "ranks 1, 2". Of many ranks it names the first `most`."""
    numbers = [str(rank) for rank in ranks[:most]] + (["..."] if len(ranks) > most else [])
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(numbers)}"
