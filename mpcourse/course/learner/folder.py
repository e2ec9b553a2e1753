"""A learner's folder as it is: what it was made of, and the files in it now.

.mpcourse/installed.json    the version, and the SHA-256 of each file as mpcourse wrote it
.mpcourse/originals/        these files themselves, each under its SHA-256: what an update merges from
.mpcourse/update/           an update that is ready to be carried out, while it is: see moves.py
.mpcourse/progress.json     see mpcourse/course/check/progress.py, and for history.json and progress.lock
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import ELSEWHERE, INSTALLED, NEW_FOLDER, read_installed

OWN = INSTALLED.parent
ORIGINALS = OWN / "originals"
PENDING = OWN / "update"


def digest(contents: bytes | None) -> str:
    """The SHA-256; of no file, an empty text."""
    return "" if contents is None else hashlib.sha256(contents).hexdigest()


@dataclass
class Installed:
    """What mpcourse has put into a folder. files: the SHA-256 of each, by path. version: empty for none yet."""

    version: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> "Installed":
        """The record of a folder; an empty one where there is none yet. Raises UserError where it is damaged."""
        return cls(*read_installed(root))

    def text(self) -> str:
        return json.dumps({"version": self.version, "files": self.files}, indent=1, sort_keys=True)


def original(root: Path, name: str) -> bytes | None:
    """What mpcourse wrote, by its SHA-256; None where that is gone, or is not what it was."""
    try:
        contents = (root / ORIGINALS / name).read_bytes() if name else None
    except OSError:
        return None
    return contents if digest(contents) == name else None


def present(root: Path, path: str) -> bytes | None:
    """A file as it is now, or None. Raises UserError where something else is in its place."""
    try:
        return (root / path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{root / path} cannot be read ({error.strerror}): rename it") from None


def find_folder() -> Path:
    """The learner's folder that $MPCOURSE_ROOT names, else the one around the working directory."""
    here = Path.cwd()
    asked = os.environ.get("MPCOURSE_ROOT")
    for folder in [Path(asked)] if asked else [here, *here.parents]:
        if (folder / INSTALLED).is_file() or (folder / PENDING).is_dir():
            return folder
        if (folder / "mpcourse" / "__init__.py").is_file():
            raise UserError(f"{folder} is a clone of the course: `git pull --autostash` updates it")
        if (folder / "exercises" / "manifest.toml").is_file():
            raise UserError(f"{folder} holds no {INSTALLED}, which says what was installed: {NEW_FOLDER}")
    raise UserError(f"no course was found here: {ELSEWHERE}")


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Alone at work in the folder, of those who ask. Raises UserError if somebody else is."""
    try:
        handle = os.open(root / OWN, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{root / OWN} cannot be read ({error.strerror})") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another `mpcourse update` is at work in {root}: wait until it is done") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)
