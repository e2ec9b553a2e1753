"""A rank that ended without a report: which one it was, and how it ended, from the traces that it left."""

import re
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from mpcourse.course.check.monitor import Ending

LEFT = "The other ranks go on and wait for this one. Return from the function instead."
CRASHED = "A library crashed below this line, without an exception. What was it given?"
KILLED = "A signal ended it from outside. Did the machine run out of memory?"
UNKNOWN = "os._exit, a signal or a crash inside a library ends a rank without an exception."
# What MPICH does to the other ranks, and may then tell of one of them.
MPICHS_OWN = r"EXIT STRING: \w+ \(signal (9|15)\)"


@dataclass(frozen=True)
class RankExit:
    """rank: its number. did: e.g. "called os._exit(3)". there: whether it did so at its line in `Ending.lines`."""

    rank: int
    did: str
    why: str
    there: bool = False


def exit_of(ending: Ending, folder: Path) -> RankExit:
    """Find which rank ended first in a run that "died", whose files lie in `folder`.

    The launcher kills the rest as soon as one rank ends, so several may be gone. What a rank itself left counts more
    than the launcher's word: MPICH may name one that it killed.
    """
    absent = [i for i in range(ending.size) if i not in ending.reports]
    for i in absent:
        if i in ending.entries and ending.entries[i].last.text.startswith("os._exit("):
            return RankExit(i, f"called {ending.entries[i].last.text}", LEFT, there=True)
        if crash := re.search(r"Fatal Python error: (.+)", _text(folder / f"rank{i}.stack")):
            return RankExit(i, f"crashed ({crash[1].strip()})", CRASHED, there=True)
        if abort := re.search(r"application called MPI_Abort\(.*?, (-?\d+)\)", _text(folder / f"rank{i}.out")):  # MPICH
            return RankExit(i, f"called Abort({abort[1]})", LEFT)
    for i in absent:
        if (status := ending.statuses.get(i)) is not None:  # reported by the process that forked it
            if status < 0:
                return RankExit(i, f"was ended by signal {-status} ({signal.strsignal(-status)})", KILLED)
            return RankExit(i, f"ended with status {status}", LEFT)
    said = _text(folder / "mpirun.out")
    by_launcher = _aborted(said) or _ended(said, ending, folder)
    running = [i for i in ending.gone if i in ending.entries and ending.entries[i].stage == "running"]
    if by_launcher and by_launcher.rank in (running or ending.gone or absent):
        if len(running) > 1 and re.search(MPICHS_OWN, said):
            return replace(by_launcher, did=f"or another rank {by_launcher.did}")
        return by_launcher
    return RankExit([*running, *ending.gone, *absent][0], "ended without a word", UNKNOWN)


def _aborted(said: str) -> RankExit | None:
    """Read Open MPI's message of an Abort, which comes from the launcher."""
    if match := re.search(r"MPI_ABORT was.*?Proc: \[\[.*?\],(\d+)\].*?Errorcode: (-?\d+)", said, re.DOTALL):
        return RankExit(int(match[1]), f"called Abort({match[2]})", LEFT)
    return None


def _ended(said: str, ending: Ending, folder: Path) -> RankExit | None:
    """Read the launcher's message of a process that ended out of order."""
    ranks = {e.pid: i for i, e in ending.entries.items()}
    for i in ranks.copy().values():
        if (launched := _text(folder / f"rank{i}.launched")).isdigit():  # the process that stood in for a forked rank
            ranks[int(launched)] = i
    process = re.search(r"PID (\d+)", said)
    name = re.search(r"Process name: \[.*?,(\d+)\]", said)  # Open MPI, of an exit status
    rank = int(name[1]) if name else ranks.get(int(process[1])) if process else None
    if rank is None:
        return None
    if ended := re.search(r"on\s+signal (\d+) \((.+?)\)", said):  # Open MPI
        return RankExit(rank, f"was ended by signal {ended[1]} ({ended[2]})", KILLED)
    if ended := re.search(r"EXIT STRING: (.+?) \(signal (\d+)\)", said):  # MPICH
        return RankExit(rank, f"was ended by signal {ended[2]} ({ended[1]})", KILLED)
    if status := re.search(r"Exit code: +(\d+)", said, re.IGNORECASE):
        return RankExit(rank, f"ended with status {status[1]}", LEFT)
    return RankExit(rank, "ended without a word", UNKNOWN)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(100_000).decode(errors="replace")
    except OSError:
        return ""
