"""What a rank is doing at this moment, in a page of memory that another process or thread can read."""

import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

_LAYOUT = struct.Struct("<QiiBiiii24s200s")  # calls, process id, rank, stage, line, peer, tag, root, name, text
STAGES = ("loading", "running", "waiting", "returned")
NONE, ANY = -1, -2  # a peer, tag or root that a call does not have; one that may be any


class Noted(NamedTuple):
    """A call that a rank begins.

    text: as messages show it, e.g. "recv(source=1)". line: in the learner's file; 0: unknown.
    name: the method's. peer: the rank that it sends to, or receives from; ANY where that may be any.
    """

    text: str = ""
    line: int = 0
    name: str = ""
    peer: int = NONE
    tag: int = NONE
    root: int = NONE


@dataclass(frozen=True)
class Entry:
    """One reading of a rank's page.

    calls: how many communicator calls it has begun or ended; it grows as long as the rank gets on.
    stage: "loading" (importing the learner's file), "running" (the learner's code), "waiting" (inside a blocking
    call) or "returned" (back from the learner's code). last: the call under way, or the last one.
    """

    calls: int
    pid: int
    rank: int
    stage: str
    last: Noted = field(default_factory=Noted)


class StatusPage:
    """The writing side; one per rank. `folder` must be on a file system that the reader sees.

    rank: this process's rank in the communicator that it used last.
    """

    def __init__(self, folder: Path, number: int, rank: int) -> None:
        path = folder / f"rank{number}.state"
        path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.calls, self.rank = 0, rank
        self.last = Noted()
        self.write("loading", rank)

    def write(self, stage: str, rank: int, call: Noted | None = None) -> None:
        """Overwrite the page. Every write counts as progress. call: one that begins."""
        self.calls, self.rank, self.last = self.calls + 1, rank, call or self.last
        text, line, name, *numbers = self.last
        words = (name.encode()[:24], text.encode(errors="replace")[:200])
        numbers = [number if abs(number) < 1 << 31 else ANY for number in numbers]  # whatever a learner calls a tag
        self._page[:] = _LAYOUT.pack(self.calls, os.getpid(), rank, STAGES.index(stage), line, *numbers, *words)


class HasStatusPage(Protocol):
    """What a check is given that sends nothing itself: a communicator, or its replacement (see alone.py)."""

    status_page: StatusPage

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...


def read(folder: Path, number: int) -> Entry | None:
    """Read the present entry of rank `number`; None before it has begun."""
    try:
        data = (folder / f"rank{number}.state").read_bytes()
        calls, pid, rank, stage, line, peer, tag, root, name, text = _LAYOUT.unpack(data)
    except (OSError, struct.error):
        return None
    if not calls:
        return None
    name, text = (word.rstrip(b"\0").decode(errors="replace") for word in (name, text))
    return Entry(calls, pid, rank, STAGES[stage], Noted(text, line, name, peer, tag, root))
