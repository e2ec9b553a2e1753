"""Arrays kept on disk, so that what takes seconds to make is made once.

A file is a digest and then the bytes. The digest covers the name, the version of the maker and the bytes, so one
comparison finds a file that is cut short, damaged or made by another version. Such a file is made anew.
"""

import functools
import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mpcourse.common.errors import UserError
from mpcourse.common.files import write_atomically

DIGEST_SIZE = 64


def folder() -> Path:
    """Return `$MPCOURSE_CACHE`, else `$XDG_CACHE_HOME/mpcourse`, else `~/.cache/mpcourse`, which need not exist.

    Raises UserError where there is no home folder to put it in.
    """
    if own := os.environ.get("MPCOURSE_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):  # the XDG specification says to ignore a relative path
        return Path(shared, "mpcourse")
    try:
        return Path("~/.cache/mpcourse").expanduser()
    except RuntimeError as error:
        raise UserError("this user has no home folder: set MPCOURSE_CACHE to a folder that you can write") from error


def remember(name: str, version: str, size: int, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return what `make()` returns, or the sound copy of it that an earlier call left in `folder()`.

    name: of the file.
    version: of the maker; a file of another version is made anew.
    size: bytes of the array.
    make: returns an array, uint8, (size,).

    Any number of processes may call this at once. Where the folder cannot be written, the array is made each time, and
    one warning says so.
    """
    path = folder() / name
    kept = _read(path, version, size)
    if kept is not None:
        return kept
    made = make()
    try:
        _write(path, version, made)
    except OSError as error:
        _warn(path.parent, error.strerror or str(error))
    return made


def _digest(name: str, version: str, array: np.ndarray) -> bytes:
    digest = hashlib.blake2b(f"{name}\n{version}\n".encode(), digest_size=DIGEST_SIZE)
    digest.update(array.data)
    return digest.digest()


def _read(path: Path, version: str, size: int) -> np.ndarray | None:
    try:
        stored = np.fromfile(path, dtype=np.uint8)
    except OSError:
        return None
    digest, array = stored[:DIGEST_SIZE], stored[DIGEST_SIZE:]
    if len(array) != size or digest.tobytes() != _digest(path.name, version, array):
        return None
    return array


def _write(path: Path, version: str, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = _digest(path.name, version, array)
    write_atomically(path, lambda file: file.writelines([digest, array.data]))


@functools.cache  # one warning for a folder, however many arrays are kept there
def _warn(where: Path, reason: str) -> None:
    warnings.warn(
        f"cannot keep data in {where} ({reason}), so it is made anew each time; "
        "set MPCOURSE_CACHE to a folder that you can write",
        stacklevel=4,
    )
