"""How many tests run at a time on this machine, printed: one more than its cores, as far as its memory goes."""

import os

EACH = 2 << 30  # bytes that the processes of one test take, at most
MOST = 16  # of more nobody has seen whether tests that wait for seconds still pass


def jobs() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores + 1, memory // EACH, MOST))


if __name__ == "__main__":
    print(jobs())
