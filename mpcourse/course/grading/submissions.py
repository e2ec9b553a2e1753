"""Which files students have handed in: a folder a student, with exercise files anywhere below."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import Exercise

LARGEST = 1 << 20  # bytes of an answer


@dataclass(frozen=True)
class Submission:
    """One student's. student: the folder's name. answers: of exercises, by name, that were handed in, the texts.

    files: likewise, the paths from the folder on.
    """

    student: str
    answers: dict[str, str]
    files: dict[str, str]


def find_submissions(folder: Path, exercises: Sequence[Exercise]) -> list[Submission]:
    """Return what the students whose folders lie in `folder` have handed in, in the order of names.

    Files are called as their exercises, such as e05_exchange.py. Where a student handed in a whole course, the files of
    its folder exercises/ count, and no others. Hidden folders do not count. Raises UserError for what cannot be graded:
    no folders, one that cannot be read, a link that leads out of the student's folder, two files for one exercise.
    """
    try:
        folders = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise UserError(
            f"{folder} cannot be read ({error.strerror}): name the folder of folders, one a student"
        ) from None
    if not folders:
        raise UserError(f"{folder} holds no folders: each student's files go into a folder of their own")
    for entry in folders:
        if entry.is_symlink():
            raise UserError(f"{entry} is a link: put the student's folder itself there")
    return [_of(entry, {f"{exercise.name}.py": exercise.name for exercise in exercises}) for entry in folders]


def _of(folder: Path, wanted: dict[str, str]) -> Submission:
    files_of: dict[str, list[Path]] = {}
    whole: list[Path] = []  # folders exercises/ of whole courses

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read ({error.strerror})")

    for place, names, files in os.walk(folder, onerror=refuse):
        names[:] = sorted(name for name in names if not name.startswith(".") and name != "__pycache__")
        for name in [*names, *files]:
            path = Path(place, name)
            if path.is_symlink() and (name in names or name in wanted):
                _refuse_link(path, folder)
        if Path(place).name == "exercises" and "manifest.toml" in files:
            whole.append(Path(place))
        for name in wanted.keys() & set(files):
            files_of.setdefault(wanted[name], []).append(Path(place, name))
    answers, paths = {}, {}
    for exercise, several in sorted(files_of.items()):
        several = [path for path in several if path.parent in whole] if whole else several
        if len(several) > 1:
            copies = " and ".join(str(path.relative_to(folder)) for path in sorted(several))
            raise UserError(f"{folder} holds several files for {exercise}: {copies}: leave the one that counts")
        if several:
            answers[exercise], paths[exercise] = _read(several[0]), several[0].relative_to(folder).as_posix()
    return Submission(folder.name, answers, paths)


def _refuse_link(path: Path, folder: Path) -> None:
    """Refuse a link that leads out of the student's folder; within it a link is as good as a file."""
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(os.path.realpath(folder)) or not target.exists():
        raise UserError(f"{path} is a link that leads out of the student's folder: remove it, or put the file there")


def _read(path: Path) -> str:
    """Read a file's text, from which the same bytes can be made again."""
    try:
        if not path.is_file():
            raise UserError(f"{path} is not a file: remove it")
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path} is larger than 1 MB, which no answer is: remove it")
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
