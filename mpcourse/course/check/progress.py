"""What a learner has done in each exercise, kept in `.mpcourse/progress.json` of the clone, or in $MPCOURSE_HOME.

All that shows progress reads it here; show_progress.py has the forms.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from mpcourse.common.errors import UserError
from mpcourse.common.files import alone_with, write_atomically
from mpcourse.common.words import counted
from mpcourse.course.check.manifest import Course, Exercise, Lesson
from mpcourse.course.check.misconceptions import is_same, names_one

if TYPE_CHECKING:  # what judges is not needed to read what was kept
    from mpcourse.course.check.verdict import Verdict

Kept = TypeVar("Kept")


@dataclass
class Met:
    """A misconception that a learner has met in one exercise.

    kind, why, headline: from the last verdict that named it. met_at: when the first one did, ISO 8601. times: how many
    did. mended_at: when the exercise passed after the last of them; None while it has not.
    """

    kind: str
    why: str
    headline: str
    met_at: str
    times: int = 1
    mended_at: str | None = None


@dataclass
class Record:
    """What a learner has done in one exercise.

    attempts: number of checks, of more than the stub. tried_at, passed_at: when it was first checked, and when it first
    passed, ISO 8601. hints: how many were shown. spoiled: whether the solution was shown before it passed. met: the
    misconceptions, in the order in which they were first met.
    """

    attempts: int = 0
    tried_at: str | None = None
    passed_at: str | None = None
    hints: int = 0
    spoiled: bool = False
    met: list[Met] = field(default_factory=list)

    @property
    def state(self) -> str:
        """Return "done", "begun" once an answer was checked or a hint shown, else "open"."""
        if self.passed_at:
            return "done"
        return "begun" if self.attempts or self.hints else "open"

    def facts(self) -> list[str]:
        """Say what there is to say beside the state, each in a few words."""
        facts = []
        if self.attempts:
            facts.append(counted(self.attempts, "check"))
        if self.passed_at and self.tried_at and self.passed_at != self.tried_at:
            seconds = (moment(self.passed_at) - moment(self.tried_at)).total_seconds()
            facts.append(f"passed {duration(seconds)} after the first")
        if self.hints:
            facts.append(counted(self.hints, "hint"))
        if self.spoiled:
            facts.append("solution shown" + " before it passed" * (self.state == "done"))
        return facts

    def note(self, verdict: "Verdict", at: str) -> None:
        """Count a check, and keep what its verdict names. at: the moment, ISO 8601.

        An answer that passes has mended all misconceptions. Another verdict mends none: it names the first one that it
        comes to, and others may still be in the answer.
        """
        if verdict.written and not self.attempts:
            self.tried_at = at
        self.attempts += verdict.written
        if verdict.passed:
            self.passed_at = self.passed_at or at
            for each in self.met:
                each.mended_at = each.mended_at or at
        elif names_one(verdict):
            same = (each for each in self.met if is_same((each.kind, each.why), (verdict.kind, verdict.why)))
            if (known := next(same, None)) is None:
                self.met.append(Met(verdict.kind, verdict.why, verdict.headline, at))
            else:
                known.why, known.headline, known.mended_at = verdict.why, verdict.headline, None
                known.times += 1


class Progress:
    """The records of one clone, as they were in the file when this was made, or changed something last.

    Every change begins with what the file holds then, and is in it when the method returns. So several processes may
    change records of one clone at once, and none of what they note is lost.
    """

    def __init__(self, course: Course) -> None:
        self.folder = Path(os.environ.get("MPCOURSE_HOME") or course.root / ".mpcourse")
        self._file = self.folder / "progress.json"
        self._read()

    def of(self, exercise: Exercise) -> Record:
        """Return the record of `exercise`; an empty one before the first attempt."""
        return self._records.get(exercise.name, Record())

    def passed(self, exercise: Exercise) -> bool:
        return self.of(exercise).passed_at is not None

    def next(self, course: Course) -> Exercise | None:
        """Return the exercise to go on with: the first in order, after the one that passed last, that has not passed.

        After the last exercise comes the first: a learner who began with lesson 04 is led to the end, then to what was
        left out.
        """
        order = course.exercises
        passed = [(moment(at).timestamp(), i) for i, e in enumerate(order) if (at := self.of(e).passed_at)]
        begin = max(passed)[1] + 1 if passed else 0  # of several in the same second, as after `check --all`, the last
        return next((e for e in [*order[begin:], *order[:begin]] if not self.passed(e)), None)

    def note_check(self, exercise: Exercise, verdict: "Verdict") -> None:
        """Keep a verdict on `exercise`."""
        with self.changing(exercise) as record:
            record.note(verdict, now())

    @contextlib.contextmanager
    def changing(self, exercise: Exercise) -> Iterator[Record]:
        """Yield the record of `exercise` as it is in the file; what is changed in it is kept after this context.

        Raises UserError where the file cannot be read or written.
        """
        with self._alone():
            self._read()
            yield self._records.setdefault(exercise.name, Record())
            self._write()

    def check_writable(self) -> None:
        """Raise UserError where a change could not be kept."""
        with self._alone():
            self._read()
            self._write()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from None
        with alone_with(self.folder / "progress.lock"):
            yield

    def _read(self) -> None:
        try:
            rows = json.loads(self._file.read_text(encoding="utf-8"))
            self._records = {name: _kept(Record, row) for name, row in rows.items()}
        except FileNotFoundError:
            self._records = {}
        except OSError as error:
            raise self._unwritable(error) from None
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise UserError(f"{self._file} is damaged: mend it, or delete it to begin anew") from None

    def _write(self) -> None:
        rows = {name: asdict(record) for name, record in self._records.items()}
        try:
            write_atomically(self._file, json.dumps(rows, indent=1))
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(
            f"progress cannot be kept in {self.folder} ({error.strerror}): copy the course to a folder that you may "
            "write, or set MPCOURSE_HOME to one"
        )


def _kept(kind: type[Kept], row: dict[str, Any]) -> Kept:
    """Make a dataclass from its row. Raises ValueError or TypeError where a value has another type, or is no moment."""
    if not isinstance(row, dict):
        raise TypeError(f"{row!r} is no row")
    known = {f.name: row[f.name] for f in fields(kind) if f.name in row}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for name, value in known.items():
        if name == "met":
            known[name] = [_kept(Met, each) for each in value]
        elif not isinstance(value, hints[name]):
            raise TypeError(f"{name} is {value!r}")
        elif name.endswith("_at") and value is not None:
            moment(value)
    return kind(**known)


@dataclass(frozen=True)
class LessonProgress:
    """A lesson, and its exercises with their records, in the course's order."""

    lesson: Lesson
    rows: Sequence[tuple[Exercise, Record]]

    @property
    def name(self) -> str:
        """Return "02 Split with copy"."""
        return f"{self.lesson.id[:2]} {self.lesson.title}"

    @property
    def begun(self) -> bool:
        return any(record.state != "open" for _, record in self.rows)

    @property
    def done(self) -> int:
        """Return how many exercises have passed."""
        return done_of(self.rows)


def by_lesson(course: Course, progress: Progress) -> list[LessonProgress]:
    """Return all lessons that have exercises, in the course's order."""
    every = [(lesson, [e for e in course.exercises if e.lesson == lesson.id]) for lesson in course.lessons]
    return [LessonProgress(lesson, [(e, progress.of(e)) for e in found]) for lesson, found in every if found]


def done_of(rows: Sequence[tuple[Exercise, Record]]) -> int:
    """Return how many of these exercises have passed."""
    return sum(record.state == "done" for _, record in rows)


def misconceptions(rows: Sequence[tuple[Exercise, Record]]) -> list[tuple[Exercise, Met]]:
    """Return all that were met, and first those that are not mended yet."""
    found = [(exercise, met) for exercise, record in rows for met in record.met]
    return sorted(found, key=lambda pair: pair[1].mended_at is not None)


def summary(lessons: Sequence[LessonProgress]) -> list[str]:
    """Say in a few sentences how much is done, since when, and what was met."""
    rows = [row for lesson in lessons for row in lesson.rows]
    records = [record for _, record in rows]
    passed = [moment(record.passed_at) for record in records if record.passed_at]
    tried = [moment(record.tried_at) for record in records if record.tried_at]
    lines = [f"{done_of(rows)} of {counted(len(rows), 'exercise')} done."]
    if begun := [*tried, *passed]:
        lines.append(
            f"You began on {_day(min(begun))}" + (f"; the last one passed on {_day(max(passed))}." if passed else ".")
        )
    checks, hints = sum(record.attempts for record in records), sum(record.hints for record in records)
    if checks or hints:
        lines.append(f"{counted(checks, 'check')} and {counted(hints, 'hint')} so far.")
    if met := misconceptions(rows):
        mended = sum(each.mended_at is not None for _, each in met)
        lines.append(f"You met {counted(len(met), 'misconception')} and mended {mended}.")
    return lines


def dates_of(met: Met) -> str:
    """Return "met on 3 May 2026, twice; mended on 4 May 2026"."""
    often = {1: "", 2: ", twice"}.get(met.times, f", {met.times} times")
    mended = f"mended on {_day(moment(met.mended_at))}" if met.mended_at else "not mended yet"
    return f"met on {_day(moment(met.met_at))}{often}; {mended}"


def now() -> str:
    """Return this moment as it is kept."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def moment(text: str) -> datetime:
    """Read a moment that is kept as ISO 8601, in this machine's time zone. Raises ValueError or OverflowError."""
    return datetime.fromisoformat(text).astimezone()


def _day(when: datetime) -> str:
    return f"{when.day} {when:%B} {when.year}"


def duration(seconds: float) -> str:
    """Use the largest unit that fits twice: "90 seconds", "15 minutes", "30 hours", "3 days"."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return counted(round(seconds / length), unit)
    return counted(max(0, round(seconds)), "second")
