"""Watch ranks from outside: have they finished, failed, blocked one another, or gone round in circles?"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from mpcourse.course.check import stacks, status_page
from mpcourse.course.check.granted_time import STILL, GrantedTime
from mpcourse.course.check.rank import Job, Report
from mpcourse.course.check.status_page import Entry

BLOCKED = 2.0  # seconds without any progress, all ranks inside communicator calls: a deadlock
STARTUP = 60.0  # a slow disk may take long to load Python and torch
GRACE = 0.3  # after the first failure, the others' chance to report theirs
FLOOD = 1 << 20  # bytes that one rank may print
BUSY_FACTOR = 2.0  # wait this much longer for a deadlock when ranks are starved of CPU


@dataclass
class Ending:
    """How a run came to its end.

    kind: "reported" (every rank, or at least one that failed), "died" (a rank ended without a report),
    "deadlock", "still" (no progress), "slow" (progress, but past the limit), "flood" or "not started".
    """

    kind: str
    size: int
    reports: dict[int, Report] = field(default_factory=dict)
    entries: dict[int, Entry] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)  # rank number -> its line in the learner's file, at the end
    flooding: int | None = None
    gone: list[int] = field(default_factory=list)  # the ranks that were first seen to have ended without a report
    inside: bool = True  # whether, at the end, an unfinished rank was inside the learner's code
    statuses: dict[int, int] = field(default_factory=dict)  # of ranks whose end is known from what started them


class Monitor:
    """Reads what the ranks of a job write in its folder. Call `look` every few milliseconds until it answers."""

    def __init__(self, job: Job, size: int) -> None:
        self.job, self.size, self.folder = job, size, Path(job.folder)
        self.start = time.monotonic()
        self.begun: GrantedTime | None = None  # since the last rank began
        self.still = GrantedTime()  # since a rank last got on
        self.seen: dict[int, int] = {}
        self.reports: dict[int, Report] = {}
        self.failed: GrantedTime | None = None  # since the first failure, of the ranks that had not reported
        self.gone: list[int] = []
        self.asked = 0.0  # when a rank without progress was last asked where it is

    def look(self, alive: bool = True) -> Ending | None:
        """Return the ending if there is one now, else None. alive: whether the launcher still runs."""
        now = time.monotonic()
        entries = self._entries()
        self._read_reports()
        self._note_progress(entries)
        if self._any_failed():
            self.failed = self.failed or GrantedTime(e.pid for i, e in entries.items() if i not in self.reports)
            if self.failed.seconds() > GRACE or not alive or len(self.reports) == self.size:
                return self._ending("reported", entries)
            return None
        if len(self.reports) == self.size:
            return self._ending("reported", entries)
        for i in range(self.size):
            if self._printed(i) > FLOOD:
                return self._ending("flood", entries, flooding=i)
        self.gone = [i for i, e in entries.items() if i not in self.reports and not _lives(e.pid)]
        if self.gone or not alive:
            self._read_reports()  # the last ones may have come since, and a rank reports before it ends
            self.gone = [i for i in self.gone if i not in self.reports]
            if len(self.reports) == self.size or self._any_failed():
                return None if alive else self._ending("reported", entries)
            if self.gone or not alive:
                return self._ending("died", self._entries())  # what it did last it may have written since
        if self.begun is None:
            return self._ending("not started", entries) if now - self.start > STARTUP else None
        return self._hang(entries, self.begun)

    def _note_progress(self, entries: dict[int, Entry]) -> None:
        """Start the clocks anew: `still` after each call of any rank, `begun` once all ranks have begun."""
        calls = {i: e.calls for i, e in entries.items()}
        if calls != self.seen:
            self.seen, self.still = calls, GrantedTime(e.pid for e in entries.values())
        if self.begun is None and len(entries) == self.size:
            self.begun = GrantedTime(e.pid for e in entries.values())

    def _any_failed(self) -> bool:
        return any(r.kind != "passed" for r in self.reports.values())

    def _hang(self, entries: dict[int, Entry], begun: GrantedTime) -> Ending | None:
        """Return a deadlock, ranks without progress or a run past its limit as an ending; None where there is none."""
        stages = {e.stage for i, e in entries.items() if i not in self.reports}
        still = False
        if "waiting" in stages and stages <= {"waiting", "returned"}:
            if self.still.seconds(BUSY_FACTOR) > BLOCKED:
                return self._ending("deadlock", entries)
        elif (still := self.still.seconds() > STILL) and time.monotonic() - self.asked > 1.0:
            ending = self._ending("still", entries)
            self.asked = time.monotonic()
            if ending.inside:  # else it is the check's own code that takes long, on a machine that is busy
                return ending
        if begun.seconds() > self.job.seconds:
            ending = self._ending("slow", entries)
            # A rank that did not say in time, on a busy machine, that it is in the learner's code may say so now.
            ending.kind = "still" if still and ending.inside else "slow"
            return ending
        return None

    def _entries(self) -> dict[int, Entry]:
        return {i: e for i in range(self.size) if (e := status_page.read(self.folder, i))}

    def _read_reports(self) -> None:
        for i in range(self.size):
            path = self.folder / f"rank{i}.json"
            if i not in self.reports and path.exists():
                self.reports[i] = Report.read(path)

    def _printed(self, number: int) -> int:
        try:
            return (self.folder / f"rank{number}.out").stat().st_size
        except OSError:
            return 0

    def _ending(self, kind: str, entries: dict[int, Entry], flooding: int | None = None) -> Ending:
        unfinished = {i: e for i, e in entries.items() if i not in self.reports}
        pids = {i: e.pid for i, e in unfinished.items()}
        stack_lines = stacks.lines(self.folder, pids, self.job.file, ask=kind not in ("reported", "died"))
        lines = {i: line for i, e in unfinished.items() if (line := stack_lines.get(i, e.last.line))}
        return Ending(kind, self.size, dict(self.reports), entries, lines, flooding, self.gone, bool(stack_lines))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
