"""A check, or the part of one, that needs one process and no MPI: of functions without ranks, and on virtual ranks."""

import contextlib
import functools
import importlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpcourse.course.check import stacks
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.exits import note_exit
from mpcourse.course.check.forbidden_calls import ForbiddenCalls
from mpcourse.course.check.granted_time import STILL, end_after
from mpcourse.course.check.rank import Job, Report, report_of
from mpcourse.course.check.replaced import refuse_replaced
from mpcourse.course.check.seeding import seed_torch
from mpcourse.course.check.status_page import StatusPage


@dataclass(frozen=True)
class Alone:
    """Stands in for a communicator, in a process that is no rank of MPI."""

    status_page: StatusPage
    rank: int = 0
    size: int = 1


def run(job: Job) -> Report:
    """Check in this process; the report. Of exercises on virtual ranks only that part."""
    cases = importlib.import_module(job.module)  # before the clock starts: it may import torch, over a slow network
    seed_torch()
    virtually = getattr(cases, "check_virtually", None)
    folder, answer = Path(job.folder), None
    stacks.answer(folder, 0)
    comm = Alone(StatusPage(folder, 0, 0))
    note_exit(comm.status_page, job.file)

    def returned() -> None:
        comm.status_page.write("returned", 0)
        comm.status_page.write("running", 0)

    try:
        forbidden = ForbiddenCalls.of(job.name, job.forbidden_modules)
        load = functools.partial(Answer.load, Path(job.file), returned, forbidden=forbidden)
        answer = _among_virtual_ranks(load) if virtually else load()
        if absent := answer.missing(job.functions):
            return Report("missing", 0, message=absent)
        comm.status_page.write("running", 0)
        (virtually or cases.check)(answer, comm)
        refuse_replaced(job.file)
        report = Report("passed", 0, virtual=int(virtually is not None))
    except BaseException as error:  # KeyboardInterrupt and the like come from the learner's code here
        report = Report("passed", 0) if virtually and _left(error) else report_of(error, answer, job.file, 0, 1)
    comm.status_page.write("returned", 0)
    return report


def _left(error: BaseException) -> bool:
    """Return whether the part on virtual ranks cannot be judged, and real ranks judge alone."""
    from mpcourse.course.check.virtual_run import only_real_ranks_judge

    return only_real_ranks_judge(error)


def _among_virtual_ranks(load: Any) -> Answer:
    """Load the file on one virtual rank, which is all that `from mpi4py import MPI` gives it: MPI itself starts not."""
    from mpcourse.virtual.ranks import run as run_virtually
    from mpcourse.virtual.ranks.mpi import as_mpi4py

    with as_mpi4py():
        try:
            return run_virtually(lambda comm: load(), 1).results[0]
        except BaseException as error:
            vars(error).pop("__notes__", None)  # they say which rank it was
            raise


def main() -> None:
    """Entry point of the process; the first argument is the job."""
    job = Job(**json.loads(sys.argv[1]))
    end_after(max(job.seconds, STILL))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what was printed before a kill is kept
    leave = os._exit  # before `note_exit` puts its own in its place
    report = run(job)
    report.without_mpi = "mpi4py.MPI" not in sys.modules
    with contextlib.suppress(ValueError):  # the learner's code has closed it
        sys.stdout.flush()
    report.write(Path(job.folder), 0)
    leave(0)


if __name__ == "__main__":
    main()
