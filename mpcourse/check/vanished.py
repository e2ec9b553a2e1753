"""A rank that ended without a report: which one it was, and how it ended, from the traces that it left."""

import re
from dataclasses import dataclass
from pathlib import Path

from mpcourse.check.watch import Ending

LEFT = "The other ranks go on and wait for this one. Return from the function instead."
CRASHED = "A library crashed below this line, without an exception. What was it given?"
KILLED = "A signal ended it from outside. Did the machine run out of memory?"
UNKNOWN = "os._exit, a signal or a crash inside a library ends a rank without an exception."


@dataclass(frozen=True)
class Vanished:
    """rank: its number. did: e.g. "called os._exit(3)". there: whether it did so at its line in `Ending.lines`."""

    rank: int
    did: str
    why: str
    there: bool = False


def vanished(ending: Ending, folder: Path) -> Vanished:
    """Who ended first in a run that "died", whose files lie in `folder`.

    The launcher kills the rest as soon as one rank ends, so several may be gone. What a rank itself left counts more
    than the launcher's word: MPICH may name one that it killed.
    """
    absent = [i for i in range(ending.size) if i not in ending.reports]
    for i in absent:
        if i in ending.entries and ending.entries[i].text.startswith("os._exit("):
            return Vanished(i, f"called {ending.entries[i].text}", LEFT, there=True)
        if crash := re.search(r"Fatal Python error: (.+)", _text(folder / f"rank{i}.stack")):
            return Vanished(i, f"crashed ({crash[1].strip()})", CRASHED, there=True)
    said = "\n".join(_text(path) for path in (folder / "mpirun.out", *sorted(folder.glob("rank*.out"))))
    told = _aborted(said) or _ended(said, {e.pid: i for i, e in ending.entries.items()})
    running = [i for i in ending.gone if i in ending.entries and ending.entries[i].stage == "running"]
    if told and told.rank in (running or ending.gone or absent):
        return told
    return Vanished([*running, *ending.gone, *absent][0], "ended without a word", UNKNOWN)


def _aborted(said: str) -> Vanished | None:
    """MPI's own message of an Abort."""
    if match := re.search(r"application called MPI_Abort\(.*?, (-?\d+)\) - process (\d+)", said):  # MPICH
        return Vanished(int(match[2]), f"called Abort({match[1]})", LEFT)
    if match := re.search(r"MPI_ABORT was invoked on rank (\d+).*?Errorcode: (-?\d+)", said, re.DOTALL):  # Open MPI
        return Vanished(int(match[1]), f"called Abort({match[2]})", LEFT)
    return None


def _ended(said: str, ranks: dict[int, int]) -> Vanished | None:
    """The launcher's message of a process that ended out of order. ranks: the rank of each process id."""
    process = re.search(r"PID (\d+)", said)
    name = re.search(r"Process name: \[.*?,(\d+)\]", said)  # Open MPI, of an exit status
    rank = int(name[1]) if name else ranks.get(int(process[1])) if process else None
    if rank is None:
        return None
    if ended := re.search(r"on\s+signal (\d+) \((.+?)\)", said):  # Open MPI
        return Vanished(rank, f"was ended by signal {ended[1]} ({ended[2]})", KILLED)
    if ended := re.search(r"EXIT STRING: (.+?) \(signal (\d+)\)", said):  # MPICH
        return Vanished(rank, f"was ended by signal {ended[2]} ({ended[1]})", KILLED)
    if status := re.search(r"Exit code: +(\d+)", said, re.IGNORECASE):
        return Vanished(rank, f"ended with status {status[1]}", LEFT)
    return Vanished(rank, "ended without a word", UNKNOWN)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(100_000).decode(errors="replace")
    except OSError:
        return ""
