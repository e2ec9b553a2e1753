"""End every process that a check has started, by id, wherever it hides."""

import os
import time

import psutil

MARK = "MPCOURSE_CHECK"  # an environment variable that every process of one check inherits


def marked(mark: str) -> list[psutil.Process]:
    """Return the living processes whose environment carries `mark`, except this one.

    Ranks may run in sessions of their own, and what a rank starts may outlive it: neither a process group nor the
    tree below mpirun holds them all. The environment does.
    """
    processes = []
    for process in psutil.process_iter():
        try:
            carries = process.pid != os.getpid() and process.environ().get(MARK) == mark
            if carries and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (psutil.Error, OSError):
            continue  # another user's, or gone
    return processes


def end_all(mark: str, seconds: float = 5.0) -> list[int]:
    """Kill all processes that carry `mark`; return their ids. Repeats until none is left: one may start another."""
    ended: list[int] = []
    deadline = time.monotonic() + seconds
    while (processes := marked(mark)) and time.monotonic() < deadline:
        for process in reversed(processes):  # ranks before their launcher, whose loss they would complain of
            try:
                process.kill()
                ended.append(process.pid)
            except psutil.Error:
                pass
        time.sleep(
            0.01
        )  # not a wait for each: an orphan stays a zombie where process 1 does not reap, as in containers
    return ended
