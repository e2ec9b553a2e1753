"""Files that are written whole or not at all, and a lock that lets one process write at a time."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

PART = ".part"  # the end of the name of a file that is still being written


def write_atomically(path: Path, contents: str | bytes | Callable[[BinaryIO], object], sync: bool = False) -> None:
    """Replace the file `path` by `contents`, so that every reader sees the old or the new file, whole.

    The contents go into a temporary file in the same folder, which is then renamed to `path`. Any number of processes
    may write one path at once: the contents of the last one stay.

    path: in a folder that exists. A symbolic link is replaced, not followed.
    contents: text, which is written as UTF-8, bytes, or a function that writes to the binary file that it is given.
    sync: wait until the contents are on the disk before the file gets its name. Without that, a machine that loses its
    power may keep the name and lose the contents.

    Raises OSError where the file cannot be written, and what `contents` raises. Then the old file is as it was, and the
    temporary one is gone. A process that is killed leaves the temporary file: see `remove_parts`.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PART}")
    try:
        with open(part, "xb") as file:
            if isinstance(contents, str):
                file.write(contents.encode())
            elif isinstance(contents, bytes):
                file.write(contents)
            else:
                contents(file)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def remove_parts(folder: Path, name: str = "*") -> None:
    """Remove the temporary files that killed processes left when they wrote files of this name in `folder`.

    name: may hold the wildcards of `Path.glob`. No process may be writing such a file meanwhile.
    """
    for part in folder.glob(f"{name}.*{PART}"):
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Let one process at a time into this context with the same `path`; the others wait.

    path: a folder that exists, or a file that has no other use; it is made where it is missing, and stays.

    The system releases the lock even where a process is killed. Where the path cannot be locked, as on Windows and on
    some network file systems, no process waits.
    """
    handle = None
    try:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)
