"""The check of one answer of a class, in a process of its own: it isolates itself, then checks as `mpcourse check`.

It is forked from a server that has imported what checks need. Behind namespaces it forks a server of its own, so that
ranks begin at once there, too; nothing of the outer server can be reached from within.
"""

import contextlib
import json
import os
import resource
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.supervisor import check
from mpcourse.course.check.verdict import Verdict
from mpcourse.course.forkserver import Forks, Plain, Starter, offered
from mpcourse.course.forkserver.here import serve_here
from mpcourse.course.grading import namespaces

ENDED = "ended its check"
MOST_PROCESSES = 256  # in a sandbox; a check has at most about 20
LOOK = 0.05  # seconds between two looks at how many there are


@dataclass(frozen=True)
class Task:
    """exercise: its name. module: its check. answer, solution: texts; of the solution without the learner's part.

    manifest: the course's manifest.toml, as text. folder: an empty one. sandbox: whether namespaces are to be made; of
    the course's and the students' folders nothing is in them. shown: what the sandbox may read. hidden: folders among
    these that are empty in it. gibibytes: of address space for each process, beyond what it has when it starts.
    seconds: after which the check is ended, whatever it does.
    """

    exercise: str
    module: str
    answer: str
    solution: str
    manifest: str
    folder: str
    sandbox: bool
    shown: list[str]
    hidden: list[str]
    gibibytes: float
    seconds: float


def main() -> None:
    """Run the task in the file that the first argument names, as JSON, and print the result."""
    task = Task(**json.loads(Path(sys.argv[1]).read_text()))
    import_module(task.module)  # before its file is out of sight
    base = Path("/") if task.sandbox else Path(task.folder)
    files = {
        f"answer/{task.exercise}.py": task.answer,
        f"course/solutions/{task.exercise}.py": task.solution,
        "course/exercises/manifest.toml": task.manifest,
    }
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    if task.sandbox:
        _go_first()  # while it may: in the sandbox it has no rights
        shown, hidden = ([Path(name) for name in names] for names in (task.shown, task.hidden))
        try:
            seen = {f"/{name}": text for name, text in files.items()}
            if not namespaces.enter(Path(task.folder), shown, hidden, seen, 4 * MOST_PROCESSES):
                return
        except OSError as error:
            print(json.dumps({"refused": str(error.strerror or error)}))
            return
    else:
        for name, text in files.items():
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    temporary = str(base / "tmp")
    os.makedirs(temporary, exist_ok=True)
    os.environ |= {"MPCOURSE_ROOT": str(base / "course"), "TMPDIR": temporary, "HOME": temporary}
    tempfile.tempdir = None
    os.chdir(base / "answer")
    output = os.dup(1)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    _limit(task)
    starter: Starter = Plain()
    if offered():
        server = serve_here(os.path.join(temporary, "forks"), closing=[output])
        os.setpriority(os.PRIO_PROCESS, server, usual)
        starter = Forks(os.path.join(temporary, "forks"))
    namespaces.keep_secret()
    threading.Thread(target=_watch, args=(task, output), daemon=True).start()
    try:
        exercise = load_course().find(task.exercise)
        outcome: dict[str, Any] = {
            "verdict": check(exercise, base / "answer" / f"{task.exercise}.py", None, starter).as_dict()
        }
    except (UserError, OSError) as error:
        outcome = {"fault": str(error)}
    _tell(output, outcome)


def _limit(task: Task) -> None:
    """Limit what this process and all that it starts may use."""
    page = os.sysconf("SC_PAGE_SIZE")
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * page if sys.platform == "linux" else 4 << 30
    most = taken + int(task.gibibytes * (1 << 30))
    limits = {resource.RLIMIT_AS: most, resource.RLIMIT_CORE: 0}
    if task.sandbox:  # else all processes of this user would count
        limits[resource.RLIMIT_NPROC] = 2 * MOST_PROCESSES
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _go_first() -> None:
    """Give root's check the processor before the answer, so that it sees when the answer has too many processes.

    The kernel's own limit on their number does not hold for root. Other users may not ask for this, and need not.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)


def _watch(task: Task, output: int) -> None:
    """End the check, and with it all of the sandbox, where it goes on for too long or has too many processes."""
    began = time.monotonic()
    verdict = Verdict(task.exercise, "too slow", 1, "", file=f"{task.exercise}.py")
    while time.monotonic() - began < task.seconds:
        if task.sandbox and (count := sum(name.isdigit() for name in os.listdir("/proc"))) > MOST_PROCESSES:
            why = "A check starts about 20. Whatever starts others does so in a loop."
            verdict = replace(verdict, kind="too many processes", headline=f"{count} processes were started", why=why)
            break
        time.sleep(LOOK)
    else:
        verdict.headline = f"the check had not ended after {task.seconds:.0f} s, and was stopped"
    _tell(output, {"verdict": {"passed": False, **asdict(verdict)}})


def _tell(output: int, outcome: dict) -> None:
    os.write(output, json.dumps(outcome).encode())
    os._exit(0)
