"""What a learner has done, kept in `.mpcourse/` of the clone (or in $MPCOURSE_HOME).

progress.json    of each exercise what passed, and how many checks and hints there were
history.json     of each exercise when it was first checked, and which misconceptions were met
progress.lock    holds nothing: who changes the other two has it locked

There are two files because an mpcourse that kept no misconceptions calls a progress.json damaged that holds more than
it knows, and advises to delete it. It leaves the other file alone. From now on what is not known, such as a newer
mpcourse may keep, is passed over and written back.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from mpcourse.common.errors import UserError
from mpcourse.common.files import alone_with, write_atomically
from mpcourse.course.check.manifest import Course, Exercise
from mpcourse.course.check.misconceptions import Met, note

if TYPE_CHECKING:  # what judges is not needed to read what was kept
    from mpcourse.course.check.verdict import Verdict

Record = TypeVar("Record")
Rows = dict[str, dict[str, Any]]  # of one file, by the name of the exercise


def now() -> str:
    """This moment as it is kept."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def moment(text: str) -> datetime:
    """What is kept as ISO 8601, in the time zone of this machine. ValueError or OverflowError for what is no moment."""
    return datetime.fromisoformat(text).astimezone()


@dataclass
class Done:
    """One exercise's row in progress.json. passed_at: when it first passed, ISO 8601. hints: how many were shown.

    attempts: how many checks there were, of more than the stub. spoiled: whether the solution was shown before that.
    """

    attempts: int = 0
    passed_at: str | None = None
    hints: int = 0
    spoiled: bool = False

    def when(self) -> float:
        """`passed_at` in seconds, to compare; 0 where it has not passed."""
        return moment(self.passed_at).timestamp() if self.passed_at else 0.0


@dataclass
class History:
    """One exercise's row in history.json. tried_at: when it was first checked, ISO 8601; None where that is not known.

    met: the misconceptions, in the order in which they were first met.
    """

    tried_at: str | None = None
    met: list[Met] = field(default_factory=list)


class Progress:
    """The records of one clone, as they were on disk when this was made, or changed something last.

    Every change begins with what is on disk then, and is there when the method returns, whole or not at all. So several
    processes may change records of one clone at once, and none of what they note is lost.
    """

    def __init__(self, course: Course) -> None:
        self.folder = Path(os.environ.get("MPCOURSE_HOME") or course.root / ".mpcourse")
        self._file, self._history_file = self.folder / "progress.json", self.folder / "history.json"
        self._read()

    def of(self, exercise: Exercise) -> Done:
        """The record of `exercise`; an empty one before the first attempt."""
        return self._records.setdefault(exercise.name, Done())

    def history(self, exercise: Exercise) -> History:
        """What was met in `exercise`; nothing before the first attempt."""
        return self._histories.setdefault(exercise.name, History())

    def passed(self, exercise: Exercise) -> bool:
        return self.of(exercise).passed_at is not None

    def next(self, course: Course) -> Exercise | None:
        """The one to go on with: in the course's order the first not passed after the one that passed last.

        Behind the last exercise comes the first: who began with lesson 04 is led to its end, then to what was left out.
        """
        order = course.exercises
        passed = [(self.of(e).when(), i) for i, e in enumerate(order) if self.passed(e)]
        begin = max(passed)[1] + 1 if passed else 0  # of one second's, as after `check --all`, the last
        return next((e for e in [*order[begin:], *order[:begin]] if not self.passed(e)), None)

    def note_check(self, exercise: Exercise, verdict: "Verdict") -> None:
        """Count an attempt, unless nothing was written yet, and keep what was met, and the moment of the first pass."""
        at = now()
        with self.changing(exercise) as record:
            history = self.history(exercise)
            if verdict.written and not record.attempts:
                history.tried_at = at
            record.attempts += verdict.written
            if verdict.passed and record.passed_at is None:
                record.passed_at = at
            note(history.met, verdict, at)

    @contextlib.contextmanager
    def changing(self, exercise: Exercise) -> Iterator[Done]:
        """The record of `exercise` as it is on disk; what is changed in it is there after this context.

        Raises UserError where the files cannot be read or written.
        """
        with self._alone():
            self._read()
            yield self.of(exercise)
            self._rows.setdefault(exercise.name, {}).update(asdict(self.of(exercise)))
            self._write(self._file, self._rows)
            history = asdict(self.history(exercise))
            if history != asdict(History()) or exercise.name in self._history_rows:
                self._history_rows.setdefault(exercise.name, {}).update(history)
                self._write(self._history_file, self._history_rows)

    def check_writable(self) -> None:
        """Raise UserError where a change could not be kept."""
        with self._alone():
            self._read()
            self._write(self._file, self._rows)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from None
        with alone_with(self.folder / "progress.lock"):
            yield

    def _read(self) -> None:
        self._rows, self._records = self._table(self._file, Done)
        self._history_rows, self._histories = self._table(self._history_file, History)

    def _table(self, file: Path, kind: type[Record]) -> tuple[Rows, dict[str, Record]]:
        """The rows of `file` as they are, and as records; none where it is not there. UserError where it is damaged."""
        try:
            rows = json.loads(file.read_text(encoding="utf-8"))
            return rows, {name: _record(kind, row) for name, row in rows.items()}
        except FileNotFoundError:
            return {}, {}
        except OSError as error:
            raise self._unwritable(error) from None
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise UserError(f"{file} is damaged: mend it, or delete it to begin anew") from None

    def _write(self, file: Path, rows: Rows) -> None:
        try:
            write_atomically(file, json.dumps(rows, indent=1))
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(
            f"progress cannot be kept in {self.folder} ({error.strerror}): copy the course to a folder that you may "
            "write, or set MPCOURSE_HOME to one"
        )


def _record(kind: type[Record], row: dict[str, Any]) -> Record:
    """A dataclass from its row, without what it does not know. ValueError or TypeError where a value is of another
    type, or is no moment.
    """
    if not isinstance(row, dict):
        raise TypeError(f"{row!r} is no row")
    known = {f.name: row[f.name] for f in fields(kind) if f.name in row}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for name, value in known.items():
        if name == "met":
            known[name] = [_record(Met, each) for each in value]
        elif not isinstance(value, hints[name]):
            raise TypeError(f"{name} is {value!r}")
        elif name.endswith("_at") and value is not None:
            moment(value)
    return kind(**known)
