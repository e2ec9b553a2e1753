"""How much time ranks were granted, on a machine that may be busy with something else."""

import faulthandler
import math
import os
import resource
import time
from collections.abc import Iterable

LOOK = 0.1  # seconds between two looks at what the kernel says
STILL = 4.5  # seconds without any progress, some rank in its own code: an endless loop, or very slow
MOST = 8.0  # times as long is waited, at most, for ranks that have to wait for cores


class GrantedTime:
    """The time that ranks were granted since this was made.

    A rank that computes has the time that its process computed, and a rank that sleeps the time that passed. The time
    of a rank that is ready to run, and waits for a core, does not count.

    pids: of the ranks. Call `seconds` often: what a process is doing is asked each time.
    """

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self.since = self.looked = time.monotonic()
        self.computed = {pid: _computed(pid) for pid in pids}
        self.granted = dict.fromkeys(self.computed, 0.0)

    def seconds(self, most: float = MOST) -> float:
        """Return the seconds of the rank that had least; no less than what passed, divided by `most`."""
        now = time.monotonic()
        if now - self.looked > LOOK:
            for pid in self.granted:
                computed = _computed(pid)
                used = computed - self.computed[pid]
                self.granted[pid] += used if _runs(pid) else max(used, now - self.looked)
                self.computed[pid] = computed
            self.looked = now
        passed = now - self.since
        return max(min(self.granted.values(), default=passed), passed / most)


def end_after(seconds: float) -> None:
    """End this process if its watchers do not, as when they were killed.

    seconds: that they grant it, as `GrantedTime` counts. Twice as long it may compute. One that waits is ended some
    time after the latest moment at which they would end it, on a busy machine. Neither needs Python's lock.
    """
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = math.ceil(2 * seconds) + 1
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, most))
    faulthandler.dump_traceback_later(MOST * seconds + 10, exit=True, file=os.open(os.devnull, os.O_WRONLY))


def _computed(pid: int) -> float:
    """Return the seconds that all threads of a process have computed; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _runs(pid: int) -> bool:
    """Return whether some thread of it runs, or is ready to."""
    tasks = f"/proc/{pid}/task"
    try:
        return any(_state(f"{tasks}/{thread}/stat") == b"R" for thread in os.listdir(tasks))
    except OSError:
        return False  # it has ended, or the kernel does not say


def _state(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return b""
