"""`mpcourse init` and `mpcourse update`."""

import contextlib
import os
import shlex
from collections import Counter
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import INSTALLED, PACKAGE, check_version
from mpcourse.course.learner.folder import OWN, PENDING, Installed, digest, find_folder, locked, original
from mpcourse.course.learner.moves import PART, carry_out, clean, pending_version, stage
from mpcourse.course.learner.originals import LIBRARY, Originals, originals
from mpcourse.course.learner.plan import Change, plan


def init(folder: Path, new: Originals | None = None) -> int:
    """Make a learner's folder. Exit status 0.

    folder: empty or not there yet, or one whose making was interrupted, which is completed. new: what it is to hold; by
    default what this mpcourse has. Raises UserError where that cannot be done; the folder is then as it was.
    """
    new = new or originals()
    made = _make(folder)
    try:
        with locked(folder):
            _bring(folder, new)
    except BaseException:
        if not (folder / PENDING).is_dir():  # otherwise it can be completed
            _remove(folder / OWN, *made)
        raise
    lessons = sum(path.endswith(".ipynb") for path in new.files)
    exercises = sum(path.startswith("exercises/e") for path in new.files)
    print(f"{folder} holds {lessons} lessons and {exercises} exercises. Begin with:")
    if folder.resolve() != Path.cwd():
        print(f"  cd {shlex.quote(str(folder))}")
    print("  mpcourse lab")
    return 0


def update(folder: Path | None = None, new: Originals | None = None) -> int:
    """Bring what is new into a learner's folder, and print what became of each file. Exit status 0.

    folder: by default the one around the working directory. new: what it is to hold; by default what this mpcourse has.
    Raises UserError where that cannot be done.
    """
    folder = folder or find_folder()
    new = new or originals()
    with locked(folder):
        before = Installed.of(folder).version
        if pending := pending_version(folder):
            print(f"an update to mpcourse {pending} was interrupted: it is completed")
        changes, late = _bring(folder, new)
    for change in changes:
        print(f"  {change.did:<9} {change.path}" + (f": {change.why}" if change.why else ""))
    for path in late:
        print(f"  {'left':<9} {path}: it was written to meanwhile; call `mpcourse update` again")
    counts = Counter(change.did for change in changes)
    told = ", ".join(f"{number} {did}" for did, number in counts.items()) or "nothing else is to be done"
    was = f", was of {before}" if before != new.version else ""
    print(f"{folder} is of mpcourse {new.version}{was}: {told}")
    return 0


def _bring(root: Path, new: Originals) -> tuple[list[Change], list[str]]:
    """Complete what was interrupted, then make the folder one of `new`: what was done, and what could not be."""
    for version in (Installed.of(root).version, pending_version(root)):
        check_version(root, version)
    clean(root)
    if (root / PENDING).is_dir():
        carry_out(root)
    old = Installed.of(root)
    changes, late = plan(root, old, new), []
    wanted = Installed(new.version, {path: digest(contents) for path, contents in new.files.items()})
    if changes or wanted != old or any(original(root, name) is None for name in wanted.files.values()):
        stage(root, changes, wanted, new.files)
        late = carry_out(root)
    _link(root)
    return [change for change in changes if change.path not in late], late


def _link(root: Path) -> None:
    """Let the links of lessons find the library's source, in whatever environment it is now.

    A link for each part of the package: one for all would lead to the solutions, too.
    """
    library = root / LIBRARY
    parts = {part.name: part for part in PACKAGE.iterdir() if part.name not in ("course", "__pycache__")}
    with contextlib.suppress(OSError):  # it is a convenience
        library.mkdir(exist_ok=True)
        for link in library.iterdir():
            if link.is_symlink() and os.readlink(link) != str(parts.get(link.name)):
                link.unlink()
        for name, part in parts.items():
            if not os.path.lexists(library / name):
                (library / name).symlink_to(part)


def _make(folder: Path) -> list[Path]:
    """Make a folder that is to be a learner's, with its parents; those that were not there, the inner ones first."""
    if (folder / INSTALLED).is_file() and not (folder / PENDING).is_dir():
        raise UserError(f"{folder} holds the course already: `mpcourse update` in it brings what is new")
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        names = sorted(os.listdir(folder)) if folder.exists() else []
        if names and not _unfinished(folder, names):
            raise UserError(f"{folder} is not empty, it holds {names[0]}: name a folder that is not there yet")
        (folder / OWN).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove(*missing)
        raise UserError(f"{error.filename or folder}: {error.strerror}: name a folder that can be made") from None
    return missing


def _unfinished(folder: Path, names: list[str]) -> bool:
    """Whether the folder was being made by an `init` that was interrupted."""
    return (folder / PENDING).is_dir() or names == [OWN.name] and os.listdir(folder / OWN) in ([], [PART.name])


def _remove(*folders: Path) -> None:
    """Folders that are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
