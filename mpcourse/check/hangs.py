"""Explain a run that did not end: who waits where, and what the pattern of waiting usually means."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mpcourse.check.monitor import STILL, Ending
from mpcourse.check.status_page import WAIT, Entry

RECEIVES = ("recv", "Recv", "probe", "Probe", "mprobe", "Mprobe")
SENDS = ("send", "Send", "ssend", "Ssend", "Rsend", "bsend", "Bsend")
PAIRED = (*RECEIVES, *SENDS, "sendrecv", "Sendrecv", "Sendrecv_replace")


@dataclass
class Told:
    """The part of a verdict that speaks of a hang."""

    kind: str
    headline: str
    rank: int | None = None
    line: int | None = None
    details: list[str] = field(default_factory=list)
    why: str = ""


def tell(ending: Ending, code: Callable[[int | None], str]) -> Told:
    """What happened, for an ending of the kind "deadlock", "still" or "slow"."""
    running = [i for i, e in ending.entries.items() if i not in ending.reports and e.stage in ("loading", "running")]
    details = [_where(ending, i, code) for i in sorted(ending.entries)]
    if ending.kind == "deadlock":
        waiting = [i for i in sorted(ending.entries) if ending.entries[i].stage == "waiting"]
        first = waiting[0] if waiting else 0
        return Told(
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
        return Told("no progress", headline, rank, line, details, why)
    if not ending.inside:
        headline = "the check did not finish in its time, and your code was not running when that was up"
        return Told("out of time", headline, why="The machine may be busy with something else: check once more.")
    headline = f"the ranks keep talking and do not finish; rank {rank} is at {place}"
    why = "A loop that communicates has no end. How many rounds does it need?"
    return Told("endless", headline, rank, line, details, why)


def _where(ending: Ending, number: int, code: Callable[[int | None], str]) -> str:
    entry, line = ending.entries[number], code(ending.lines.get(number))
    if number in ending.reports or entry.stage == "returned":
        last = f"; its last call was {entry.text}, line {entry.line}" if entry.text else ", and called nothing"
        return f"rank {entry.rank} has returned{last}"
    if entry.stage == "waiting":
        return f"rank {entry.rank} waits in {entry.text}, {line}"
    return f"rank {entry.rank} is at {line or 'an unknown line'}"


def _why_blocked(entries: dict[int, Entry]) -> str:
    """The misconception behind a deadlock, from the calls in which ranks wait and the last calls of the others."""
    waiting = {e.rank: e for e in entries.values() if e.stage == "waiting"}
    returned = {e.rank: e for e in entries.values() if e.stage == "returned"}
    names = {rank: _name(e) for rank, e in waiting.items()}
    collective = sorted({name for name in names.values() if name not in PAIRED})
    for rank, entry in waiting.items():
        if names[rank] in PAIRED and _number(entry, "source", "dest") == rank:
            verb = "receives from" if names[rank] in RECEIVES else "sends to"
            return f"Rank {rank} {verb} itself: its own part needs no message, just use it."
    if len(collective) > 1:
        return (
            f"{' and '.join(collective)} are collective calls: every rank of the communicator must make the same ones, "
            "in the same order."
        )
    roots = {rank: root for rank, e in waiting.items() if (root := _number(e, "root")) is not None}
    if len(set(roots.values())) > 1:
        named = ", ".join(f"rank {rank} names {root}" for rank, root in sorted(roots.items()))
        return f"Every rank must name the same root in {collective[0]}: it says who collects, not who calls. {named}."
    if collective and (returned or len(set(names.values())) > 1):
        missing = sorted(returned) or sorted(r for r in waiting if names[r] != collective[0])
        noun = "rank" if len(missing) == 1 else "ranks"
        why = (
            f"{collective[0]} is a collective call: every rank of the communicator must call it, and "
            f"{noun} {', '.join(map(str, missing))} did not."
        )
        root = next(iter(roots.values()), 0)
        return why + (f" Its root is rank {root}, for it says root={root}; without that it is rank 0." if root else "")
    if waiting and not returned and all(name in RECEIVES for name in names.values()):
        return "Every rank receives before anyone sends. One side must send first, or use sendrecv."
    if waiting and not returned and all(name in SENDS for name in names.values()):
        return "Every rank sends and waits for its receiver, which sends too. One must receive first, or use sendrecv."
    for rank, entry in waiting.items():
        peer = _number(entry, "source", "dest")
        if peer in returned:
            return _why_returned(rank, entry, peer, returned[peer])
    return (
        "Draw who sends to whom, and in which order: each receive needs one send with its source, destination and tag."
    )


def _why_returned(rank: int, waits: Entry, peer: int, gone: Entry) -> str:
    """Why `rank` waits for `peer`, which has returned."""
    last = _name(gone)
    if _name(waits) in SENDS:
        return f"Rank {rank} sends to rank {peer}, which has returned without receiving it."
    if last in SENDS and _number(gone, "dest") == rank and _number(gone, "tag") != _number(waits, "tag"):
        tags = [f"tag {_number(e, 'tag') or 0}" for e in (gone, waits)]
        return f"Rank {peer} sent with {tags[0]}, rank {rank} waits for {tags[1]}: a receive takes its own tag only."
    if last and last not in PAIRED and not last.startswith("I"):
        return (
            f"Rank {peer} called {last}, which is collective: only the same call on every rank answers it, no receive."
        )
    return f"Rank {rank} waits for a message from rank {peer}, which has returned without sending it."


def _name(entry: Entry) -> str:
    """The call's name; of the wait for an irecv that of the recv which it is."""
    name = entry.text.partition("(")[0]
    return name.removeprefix(WAIT)[1:] if name.startswith(WAIT) else name


def _number(entry: Entry, *keys: str) -> int | None:
    """The number behind the first of `keys` in a call's text, or None."""
    for part in entry.text.partition("(")[2].rstrip(")").split(", "):
        key, _, value = part.partition("=")
        if key in keys and value.isdigit():
            return int(value)
    return None
