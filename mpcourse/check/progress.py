"""What a learner has done, kept in `.mpcourse/` of the clone (or in $MPCOURSE_HOME)."""

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from mpcourse.check.manifest import Course, Exercise
from mpcourse.errors import UserError
from mpcourse.files import write_atomically


@dataclass
class Done:
    """One exercise's record. passed_at: when it first passed, ISO 8601. hints: how many were shown."""

    attempts: int = 0
    passed_at: str | None = None
    hints: int = 0
    spoiled: bool = False

    def when(self) -> float:
        """`passed_at` in seconds, to compare; 0 where it has not passed."""
        return datetime.fromisoformat(self.passed_at).timestamp() if self.passed_at else 0.0


class Progress:
    """The records of one clone. Every change is on disk when the method returns, whole or not at all."""

    def __init__(self, course: Course) -> None:
        self.folder = Path(os.environ.get("MPCOURSE_HOME") or course.root / ".mpcourse")
        self._file = self.folder / "progress.json"
        self._records: dict[str, Done] = {}
        try:
            rows = json.loads(self._file.read_text(encoding="utf-8"))
            self._records = {name: Done(**row) for name, row in rows.items()}
            for record in self._records.values():
                record.when()  # raises for what is no moment
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unwritable(error) from None
        except (ValueError, TypeError, AttributeError):
            raise UserError(f"{self._file} is damaged: mend it, or delete it to begin anew") from None

    def of(self, exercise: Exercise) -> Done:
        """The record of `exercise`; an empty one before the first attempt."""
        return self._records.setdefault(exercise.name, Done())

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

    def note_check(self, exercise: Exercise, passed: bool, written: bool = True) -> None:
        """Count an attempt, unless nothing was written yet, and keep the moment of the first pass."""
        record = self.of(exercise)
        record.attempts += written
        if passed and record.passed_at is None:
            record.passed_at = datetime.now().astimezone().isoformat(timespec="seconds")
        self.save()

    def save(self) -> None:
        """Write all records. Raises UserError where the folder cannot be written."""
        rows = {name: asdict(record) for name, record in self._records.items() if record != Done()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(rows, indent=1))
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(
            f"progress cannot be kept in {self.folder} ({error.strerror}): copy the course to a folder that you may "
            "write, or set MPCOURSE_HOME to one"
        )
