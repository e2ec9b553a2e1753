"""Check solutions, each in a fork of this process; print as JSON which modules were imported while each check ran.

python tests/programs/imports_of_checks.py

A learner waits for such an import in every check: a fork server imports the module with the cases, but does not run it.
Left out are exercises that need ranks of MPI, and those whose cases import torch._dynamo, after which little is left.
"""

import gc
import importlib
import json
import multiprocessing
import sys
import tempfile

from mpcourse.course.check import single_process as alone
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.rank import Job
from mpcourse.course.check.supervisor import CHECKING

COURSE = load_course()
SLOW = "torch._dynamo"


def imported_meanwhile(exercise):
    """None where the exercise is left out."""
    sys.modules[SLOW] = None  # whose import takes two seconds: here it is refused
    try:
        importlib.import_module(exercise.check)
    except ModuleNotFoundError as error:
        assert error.name == SLOW
        return None
    del sys.modules[SLOW]
    gc.freeze()  # as in a fork server
    before = set(sys.modules)
    with tempfile.TemporaryDirectory() as folder:
        report = alone.run(Job.of(exercise, COURSE.solution_file(exercise), folder))
    assert report.kind == "passed", report
    return sorted(set(sys.modules) - before)


def main():
    for name in CHECKING:
        importlib.import_module(name)
    importlib.import_module("torch")
    importlib.import_module("numpy.random")
    exercises = [exercise for exercise in COURSE.exercises if exercise.virtual or exercise.sizes == [1]]
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        found = pool.map(imported_meanwhile, exercises, chunksize=1)
    print(json.dumps({each.name: new for each, new in zip(exercises, found, strict=True) if new is not None}))


if __name__ == "__main__":
    main()
