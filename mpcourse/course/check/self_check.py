"""`mpirun -np 2 python exercises/eNN_name.py`: an exercise that checks itself on the ranks it was started with.

Each process that mpirun started starts one more, which is the rank: it takes over the launcher's connection with the
environment and the open file descriptors. The first has no MPI in it and runs none of the learner's code. So it sees
the rank block, crash or leave, ends it, and leaves in order itself: the launcher never has anything to clean up.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from mpcourse.common.errors import UserError
from mpcourse.common.launch import launched_rank, launched_size, rank_environment
from mpcourse.common.shared_memory import tidy
from mpcourse.course.forkserver import CALL, python
from mpcourse.course.forkserver.client import take_leave

POLL = 0.02  # seconds
PATIENCE = 5.0  # seconds for other processes to take note of the end


def check_this_file(file: str) -> NoReturn:
    """Check the exercise in `file` and end this process: status 0 if it passed, 1 if not, 2 if it could not be checked.

    Every process that mpirun started calls this, before any MPI. The one with rank 0 prints the verdict.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that nothing is left behind
    try:
        status = _check(Path(file).resolve())
    except UserError as error:
        if launched_rank() == 0:
            print(f"mpcourse: {error}", file=sys.stderr, flush=True)
        status = 2
    except KeyboardInterrupt:
        status = 130
    sys.stdout.flush()
    sys.exit(status)


def _check(file: Path) -> int:
    from mpcourse.course.check.manifest import load_course, root_around
    from mpcourse.course.check.rank import Job
    from mpcourse.course.processes import MARK, end_all

    if root := root_around(file.parent):  # from whatever folder mpirun was called
        os.environ.setdefault("MPCOURSE_ROOT", str(root))
    exercise = load_course().find(file.name)
    if "mpi4py.MPI" in sys.modules:
        raise UserError(f"{file.name} imports mpi4py above its call of check_this_file: move the import below it")
    job = Job.of(exercise, file)
    mark, since = uuid.uuid4().hex, time.time()
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    rank = subprocess.Popen(
        python().command("-P", CALL, "mpcourse.course.check.rank:main", json.dumps(asdict(job)), str(writing)),
        stdin=subprocess.DEVNULL,
        env={**rank_environment(), MARK: mark},
        close_fds=False,  # the launcher's connection is among them
    )
    os.close(writing)
    folder = None
    try:
        number, size, folder = _introduced(reading)
        status = _judge(replace(job, folder=str(folder)), size, rank) if number == 0 else _follow(folder, number, rank)
        if status == 0:
            _wait(lambda: rank.poll() is not None)  # MPI ends in peace
        return status
    finally:
        end_all(mark)
        rank.wait()
        take_leave()  # whatever became of the rank, this process ends in order
        if folder and number == 0:
            _wait(lambda: len(list(folder.glob("left*"))) == size - 1)
            tidy(since)
            shutil.rmtree(folder, ignore_errors=True)
        elif folder:
            (folder / f"left{number}").touch()
            _wait(lambda: not folder.exists())  # the first process to leave with a failure makes the launcher kill all


def _introduced(reading: int) -> tuple[int, int, Path]:
    """Read a rank's number, how many there are and their folder, which it sends before the learner's code runs."""
    from mpcourse.course.check.monitor import STARTUP

    with open(reading) as file:
        said = file.read() if select.select([file], [], [], STARTUP)[0] else ""
    if not said:
        raise UserError("the ranks did not start: run `mpcourse doctor`")
    answer = json.loads(said)
    if answer["size"] != launched_size():
        raise UserError(
            f"mpirun started {launched_size()} ranks, but each says that it is one of {answer['size']}: mpirun and "
            "mpi4py belong to different MPIs; `mpcourse doctor` names them and the cure"
        )
    if answer["hosts"] > 1:
        raise UserError("an exercise checks itself on one machine: start all ranks on one host")
    return answer["rank"], answer["size"], Path(answer["folder"])


def _judge(job: Any, size: int, rank: subprocess.Popen) -> int:
    """Wait beside rank 0 for the end, print the verdict, and let the others know."""
    from mpcourse.course.check.monitor import Monitor
    from mpcourse.course.check.show import show_verdict
    from mpcourse.course.check.verdict import judge

    monitor = Monitor(job, size)
    while not (ending := monitor.look()):
        rank.poll()  # reaps it, so that others see that it has ended
        time.sleep(POLL)
    verdict = judge(job, ending)
    verdict.sizes = [size] if verdict.passed else []
    show_verdict(verdict)
    sys.stdout.flush()
    status = 0 if verdict.passed else 1
    part = Path(job.folder, "part")
    part.write_text(str(status))
    part.replace(part.with_name("judged"))
    return status


def _follow(folder: Path, number: int, rank: subprocess.Popen) -> int:
    """Wait beside another rank for the word. Without it, rank 0's process was killed, and so should all be."""
    while folder.exists():
        if (folder / "judged").exists():
            return int((folder / "judged").read_text())
        rank.poll()
        time.sleep(POLL)
    return 1


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(POLL)
