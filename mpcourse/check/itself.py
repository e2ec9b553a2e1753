"""`mpirun -np 2 python exercises/eNN_name.py`: an exercise that checks itself on the ranks it was started with."""

import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, NoReturn

from mpcourse.errors import UserError
from mpcourse.launch import launched_size

POLL = 0.02  # seconds


def check_this_file(file: str) -> NoReturn:
    """Check the exercise in `file` and end this process: status 0 if it passed, 1 if not, 2 if it could not be checked.

    Every rank that mpirun started calls this. Rank 0 prints the verdict. A thread of rank 0 watches the files in
    which ranks report, so that a blocked rank, its own main thread included, does not go unseen.
    """
    try:
        status = _check(Path(file).resolve())
    except UserError as error:
        print(f"mpcourse: {error}", file=sys.stderr, flush=True)
        status = 2
    sys.stdout.flush()
    if status:
        os._exit(status)  # other ranks may be blocked for ever: leaving at once makes the launcher end them
    sys.exit(0)


def _check(file: Path) -> int:
    from mpcourse.check.manifest import load_course
    from mpcourse.check.rank import Job, redirect, run

    course = load_course()
    exercise = course.find(file.name)
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size != launched_size():
        raise UserError(
            f"mpirun started {launched_size()} ranks, but each says that it is one of {world.size}: mpirun and mpi4py "
            "belong to different MPIs; `mpcourse doctor` names them and the cure"
        )
    if len(set(world.allgather(MPI.Get_processor_name()))) > 1:
        raise UserError("an exercise checks itself on one machine: start all ranks on one host")
    folder = Path(world.bcast(tempfile.mkdtemp(prefix="mpcourse-") if world.rank == 0 else None))
    job = Job(exercise.name, str(file), exercise.functions, exercise.check, str(folder), exercise.seconds)
    if world.rank == 0:
        terminal = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        watcher = threading.Thread(target=_watch, args=(exercise, file, folder, world.size, terminal), daemon=True)
        watcher.start()
    number = world.rank
    # What ranks print goes into files, as under the supervisor: a flood is seen there, and does not bury the verdict.
    redirect(sys.stdout, folder / f"rank{number}.out")
    redirect(sys.stderr, folder / f"rank{number}.out")
    report = run(job, world)
    sys.stdout.flush()
    report.write(folder, number)
    if number == 0:
        watcher.join()  # a failure ends the process in there
    elif report.kind != "passed":
        time.sleep(30)  # rank 0 has the word, and ends this rank with its own end
    world.Barrier()
    if number == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _watch(exercise: Any, file: Path, folder: Path, size: int, terminal: IO[str]) -> None:
    """On rank 0, beside its main thread: wait for the end, print the verdict, and leave at once if it is a failure."""
    from mpcourse.check.show import console, print_verdict
    from mpcourse.check.verdict import judge
    from mpcourse.check.watch import Watch

    watch = Watch(folder, size, str(file), exercise.seconds)
    while not (ending := watch.look()):
        time.sleep(POLL)
    verdict = judge(exercise.name, exercise.functions, file, ending, folder)
    verdict.sizes = [size] if verdict.passed else []
    print_verdict(verdict, console(terminal))
    terminal.flush()
    if not verdict.passed:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)
