"""Which process ends with which, and whose child an orphan becomes, by Linux's prctl and /proc."""

import ctypes
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_prctl: Any = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def end_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before the kernel knew


def subreaper(on: bool = True) -> None:
    """Have descendants that lose their parent become this process's children from now on, or no longer."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(on))


def children(pid: int) -> list[int]:
    """Return the ids of a process's children; none where it has ended."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                children += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children
