"""Shared memory that MPI left behind.

A run that is killed or aborts leaves a megabyte per rank until the machine starts anew.
"""

import os
import time
from pathlib import Path

import psutil

FOLDER = Path("/dev/shm")  # on Linux; other systems have no such folder, and nothing is found there
NAMES = ("mpich_shm_*", "vader_segment.*", "sm_segment.*")  # MPICH; Open MPI 4 and 5
SETTLED = 0.1  # seconds; a younger file may have been made and not yet mapped


def abandoned(since: float = 0.0, folder: Path = FOLDER) -> dict[Path, int]:
    """Return segments of this user's MPI runs that no living process has mapped, and their bytes.

    since: return only segments made from then on, by time.time().
    """
    sizes = {}
    latest = time.time() - SETTLED
    for path in (path for name in NAMES for path in folder.glob(name)):
        try:
            status = path.stat()
        except OSError:  # it went meanwhile
            continue
        if status.st_uid == os.getuid() and since <= status.st_mtime <= latest:
            sizes[path] = status.st_size
    if not sizes:
        return {}
    mapped = _mapped(str(folder))
    return {path: size for path, size in sizes.items() if str(path) not in mapped}


def tidy(since: float = 0.0, folder: Path = FOLDER) -> int:
    """Remove abandoned segments; return how many bytes they had. Waits a moment first, for those just made."""
    if not any(_made(path) >= since for name in NAMES for path in folder.glob(name)):
        return 0
    time.sleep(SETTLED)
    gone = 0
    for path, size in abandoned(since, folder).items():
        try:
            path.unlink()
            gone += size
        except OSError:  # another process removed it first
            continue
    return gone


def _made(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it was removed meanwhile
        return 0.0


def _mapped(folder: str) -> set[str]:
    """Return all files in `folder` that this user's living processes have mapped."""
    mapped: set[str] = set()
    for pid in psutil.pids():
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except OSError:  # another user's, or gone
            continue
        mapped.update(line[at:] for line in lines if (at := line.find(folder)) >= 0)
    return mapped
