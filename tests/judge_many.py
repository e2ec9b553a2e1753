"""Verdicts on many answers that need one rank only, in one process: torch is imported once, not once an answer.

python judge_many.py EXERCISE FILE... prints a JSON list of verdicts, made by the very code that ranks run.
"""

import json
import sys
import tempfile
from pathlib import Path

from mpi4py import MPI

from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.monitor import Ending
from mpcourse.course.check.rank import Job, run
from mpcourse.course.check.verdict import judge


def main() -> None:
    exercise = load_course().find(sys.argv[1])
    world = MPI.COMM_WORLD  # while it is mpi4py's own
    verdicts = []
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            job = Job.of(exercise, Path(name), folder)
            report = run(job, world)
            ending = Ending("reported", 1, reports={0: report})
            verdicts.append(judge(job, ending).as_dict())
    print(json.dumps(verdicts), file=sys.__stdout__)


if __name__ == "__main__":
    main()
