"""Start an answer under mpirun, watch it, and come back with a verdict whatever the answer does."""

import contextlib
import json
import re
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.common.launch import check_ranks, mpirun_command, rank_environment
from mpcourse.common.shared_memory import tidy
from mpcourse.common.source import read_source, shown_path
from mpcourse.course.check.manifest import Exercise
from mpcourse.course.check.monitor import Ending, Monitor
from mpcourse.course.check.rank import Job
from mpcourse.course.check.verdict import Verdict, clean, judge
from mpcourse.course.forkserver import CALL, ForkServer, Plain, Starter, offered, python
from mpcourse.course.processes import MARK, end_all

POLL = 0.02  # seconds

# What each process of a check imports, and does first.
CHECKING = [
    "mpcourse.course.check.single_process",
    "mpcourse.course.check.rank",
    "mpcourse.course.check.virtual_run",
]


def check(
    exercise: Exercise, file: Path, sizes: Sequence[int] | None = None, starter: Starter | None = None
) -> Verdict:
    """Check the answer in `file` at each number of ranks in `sizes`, and stop at the first that fails.

    What needs no MPI, virtual ranks above all, comes first, in one process; then ranks under mpirun. Leaves no process
    behind, not even when it is interrupted. starter: what starts these processes, as starter_of takes it. Raises
    UserError for what is not the answer's fault: no file, no mpirun, an impossible number of ranks.
    """
    alone = exercise.virtual or exercise.sizes == [1]
    sizes = [check_ranks(size) for size in (sizes or exercise.sizes)]
    start = time.monotonic()
    verdict = read_verdict(exercise, file, sizes[0])
    passed: list[int] = []
    on_virtual = False
    if verdict is None:
        with starter_of([exercise], starter) as starter:
            if alone:
                verdict = run_alone(exercise, file.resolve(), starter)
                on_virtual = verdict.virtual
            if alone and not exercise.virtual and sizes == [1]:
                passed = sizes if verdict and verdict.passed else []
            elif verdict is None or verdict.passed:
                for size in sizes:
                    verdict = _run(exercise, file.resolve(), size, starter)
                    if not verdict.passed:
                        break
                    passed.append(size)
    assert verdict is not None
    verdict.virtual |= verdict.passed and on_virtual
    verdict.sizes, verdict.seconds = passed, time.monotonic() - start
    return verdict


@contextlib.contextmanager
def starter_of(exercises: Sequence[Exercise], given: Starter | None = None) -> Iterator[Starter]:
    """Offer what starts the processes of checks of `exercises`.

    That is `given`, else the server that the environment names, else a server that ends with this context.
    """
    given, modules = given or python(), [*CHECKING, *(exercise.check for exercise in exercises)]
    if not isinstance(given, Plain) or not offered():
        yield given
        return
    with ForkServer(modules, rank_environment()) as server:
        yield server


def read_verdict(exercise: Exercise, file: Path, size: int) -> Verdict | None:
    """Return the verdict on a file that is not Python; None where it is. Raises UserError without a file."""
    try:
        compile(read_source(file), str(file), "exec", dont_inherit=True)
    except OSError as error:
        raise UserError(
            f"{file} cannot be read ({error.strerror}): `mpcourse reset {exercise.name}` makes it anew"
        ) from None
    except (MemoryError, RecursionError):
        headline = "it is nested too deep for Python to compile it"
        why = "Python could not read the file, so no rank started: some expression has thousands of parts."
        return Verdict(exercise.name, "syntax error", size, headline, why=why, file=shown_path(file))
    except (SyntaxError, ValueError) as error:  # ValueError: it holds null bytes
        line, code = getattr(error, "lineno", None), (getattr(error, "text", None) or "").strip()
        headline = getattr(error, "msg", str(error)) + (f" at line {line}" if line else "")
        headline += f": `{code}`" if code else ""
        why = "Python could not read the file, so no rank started."
        if "bytes" in headline:
            why += " Save it as UTF-8 text."
        return Verdict(exercise.name, "syntax error", size, headline, line=line, why=why, file=shown_path(file))
    return None


def run_alone(exercise: Exercise, file: Path, starter: Starter) -> Verdict:
    """Check an answer that needs no MPI, in one process."""
    mark, since, without_mpi = uuid.uuid4().hex, time.time(), False
    with tempfile.TemporaryDirectory(prefix="mpcourse-") as name:
        job = Job.of(exercise, file, name)
        arguments = ["-P", CALL, "mpcourse.course.check.single_process:main", json.dumps(asdict(job))]
        environment = {**rank_environment(), MARK: mark}
        with Path(name, "rank0.out").open("wb") as output:
            process = starter.start(arguments, environment, file.parent, output.fileno())
        try:
            monitor = Monitor(job, 1)
            while not (ending := monitor.look(process.poll(POLL) is None)):
                pass
            if ending.kind == "died" and (status := process.poll(1.0)) is not None:
                ending.statuses[0] = status
            without_mpi = ending.kind == "reported" and ending.reports[0].without_mpi
        finally:
            process.close()
            starter.end(mark)
            if not without_mpi:  # to tell what is left from what others use takes 0.1 s, where others run meanwhile
                tidy(since)
        if ending.kind == "died" and not ending.entries:
            raise UserError(f"the check could not start ({_said(job)[-1]}): run `mpcourse doctor`")
        return judge(job, ending)


def _run(exercise: Exercise, file: Path, size: int, starter: Starter) -> Verdict:
    """Run ranks under mpirun; virtual ranks came before."""
    mark, since = uuid.uuid4().hex, time.time()
    with tempfile.TemporaryDirectory(prefix="mpcourse-") as name:
        job = Job.of(exercise, file, name, virtually=False)
        # -P: a file of the learner's called random.py must not stand in for Python's.
        command = starter.command("-P", CALL, "mpcourse.course.check.rank:main", json.dumps(asdict(job)))
        with Path(name, "mpirun.out").open("wb") as output:
            # Without standard input and in a session of its own, a rank cannot reach the terminal.
            launcher = subprocess.Popen(
                mpirun_command(size, command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**rank_environment(), MARK: mark},
                cwd=file.parent,
                start_new_session=True,
            )
            try:
                ending = _watch(launcher, Monitor(job, size))
                passed = ending.kind == "reported" and all(r.kind == "passed" for r in ending.reports.values())
                if passed or ending.kind == "died":  # let MPI finalize in peace, or the launcher say who it was
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        launcher.wait(timeout=2 if passed else 0.5)
            finally:
                end_all(mark)
                launcher.wait()
                starter.end(mark)
                tidy(since)
        _check_start(job, size, ending)
        return judge(job, ending)


def _watch(launcher: subprocess.Popen, monitor: Monitor) -> Ending:
    while True:
        alive = launcher.poll() is None
        if ending := monitor.look(alive):
            return ending
        time.sleep(POLL)


def _check_start(job: Job, size: int, ending: Ending) -> None:
    """Raise UserError if not the answer but the start of MPI failed."""
    seen = {int(path.read_text()) for path in Path(job.folder).glob("size*")}
    if seen - {size}:
        raise UserError(
            f"mpirun started {size} ranks, but each says that it is one of {min(seen)}: mpirun and mpi4py belong to "
            "different MPIs; `mpcourse doctor` names them and the cure"
        )
    if ending.kind == "died" and not ending.entries:
        raise UserError(f"mpirun could not start the ranks ({_said(job)[-1]}): run `mpcourse doctor`")


def _said(job: Job) -> list[str]:
    """Read what processes that did not start have printed: lines that mention an error, else all lines."""
    outputs = [path.read_text(errors="replace") for path in sorted(Path(job.folder).glob("*.out"))]
    lines = [line.strip() for line in clean("\n".join(outputs)).splitlines() if re.search(r"\w", line)]
    return [line for line in lines if "rror" in line] or lines or ["no message"]
