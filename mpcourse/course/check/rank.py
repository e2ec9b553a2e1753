"""One rank of a check: run the learner's code, and write down what became of it.

Started as `mpirun -np N python -m mpcourse.course.check.rank JOB` by the supervisor, or by each process of an exercise
that checks itself. Ranks report through files in a folder, not through MPI: that works while MPI itself is blocked.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpcourse.course.check import stacks
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.exits import Aborted, note_exit
from mpcourse.course.check.forbidden_calls import ForbiddenCalls
from mpcourse.course.check.granted_time import STILL, end_after
from mpcourse.course.check.replaced import refuse_replaced
from mpcourse.course.check.status_page import StatusPage
from mpcourse.course.check.wrong import Wrong, short, without_numbers
from mpcourse.course.forkserver import LAUNCHED

if TYPE_CHECKING:
    from mpcourse.course.check.manifest import Exercise

LOADING = "while the file was loaded"


@dataclass(frozen=True)
class Job:
    """What a rank is to check. file: the learner's; module: holds `check(answer, comm)`; seconds: the time limit.

    folder: where ranks report; empty where they agree on one. virtually: whether the module's `check_virtually(answer,
    comm)`, if it has one, comes before `check`, on rank 0. forbidden_modules: what of the library the answer is to
    write itself.
    """

    name: str
    file: str
    functions: list[str]
    module: str
    folder: str
    seconds: float
    virtually: bool = True
    forbidden_modules: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, exercise: "Exercise", file: Path, folder: str = "", virtually: bool = True) -> "Job":
        """Return the job of checking the answer to an exercise that is in `file`."""
        e = exercise
        return cls(e.name, str(file), e.functions, e.check, folder, e.seconds, virtually, e.forbidden_modules)


@dataclass
class Report:
    """What became of the check on one rank.

    kind: "passed", "wrong", "raised", "exit", "stub", "missing", "left over", "between ranks" (of virtual ones; trace
    tells it, message names the kind) or "checker" (a fault of ours). line: in the learner's file, where one is known.
    got: of an exception, the call that raised it; of an exit before any call, LOADING. virtual: how many virtual ranks
    it was found on; 0: on real ones. everywhere: whether it concerns all ranks rather than this one. printed: what
    virtual ranks printed, by rank. without_mpi: whether it is known that the process did not start MPI.
    """

    kind: str
    rank: int
    line: int | None = None
    asked: str = ""
    got: str = ""
    why: str = ""
    message: str = ""
    trace: list[str] = field(default_factory=list)
    virtual: int = 0
    everywhere: bool = False
    printed: list[tuple[int, str]] = field(default_factory=list)
    without_mpi: bool = False

    def write(self, folder: Path, number: int) -> None:
        """Put the report where the reader sees it whole or not at all."""
        part = folder / f"rank{number}.part"
        part.write_text(json.dumps(asdict(self)))
        part.replace(folder / f"rank{number}.json")

    @classmethod
    def read(cls, path: Path) -> "Report":
        """Read the report in a file."""
        return cls(**json.loads(path.read_text()))


def run(job: Job, world: Any) -> Report:
    """Check on every rank of `world` (an mpi4py communicator that nothing else uses); the report of this rank."""
    from mpi4py import MPI

    from mpcourse.course.check.traced_mpi import TracedComm, TracedRequest

    folder, number, size = Path(job.folder), world.rank, world.size
    cases = importlib.import_module(job.module)  # before the clock starts: it may import torch, over a slow network
    stacks.answer(folder, number)
    page = StatusPage(folder, number, number)
    comm = TracedComm.wrap(world.Dup(), page, job.file)
    # Whoever does not use the communicator that is given is watched too.
    MPI.COMM_WORLD = TracedComm.wrap(world, page, job.file)  # type: ignore[misc]
    MPI.Request = TracedRequest  # type: ignore[misc]  # for Request.Waitall
    note_exit(page, job.file)
    answer = None

    def running() -> None:
        if MPI.Is_finalized():  # from here on every call of MPI would abort the program
            why = "The ranks need MPI until the program ends, and mpi4py finalizes it then by itself."
            raise Wrong("MPI to be left running", "MPI.Finalize() was called", why)

    def returned() -> None:
        running()
        page.write("returned", page.rank)
        world.Barrier()
        page.write("running", page.rank)

    try:
        answer = Answer.load(Path(job.file), returned, forbidden=ForbiddenCalls.of(job.name, job.forbidden_modules))
        running()
        if absent := answer.missing(job.functions):
            return Report("missing", number, message=absent)
        page.write("running", number)
        if job.virtually and hasattr(cases, "check_virtually"):
            _first(comm, lambda: _virtually(cases, answer, comm))
        cases.check(answer, comm)
        refuse_replaced(job.file)
        report = Report("passed", number)
    except BaseException as error:  # KeyboardInterrupt and the like come from the learner's code here
        report = report_of(error, answer, job.file, page.rank, size)
    page.write("returned", page.rank)
    if report.kind == "passed":
        report = _left_over(comm, world, report)
    return report


def _first(comm: Any, check: Callable[[], None]) -> None:
    """Let rank 0 run `check`; the others wait, and leave the cores to it."""
    if comm.rank == 0:
        check()
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


def _virtually(cases: Any, answer: Answer, comm: Any) -> None:
    """Check on virtual ranks, unless the answer calls what these do not have: then real ranks judge alone."""
    from mpcourse.course.check.virtual_run import OnVirtualRank, only_real_ranks_judge

    try:
        cases.check_virtually(answer, comm)
    except OnVirtualRank as error:
        if not only_real_ranks_judge(error):
            raise


def report_of(error: BaseException, answer: Answer | None, file: str, rank: int, size: int) -> Report:
    """Report that the check of `answer`, which is `file`, raised `error` on `rank` of `size`."""
    try:
        refuse_replaced(file)
    except Wrong as wrong:  # then the check may have failed for that alone
        return Report("wrong", rank, None, wrong.asked, wrong.got, wrong.why)
    line = _line(error, file)
    world = ""
    # The first call is given the ranks of COMM_WORLD.
    if answer is not None and answer.calls > 1 and answer.mentions("COMM_WORLD") and size > 1:
        world = "It speaks of MPI.COMM_WORLD: use the `comm` it is given, whose ranks may be others."
    virtual = sys.modules.get("mpcourse.course.check.virtual_run")  # where it was not imported, nothing came from it
    if virtual is not None and isinstance(error, virtual.OnVirtualRank):
        report = report_of(error.error, error.answer, file, error.rank or 0, error.size)
        report.virtual, report.printed, report.everywhere = error.size, error.printed, error.rank is None
        return report
    if virtual is not None and isinstance(error, virtual.ClusterError):
        return Report("between ranks", rank, message=error.kind, trace=str(error).splitlines())
    if isinstance(error, Wrong):
        line = answer.line if answer else None
        return Report(
            "wrong", rank, line, error.asked, error.got, world or f"{error.why} {_left(answer, size)}".strip()
        )
    if isinstance(error, NotImplementedError):
        return Report("stub", rank, line, message=str(error))
    if isinstance(error, SystemExit):
        message = str(error) if isinstance(error, Aborted) else f"sys.exit({error.code!r})"
        return Report("exit", rank, line, got="" if answer is not None else LOADING, message=message)
    if line is None and answer is not None and answer.result is not None:
        # The check met it while it looked at what the answer had returned: something that no check expects.
        name, result = answer.result
        asked = f"{name} to return what its task says, of that type"
        why = f"To look at it raised {textwrap.shorten(_in_one_line(error), 160)}"
        return Report("wrong", rank, answer.line, asked, f"{short(result)}, a {type(result).__name__}", world or why)
    trace = traceback.format_exception(error)
    report = Report("raised" if line else "checker", rank, line, message=_in_one_line(error), trace=trace)
    traced_mpi = sys.modules.get("mpcourse.course.check.traced_mpi")  # where it was not imported, there is no MPI
    report.got = answer.doing if answer else ""
    report.why = world or (traced_mpi.meant(error) if traced_mpi else "") or _left(answer, size)
    return report


def _left(answer: Answer | None, size: int) -> str:
    """Say what earlier calls have changed, and this one may have used: on ranks no call can be repeated alone."""
    if answer is None or answer.calls < 2 or size < 2 or not (where := answer.left()):
        return ""
    return f"Earlier calls have left something in {where}: if this one uses it, make it anew in each call."


def _in_one_line(error: BaseException) -> str:
    """Return an exception's kind and message; of MPI's error stacks, which are long, the first and last line."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    if "error stack:" in lines[0]:
        return f"{lines[0].partition(', error stack:')[0].removeprefix('mpi4py.')}: {lines[-1].partition('): ')[2]}"
    return textwrap.shorten(without_numbers(" ".join(lines)), 300, placeholder=" ...")


def _left_over(comm: Any, world: Any, report: Report) -> Report:
    """Return `report`, unless a message waits that this rank never received. Every rank that passed must call this."""
    from mpi4py import MPI

    world.Barrier()  # all sends have begun
    status = MPI.Status()
    if MPI.Intracomm(comm).iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
        message = f"a message from rank {status.source} (tag {status.tag})"
        return Report("left over", report.rank, message=message)
    return report


def _line(error: BaseException, file: str) -> int | None:
    """Return the last line of `file` on the way to where `error` was raised."""
    lines = [entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename == file]
    return lines[-1] if lines else None


def redirect(stream: Any, path: Path) -> None:
    """Append what is written to `stream`, standard output or error, to the file at `path`."""
    stream.flush()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(target, stream.fileno())
    os.close(target)
    stream.reconfigure(line_buffering=True)  # what was printed before a kill is kept


def main() -> None:
    """Entry point of a rank: of the supervisor's, or of one process of an exercise that checks itself (see itself.py).

    The first argument is the job. Where its folder is empty, the ranks agree on one, and each writes what it found,
    as JSON, to the file descriptor in the second argument.
    """
    job = Job(**json.loads(sys.argv[1]))
    end_with_parent()
    end_after(max(job.seconds, STILL))
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    number = world.rank
    if not job.folder:
        hosts = len(set(world.allgather(MPI.Get_processor_name())))
        made = tempfile.mkdtemp(prefix="mpcourse-") if number == 0 and hosts == 1 else ""
        job = replace(job, folder=world.bcast(made))
        with open(int(sys.argv[2]), "w") as parent:
            json.dump({"folder": job.folder, "rank": number, "size": world.size, "hosts": hosts}, parent)
        if hosts > 1:
            return
    folder = Path(job.folder)
    (folder / f"size{number}").write_text(str(world.size))
    (folder / f"rank{number}.launched").write_text(os.environ.get(LAUNCHED, str(os.getpid())))
    redirect(sys.stdout, folder / f"rank{number}.out")
    redirect(sys.stderr, folder / f"rank{number}.out")
    leave = os._exit  # before `note_exit` puts its own in its place
    world.Barrier()  # so have all ranks
    report = run(job, world)
    sys.stdout.flush()
    report.write(folder, number)
    if report.kind != "passed":
        # Whoever watches ends this rank. If it left sooner, the launcher would kill ranks that have yet to report.
        time.sleep(2)
        leave(1)
    world.Barrier()


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, which Linux offers and others do not."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)  # it ended before the kernel knew


if __name__ == "__main__":
    main()
