"""What has been graded already: verdicts by what was checked and by which checker, kept in a file."""

import hashlib
import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.common.files import write_atomically
from mpcourse.course.check.manifest import PACKAGE, Course, Exercise


def checker_version(course: Course) -> str:
    """Return a hash of the library, with its checks, and of the sources of this course's stubs and check modules."""
    digest = hashlib.sha256()
    for path in [*sorted(PACKAGE.rglob("*.py")), *sorted((course.root / "solutions").glob("*.py"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key_of(version: str, exercise: Exercise, answer: str, gibibytes: float) -> str:
    """Return a hash of what the verdict depends on: the checker, the manifest's exercise, the answer and its limits."""
    asked = json.dumps([version, asdict(exercise), answer, gibibytes])
    return hashlib.sha256(asked.encode()).hexdigest()


class State:
    """Verdicts by key, in the file `path`; after each that is added the file is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.verdicts: dict[str, dict[str, Any]] = {}
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            self.verdicts = read["verdicts"]
            if not all(isinstance(graded["verdict"]["kind"], str) for graded in self.verdicts.values()):
                raise TypeError
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}): name another file by --state") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UserError(f"{path} is no state of `mpcourse grade`: remove it, or name another by --state") from None
        self._save()  # finds an unwritable folder before anything is checked

    def add(self, key: str, graded: dict[str, Any]) -> None:
        """Keep the verdict `graded`. Threads may call this at once."""
        with self._lock:
            self.verdicts[key] = graded
            self._save()

    def _save(self) -> None:
        try:
            write_atomically(self.path, json.dumps({"verdicts": self.verdicts}))
        except OSError as error:
            raise UserError(f"{self.path} cannot be written ({error.strerror}): name another by --state") from None
