"""How many tests run at a time on this machine, printed: half as many again as it has cores, and one, as far as its
memory goes. Tests wait for processes: with three on two cores these have nothing to do for an eighth of the time.
"""

import os
from pathlib import Path

EACH = 2 << 30  # bytes that the processes of one test take, at most
MOST = 16  # of more nobody has seen whether tests that wait for seconds still pass
GROUP = Path("/sys/fs/cgroup")  # in a container: what it may use of the machine


def jobs(group: Path = GROUP) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    quota, of, *_ = [*_limit(group / "cpu.max"), "max", "1"]
    if quota != "max":
        cores = min(cores, -(-int(quota) // int(of)))
    most, *_ = [*_limit(group / "memory.max"), "max"]
    if most != "max":
        memory = min(memory, int(most))
    return max(1, min(cores + cores // 2 + 1, memory // EACH, MOST))


def _limit(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


if __name__ == "__main__":
    print(jobs())
