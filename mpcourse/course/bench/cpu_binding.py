"""Start ranks on cores of their own, as launchers do.

    mpirun -np 2 python -m mpcourse.course.bench.cpu_binding 0,1 1 python ...

A process that binds itself comes too late: OpenMP counts the cores that it may use when it is loaded, and its threads
wait for each other in another way where they are more than these.
"""

import os
import sys
from collections.abc import Sequence

from mpcourse.common.launch import launched_rank

CAN_BIND = hasattr(os, "sched_setaffinity")  # macOS binds nothing


def usable() -> list[int]:
    """Return the cores that this process may use, by number."""
    return sorted(os.sched_getaffinity(0)) if CAN_BIND else list(range(os.cpu_count() or 1))


def prefix(cores: Sequence[int], each: int) -> list[str]:
    """Return what to put before a command, so that each rank has `each` of these cores, in turn.

    With all of them no rank is bound, whatever the launcher does. Empty where the system cannot bind.
    """
    return (
        [sys.executable, "-m", "mpcourse.course.bench.cpu_binding", ",".join(map(str, cores)), str(each)]
        if CAN_BIND
        else []
    )


def own(cores: Sequence[int], each: int, rank: int) -> set[int]:
    """Return which of the cores are this rank's; ranks share them where there are too few."""
    return {cores[(rank * each + i) % len(cores)] for i in range(each)}


def main(arguments: Sequence[str]) -> None:
    """Bind this process and become the command."""
    cores, each, *command = arguments
    os.sched_setaffinity(0, own([int(core) for core in cores.split(",")], int(each), launched_rank()))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
