"""`mpcourse init` and `mpcourse update`: make a learner's folder, and renew it.

.mpcourse/installed.json    the version, and the SHA-256 of each file as mpcourse wrote it
.mpcourse/progress.json     see mpcourse/course/check/progress.py

An update replaces files that have not been changed. What the learner has edited stays, and the new version is put
beside it. Each file is written whole or not at all, and installed.json last. So an update that was interrupted has lost
nothing, and the next one does the rest.
"""

import contextlib
import hashlib
import itertools
import json
import os
import shlex
from collections import Counter
from pathlib import Path, PurePosixPath

from mpcourse.common.errors import UserError
from mpcourse.common.files import alone_with, remove_parts, write_atomically
from mpcourse.course.check.manifest import (
    ELSEWHERE,
    INSTALLED,
    NEW_FOLDER,
    PACKAGE,
    check_version,
    read_installed,
)
from mpcourse.course.learner.originals import LIBRARY, MANIFEST, Originals, originals

OWN = INSTALLED.parent


def init(folder: Path, new: Originals | None = None) -> int:
    """Make a learner's folder. Returns the exit status 0.

    folder: empty, or not there yet. new: what it is to hold; by default what this mpcourse has. Raises UserError where
    that cannot be done.
    """
    new = new or originals()
    if (folder / INSTALLED).is_file():
        raise UserError(f"{folder} holds the course already: `mpcourse update` in it brings what is new")
    try:
        if folder.exists() and (names := sorted(os.listdir(folder))):
            raise UserError(f"{folder} is not empty, it holds {names[0]}: name a folder that is not there yet")
        (folder / OWN).mkdir(parents=True)
        _record(folder, new.version, {})  # first, so that `mpcourse update` can complete what is interrupted
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror}: name a folder that can be made") from None
    _renew(folder, new)
    lessons = sum(path.endswith(".ipynb") for path in new.files)
    exercises = sum(path.startswith("exercises/e") and path.count("/") == 1 for path in new.files)
    print(f"{folder} holds {lessons} lessons and {exercises} exercises. Begin with:")
    if folder.resolve() != Path.cwd():
        print(f"  cd {shlex.quote(str(folder))}")
    print("  mpcourse lab")
    return 0


def update(folder: Path | None = None, new: Originals | None = None) -> int:
    """Bring what is new into a learner's folder, and print what became of each file. Returns the exit status 0.

    folder: by default the one around the working directory. new: what it is to hold; by default what this mpcourse has.
    Raises UserError where that cannot be done.
    """
    folder = folder or find_folder()
    new = new or originals()
    before, _ = read_installed(folder)
    check_version(folder, before)
    done = _renew(folder, new)
    for path, did, why in done:
        print(f"  {did:<9} {path}{why}")
    counts = Counter(did for _, did, _ in done)
    changes = ", ".join(f"{number} {did}" for did, number in counts.items()) or "nothing else is to be done"
    was = f", was of {before}" if before != new.version else ""
    print(f"{folder} now belongs to mpcourse {new.version}{was}: {changes}")
    return 0


def find_folder() -> Path:
    """Return the learner's folder that $MPCOURSE_ROOT names, else the one around the working directory."""
    here = Path.cwd()
    asked = os.environ.get("MPCOURSE_ROOT")
    for folder in [Path(asked)] if asked else [here, *here.parents]:
        if (folder / INSTALLED).is_file():
            return folder
        if (folder / "mpcourse" / "__init__.py").is_file():
            raise UserError(f"{folder} is a clone of the course: `git pull --autostash` updates it")
        if (folder / "exercises" / "manifest.toml").is_file():
            raise UserError(f"{folder} holds no {INSTALLED}, which says what was installed: {NEW_FOLDER}")
    raise UserError(f"no course was found here: {ELSEWHERE}")


def digest(path: str, contents: bytes) -> str:
    """Return the SHA-256 of a file; of a notebook that of its cells' text, which stays the same when it is run."""
    if path.endswith(".ipynb"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(contents)["cells"]]
            contents = json.dumps(cells).encode()
    return hashlib.sha256(contents).hexdigest()


def _renew(root: Path, new: Originals) -> list[tuple[str, str, str]]:
    """Make the folder one of `new`. Returns what was done, as (path, word, more about it)."""
    try:
        with alone_with(root / OWN):
            _, installed = read_installed(root)
            done = []
            for path in sorted({*installed, *new.files}):
                if renewed := _renew_file(root, path, installed.get(path, ""), new.files.get(path)):
                    done.append((path, *renewed))
            _record(root, new.version, {path: digest(path, contents) for path, contents in new.files.items()})
    except OSError as error:
        raise UserError(
            f"{error.filename or root}: {error.strerror}; no work of yours is lost: once that is mended, "
            f"`mpcourse update` in {root} does the rest"
        ) from None
    _link(root)
    return done


def _renew_file(root: Path, path: str, installed: str, theirs: bytes | None) -> tuple[str, str] | None:
    """Renew one file. Returns what was done as (word, more about it); None where nothing was.

    installed: the digest of what mpcourse wrote there, or an empty text. theirs: the new contents, or None.
    """
    file = root / path
    ours = file.read_bytes() if file.exists() else None
    edited = ours is not None and digest(path, ours) != installed
    if ours == theirs:
        return None
    if theirs is None:
        if edited:
            return "left", ": it is no longer part of the course, and holds work of yours"
        file.unlink()
        return "removed", ": it is no longer part of the course"
    if edited and path == MANIFEST:  # no command works while it is damaged
        beside = _put_beside(root, path, "yours", file.read_bytes())
        _write(file, theirs)
        return "renewed", f": what you changed in it is in {beside}"
    if ours is not None and installed == digest(path, theirs):  # the new version has not changed it
        return None
    if edited:
        beside = _put_beside(root, path, "new", theirs)
        return "kept", f": you have changed it; the new version is {beside}"
    file.parent.mkdir(parents=True, exist_ok=True)
    _write(file, theirs)
    return "renewed" if ours is not None else "restored" if installed else "new", ""


def _put_beside(root: Path, path: str, word: str, contents: bytes) -> str:
    """Put contents beside a file, as "e05_ring.new.py", or new2 where that is another file; return the path."""
    pure = PurePosixPath(path)
    for number in itertools.count(1):
        beside = pure.with_name(f"{pure.stem}.{word}{number if number > 1 else ''}{pure.suffix}").as_posix()
        if not os.path.lexists(root / beside):
            _write(root / beside, contents)
            return beside
        if (root / beside).is_file() and (root / beside).read_bytes() == contents:
            return beside
    raise AssertionError("there is always another number")


def _record(root: Path, version: str, files: dict[str, str]) -> None:
    _write(root / INSTALLED, json.dumps({"version": version, "files": files}, indent=1, sort_keys=True).encode())


def _write(file: Path, contents: bytes) -> None:
    """Replace a file, or what a link leads to, and what an interrupted update has left of it."""
    remove_parts(file.parent, file.name)
    write_atomically(file.resolve(), contents, sync=True)


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
