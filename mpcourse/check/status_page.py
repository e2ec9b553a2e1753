"""What a rank is doing at this moment, in a page of memory that another process or thread can read."""

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_LAYOUT = struct.Struct("<QiiiB235s")  # calls, process id, rank, line, stage, text
WAIT = "the wait for "  # in a text, what comes before the call that began a request
STAGES = ("loading", "running", "waiting", "returned")


@dataclass(frozen=True)
class Entry:
    """One reading of a rank's page.

    calls: how many communicator calls it has begun or ended; it grows as long as the rank gets on.
    stage: "loading" (importing the learner's file), "running" (the learner's code), "waiting" (inside a blocking
    call) or "returned" (back from the learner's code). text, line: the call under way, or the last one, e.g.
    "recv(source=1)", and its line in the file; empty and 0 before the first.
    """

    calls: int
    pid: int
    rank: int
    line: int
    stage: str
    text: str


class Logbook:
    """The writing side; one per rank. `folder` must be on a file system that the reader sees.

    rank: this process's rank in the communicator that it used last.
    """

    def __init__(self, folder: Path, number: int, rank: int) -> None:
        path = folder / f"rank{number}.state"
        path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.calls, self.rank = 0, rank
        self._line, self._text = 0, ""
        self.write("loading", rank)

    def write(self, stage: str, rank: int, call: tuple[int, str] | None = None) -> None:
        """Overwrite the page. Every write counts as progress. call: line and text of one that begins."""
        self.calls, self.rank = self.calls + 1, rank
        self._line, self._text = call or (self._line, self._text)
        encoded = self._text.encode(errors="replace")[:235]
        self._page[:] = _LAYOUT.pack(self.calls, os.getpid(), rank, self._line, STAGES.index(stage), encoded)


class HasLogbook(Protocol):
    """What a check is given that sends nothing itself: a communicator, or what stands in for one (see alone.py)."""

    logbook: Logbook

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...


def read(folder: Path, number: int) -> Entry | None:
    """The present entry of rank `number`, or None before it has begun."""
    try:
        data = (folder / f"rank{number}.state").read_bytes()
        calls, pid, rank, line, stage, text = _LAYOUT.unpack(data)
    except (OSError, struct.error):
        return None
    if not calls:
        return None
    return Entry(calls, pid, rank, line, STAGES[stage], text.rstrip(b"\0").decode(errors="replace"))
