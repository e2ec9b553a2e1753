"""Explain a run that did not end: who waits where, and what the pattern of waiting usually means."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mpcourse.common.deadlock import Call, Sent, Wait, kind_of, meaning
from mpcourse.course.check.monitor import STILL, Ending
from mpcourse.course.check.status_page import ANY, NONE, Entry, Noted


@dataclass
class Hang:
    """The part of a verdict that speaks of a hang."""

    kind: str
    headline: str
    rank: int | None = None
    line: int | None = None
    details: list[str] = field(default_factory=list)
    why: str = ""


def explained(ending: Ending, code: Callable[[int | None], str]) -> Hang:
    """Explain an ending of the kind "deadlock", "still" or "slow"."""
    running = [i for i, e in ending.entries.items() if i not in ending.reports and e.stage in ("loading", "running")]
    details = [_where(ending, i, code) for i in sorted(ending.entries)]
    if ending.kind == "deadlock":
        waiting = [i for i in sorted(ending.entries) if ending.entries[i].stage == "waiting"]
        first = waiting[0] if waiting else 0
        return Hang(
            "deadlock",
            "no rank can go on: what is waited for will never come",
            ending.entries[first].rank,
            ending.lines.get(first),
            details,
            _why_blocked({i: ending.entries[i] for i in sorted(ending.entries)}),
        )
    first = running[0] if running else min(ending.entries, default=0)
    rank, line = ending.entries[first].rank, ending.lines.get(first)
    place = code(line) or "an unknown line"
    details = [_where(ending, i, code) for i in sorted(ending.entries) if i != first]  # the headline tells the first
    if ending.kind == "still":
        headline = f"rank {rank} has not come further for {STILL:g} s; it is at {place}"
        why = "An endless loop, or a wait for something that never comes. What must happen for this line to be left?"
        return Hang("no progress", headline, rank, line, details, why)
    if not ending.inside:
        headline = "the check did not finish in its time, and your code was not running when that was up"
        return Hang("out of time", headline, why="The machine may be busy with something else: check once more.")
    headline = f"the ranks keep talking and do not finish; rank {rank} is at {place}"
    why = "A loop that communicates has no end. How many rounds does it need?"
    return Hang("endless", headline, rank, line, details, why)


def _where(ending: Ending, number: int, code: Callable[[int | None], str]) -> str:
    entry, line = ending.entries[number], code(ending.lines.get(number))
    if number in ending.reports or entry.stage == "returned":
        if not entry.last.text:
            return f"rank {entry.rank} has returned, and called nothing"
        return f"rank {entry.rank} has returned; its last call was {entry.last.text}, line {entry.last.line}"
    if entry.stage == "waiting":
        return f"rank {entry.rank} waits in {entry.last.text}, {line}"
    return f"rank {entry.rank} is at {line or 'an unknown line'}"


def _why_blocked(entries: dict[int, Entry]) -> str:
    """Infer the misconception behind a deadlock from the calls in which ranks wait and the others' last calls."""
    by_rank = {e.rank: e for e in entries.values()}
    waiting = {rank: e.last for rank, e in by_rank.items() if e.stage == "waiting"}
    returned = {rank: e.last for rank, e in by_rank.items() if e.stage == "returned"}
    calls = {rank: _call(rank, noted, by_rank) for rank, noted in (waiting | returned).items() if noted.name}
    waits = [Wait(r, noted.text, calls[r].peers, "", (calls[r],)) for r, noted in waiting.items() if r in calls]
    sent = [Sent(r, calls[r].peers[0], calls[r].tag or 0) for r in returned if r in calls and calls[r].kind == "send"]
    return meaning(waits, {rank: calls.get(rank) for rank in returned}, sent)


def _call(rank: int, noted: Noted, by_rank: dict[int, Entry]) -> Call:
    kind = kind_of(noted.name)
    if kind == "collective":
        others = [r for r, e in sorted(by_rank.items()) if not (e.stage == "waiting" and e.last.name == noted.name)]
        return Call(noted.name, kind, tuple(others), root=None if noted.root == NONE else noted.root)
    anybody = noted.peer == ANY
    peers = tuple(r for r in sorted(by_rank) if r != rank) if anybody else (noted.peer,)
    return Call(noted.name, kind, peers, noted.tag if noted.tag >= 0 else None, any_source=anybody)
