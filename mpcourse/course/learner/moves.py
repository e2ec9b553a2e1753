"""An update as a list of moves: all files are written beside the old ones first, then each is moved to its place.

The list and the files are in .mpcourse/update.part while they are written, then in .mpcourse/update. Whoever is
interrupted before that name has changed nothing; after it, `carry_out` does the rest, however often it is called.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.common.files import remove_parts, write_atomically
from mpcourse.course.check.manifest import INSTALLED
from mpcourse.course.learner.folder import ORIGINALS, OWN, PENDING, Installed, digest, original, present
from mpcourse.course.learner.plan import Change

PART = PENDING.with_name(f"{PENDING.name}.part")
MOVES = "moves.json"


def stage(root: Path, changes: list[Change], installed: Installed, files: Mapping[str, bytes]) -> None:
    """Write all that is new into the folder, where it changes nothing yet.

    installed: what the folder has come with when all is done; files: these. Raises UserError where that fails; the
    folder is then as it was.
    """
    try:
        _check_writable(root, changes)
        (root / PART / "originals").mkdir(parents=True)
        moves = []
        for number, change in enumerate(changes):
            move = {"path": change.path, "before": digest(change.before), "after": digest(change.after)}
            if change.after is not None and change.after != change.before:
                _write(root / PART / f"{number}.file", change.after)
            if change.aside:
                move |= {"aside": change.aside[0], "beside": digest(change.aside[1])}
                _write(root / PART / f"{number}.aside", change.aside[1])
            moves.append(move)
        for name, contents in {digest(contents): contents for contents in files.values()}.items():
            if original(root, name) is None:
                _write(root / PART / "originals" / name, contents)
        journal = {"version": installed.version, "files": installed.files, "moves": moves}
        _write(root / PART / MOVES, json.dumps(journal, indent=1).encode())
        _sync(root / PART)
        os.rename(root / PART, root / PENDING)
        _sync(root / OWN)
    except OSError as error:
        raise UserError(f"{error.filename or root}: {error.strerror}; nothing was changed") from None
    finally:
        clean(root)


def pending_version(root: Path) -> str:
    """The version of an update that has begun; empty where there is none."""
    return _journal(root)["version"] if (root / PENDING).is_dir() else ""


def carry_out(root: Path) -> list[str]:
    """Move what is staged to its place, and note what is installed now; the paths that were left as they are.

    These are the files that somebody has written to since the update was planned: the next one merges them. Raises
    UserError where it cannot go on; called again, it does.
    """
    journal, old = _journal(root), Installed.of(root)
    late = []
    try:
        (root / ORIGINALS).mkdir(exist_ok=True)
        for staged in (root / PENDING / "originals").iterdir():
            os.replace(staged, root / ORIGINALS / staged.name)
        for number, move in enumerate(journal["moves"]):
            if not _move(root, root / PENDING / str(number), **move):
                late.append(move["path"])
        files = journal["files"]
        for path in late:
            files.pop(path, None)
            if path in old.files:
                files[path] = old.files[path]
        write_atomically(root / INSTALLED, Installed(journal["version"], files).text(), sync=True)
        os.rename(root / PENDING, root / PART)  # at once: half of it would be no update that can be carried out
        clean(root)
        _forget(root, set(files.values()))
    except OSError as error:
        raise UserError(
            f"{error.filename or root}: {error.strerror}; the update is half done, and no work of yours is lost: once "
            f"that is mended, `mpcourse update` in {root} completes it"
        ) from None
    return late


def _move(root: Path, staged: Path, path: str, before: str, after: str, aside: str = "", beside: str = "") -> bool:
    """Whether the file is as it is to be now. False: it is neither that nor what it was, and stays."""
    now = digest(present(root, path))
    if now not in (before, after):
        return False
    if aside:  # first, so that what it holds is never without a place
        there = digest(present(root, aside))
        if there not in ("", beside):
            return False
        if not there:
            _put(staged.with_suffix(".aside"), root / aside)
    if now == after:
        return True
    if not after:
        (root / path).unlink()
    else:
        _put(staged.with_suffix(".file"), root / path)
    return True


def _put(staged: Path, target: Path) -> None:
    """Move a file to its place; behind a symbolic link, to where that leads."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target = target.resolve()
    if staged.stat().st_dev == target.parent.stat().st_dev:
        os.replace(staged, target)
    else:
        write_atomically(target, staged.read_bytes(), sync=True)


def clean(root: Path) -> None:
    """Remove what was being staged when an update was interrupted, if it can be."""
    shutil.rmtree(root / PART, ignore_errors=True)


def _forget(root: Path, names: set[str]) -> None:
    """Remove originals that no file goes back to, and the parts of files that were being written."""
    for file in (root / ORIGINALS).iterdir():
        if file.name not in names:
            file.unlink()
    remove_parts(root / OWN, INSTALLED.name)


def _journal(root: Path) -> dict:
    path = root / PENDING / MOVES
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except ValueError:
        raise UserError(f"{path} is damaged: delete {root / PENDING}, and update again") from None


def _check_writable(root: Path, changes: list[Change]) -> None:
    """Raise PermissionError for the first folder that could not be written, before anything is."""
    folders = {root / OWN}
    for change in changes:
        if change.after != change.before or change.aside:
            folders.add((root / change.path).resolve().parent)
            folders.add((root / change.path).parent)
    for folder in sorted(folders):
        while not folder.exists():
            folder = folder.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "you may not write there", str(folder))


def _write(path: Path, contents: bytes) -> None:
    """The contents are on the disk when this returns, so that a machine that loses its power keeps whole files."""
    with open(path, "xb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """The same of a folder's names."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(handle)
    finally:
        os.close(handle)
