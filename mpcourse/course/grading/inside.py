"""Check one answer of a class, in a sandbox or without one, with limits.

python -P -m mpcourse.course.grading.inside EXERCISE GIBIBYTES PROCESSES

The answer is EXERCISE.py in the working directory; MPCOURSE_ROOT names the course. Print the verdict as JSON, or why
there is none. GIBIBYTES: as `mpcourse grade --memory`. PROCESSES: the most that a sandbox may have; 0: no limit.
"""

import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.supervisor import check, starter_of
from mpcourse.course.check.verdict import Verdict
from mpcourse.course.forkserver import ForkServer

IMPORTS = 120.0  # seconds for the fork server to import torch
LOOK = 0.05  # seconds between two looks at how many processes there are


def main() -> None:
    """Check the answer and print the outcome."""
    name, gibibytes, processes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that what was started is ended
    if processes:
        threading.Thread(target=watch_processes, args=(name, processes), daemon=True).start()
    try:
        exercise = load_course().find(name)
        with starter_of([exercise]) as starter:
            if isinstance(starter, ForkServer):
                limit_memory(starter, gibibytes)
            outcome: dict[str, Any] = {"verdict": check(exercise, Path(f"{name}.py"), None, starter).as_dict()}
    except (UserError, OSError, RuntimeError) as error:
        outcome = {"fault": str(error)}
    print(json.dumps(outcome))


def limit_memory(server: ForkServer, gibibytes: float) -> None:
    """Limit the address space of each process that the server forks from now on, beyond what the server itself has."""
    if not server.current(IMPORTS):
        raise UserError(f"torch could not be imported in {IMPORTS:.0f} s")
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + int(gibibytes * 2**30)
    resource.prlimit(server.pid, resource.RLIMIT_AS, (most, most))


def watch_processes(name: str, most: int) -> None:
    """End this process, and with it all of the sandbox, when there are more than `most` processes.

    The kernel's own limit does not hold for root.
    """
    while (count := sum(entry.isdigit() for entry in os.listdir("/proc"))) <= most:
        time.sleep(LOOK)
    why = "A check starts about 20. Whatever starts others does so in a loop."
    verdict = Verdict(name, "too many processes", 1, f"{count} processes were started", why=why, file=f"{name}.py")
    print(json.dumps({"verdict": verdict.as_dict()}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
