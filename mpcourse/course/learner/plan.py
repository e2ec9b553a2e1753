"""What an update does with each file, decided before anything is written.

An exercise keeps what the learner wrote, and the rest of it is renewed; where both changed the same lines, the
learner's stay, and the new file is put beside it. A lesson is the new one, with the cells that the learner has added or
changed; where the new lesson has changed the same cells, the learner's notebook is put beside it as it was, for a
lesson runs from top to bottom. So whatever a learner wrote is in its place, or in a file that the update names.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mpcourse.course.learner.folder import Installed, original, present
from mpcourse.course.learner.merge import merge_text
from mpcourse.course.learner.notebooks import merge_books
from mpcourse.course.learner.originals import MANIFEST, Originals


@dataclass(frozen=True)
class Change:
    """Of one file. before, after: its contents; None where there is none. aside: a file to put beside it, first.

    did: one word of what becomes of it, why: more about that, where there is more to tell.
    """

    path: str
    before: bytes | None
    after: bytes | None
    did: str
    why: str = ""
    aside: tuple[str, bytes] | None = None


def plan(root: Path, installed: Installed, new: Originals) -> list[Change]:
    """What turns the folder into one of `new`, of the files that change or that the learner is to hear of."""
    paths = sorted({*installed.files, *new.files}, key=lambda path: (path == MANIFEST, path))  # that one last
    return [change for path in paths if (change := _change(root, path, installed, new))]


def _change(root: Path, path: str, installed: Installed, new: Originals) -> Change | None:
    recorded = path in installed.files
    base = original(root, installed.files.get(path, ""))
    ours, theirs = present(root, path), new.files.get(path)
    if theirs is None:
        if ours is None:
            return None
        if ours == base:
            return Change(path, ours, None, "removed", "it is no longer part of the course")
        return Change(path, ours, ours, "left", "it is no longer part of the course, and holds work of yours")
    if ours is None:
        return Change(path, None, theirs, "restored" if recorded else "new")
    if ours == theirs:
        return None
    if ours == base:
        return Change(path, ours, theirs, "renewed")
    if path == MANIFEST:  # nobody's answer, and no command works while it is damaged
        return _replaced(root, path, ours, theirs, installed.version)
    if base == theirs:
        return None
    if path.endswith(".ipynb"):
        return _book(root, path, base, ours, theirs, installed.version)
    merged, conflict = merge_text(base, ours, theirs) if base is not None else (ours, True)
    if not conflict:
        return Change(path, ours, merged, "merged", "what you changed stays, the rest is new")
    aside = _unused(root, path, f"new-{new.version}", theirs)
    why = f"you and the new version changed the same lines: yours stay, the new file is {aside}"
    return Change(path, ours, merged, "conflict", why, (aside, theirs))


def _book(root: Path, path: str, base: bytes | None, ours: bytes, theirs: bytes, version: str) -> Change:
    try:
        if base is None:
            raise ValueError("nothing to merge from")
        merged, conflict = merge_books(base, ours, theirs)
    except (ValueError, RecursionError):
        return _replaced(root, path, ours, theirs, version)
    if conflict:
        return _replaced(root, path, ours, merged, version)
    return Change(path, ours, merged, "merged", "your cells stay, the rest is new")


def _replaced(root: Path, path: str, ours: bytes, after: bytes, version: str) -> Change:
    aside = _unused(root, path, f"yours-{version}", ours)
    why = f"the new version changed what you changed, and is in its place: yours is {aside}"
    return Change(path, ours, after, "conflict", why, (aside, ours))


def _unused(root: Path, path: str, tag: str, contents: bytes) -> str:
    """A name beside `path` that no file has, or one with these very contents."""
    pure, number = PurePosixPath(path), 1
    while True:
        name = f"{pure.stem}.{tag}{f'-{number}' if number > 1 else ''}{pure.suffix}"
        beside = pure.with_name(name).as_posix()
        there = root / beside
        if not there.exists() and not there.is_symlink() or there.is_file() and there.read_bytes() == contents:
            return beside
        number += 1
