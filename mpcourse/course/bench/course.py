"""What a learner waits for: verdicts, and the first use of a data set."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mpcourse.common.launch import rank_environment
from mpcourse.course.bench.record import Record
from mpcourse.course.check.manifest import Course, load_course
from mpcourse.course.check.stubs import stub_of
from mpcourse.course.check.supervisor import CHECKING, check, run_alone, starter_of
from mpcourse.course.commands.check import LOOK
from mpcourse.course.forkserver import ADDRESS, ForkServer, offered

DEADLOCK = """
def greet(comm):
    return comm.recv(source=1 - comm.rank)
"""
WRONG = """
def {}(*arguments):
    return "wrong"
"""
LOOP = """
def greet(comm):
    while True:
        pass
"""
GLYPHS = 60_000  # images


def course(runs: int = 5) -> Iterator[Record]:
    """Time verdicts on a right and two hanging answers to e00, and the rendering of 60 000 glyphs."""
    course = load_course()
    e00 = course.find("e00")
    solution = course.solution_file(e00)
    yield Record(
        "verdict on e00: a right one with 2 ranks", _time(lambda: check(e00, solution, [2]), runs), promise=3.0
    )
    yield Record("verdict on e00: a right one with 2, 1, 3, 4 ranks", _time(lambda: check(e00, solution), runs))
    with tempfile.TemporaryDirectory() as folder:
        for what, code in (("a deadlock", DEADLOCK), ("an endless loop", LOOP)):
            file = Path(folder) / "e00_hello.py"
            file.write_text(code)
            seconds = _time(lambda file=file: check(e00, file, [2]), runs)  # type: ignore[misc]
            yield Record(f"verdict on e00: {what} with 2 ranks", seconds, promise=10.0)
    yield from _virtual_verdicts(course, runs)
    for arguments, promise in ((["list"], 0.4), (["schedule", "gpipe"], 1.5)):
        command = [sys.executable, "-m", "mpcourse.course.cli", *arguments]
        seconds = _time(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True), runs)  # noqa: B023
        yield Record(f"commands: `mpcourse {' '.join(arguments)}`", seconds, promise=promise)
    what = f"glyphs: {GLYPHS:,} and no test images, rendered".replace(",", " ")
    yield Record(what, _time(_render, runs), promise=6.0)


def _virtual_verdicts(course: Course, runs: int) -> Iterator[Record]:
    """Time verdicts on all exercises with virtual ranks first: in `mpcourse watch`, and by a new `mpcourse check`."""
    exercises = [exercise for exercise in course.exercises if exercise.virtual]
    watched: list[float] = []
    passed: list[float] = []
    checked: list[float] = []
    in_lab: list[float] = []
    modules = [*CHECKING, "torch._dynamo", *(exercise.check for exercise in exercises)]
    with contextlib.ExitStack() as held:
        all_wrong = Path(held.enter_context(tempfile.TemporaryDirectory()))
        lab = held.enter_context(ForkServer(modules, rank_environment())) if offered() else None  # as in `mpcourse lab`
        for exercise in exercises:
            with starter_of([exercise]) as starter:
                wrong = all_wrong / f"{exercise.name}.py"
                functions = "\n\n".join(WRONG.format(name) for name in exercise.functions)
                wrong.write_text(f"{stub_of(course, exercise)}\n\n{functions}")
                check(exercise, wrong, None, starter)  # the server has imported what it needs, as after the first save
                late = LOOK / 2  # how long a change waits until `watch` looks, on average
                watched += [late + s for s in _time(lambda: check(exercise, wrong, None, starter), runs)]  # noqa: B023
                right = course.solution_file(exercise)
                passed += [late + s for s in _time(lambda: run_alone(exercise, right, starter), runs)]  # noqa: B023
                command = [
                    sys.executable,
                    "-m",
                    "mpcourse.course.cli",
                    "check",
                    exercise.name,
                    "--file",
                    str(wrong),
                ]
                ours = {**os.environ, ADDRESS: lab.listening() if lab else ""}
                in_lab += _time(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, env=ours), runs)  # noqa: B023
                cold = {**os.environ, ADDRESS: ""}
                checked += _time(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, env=cold), runs)  # noqa: B023
    what = f"{len(exercises)} exercises that begin on virtual ranks"
    yield Record(f"{what}: `watch`, a wrong answer after it is saved", watched, promise=0.5)
    yield Record(f"{what}: `watch`, a right one has passed on virtual ranks", passed, promise=0.5)
    yield Record(f"{what}: `check` in JupyterLab, a wrong answer", in_lab, promise=1.0)
    yield Record(f"{what}: `check` in a terminal, a wrong answer", checked, promise=2.5)


def _render() -> None:
    from mpcourse.data import glyphs

    before = os.environ.get("MPCOURSE_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MPCOURSE_CACHE"] = folder  # empty, so nothing is read from a cache
        try:
            glyphs(GLYPHS, test=0)
        finally:
            if before is None:
                del os.environ["MPCOURSE_CACHE"]
            else:
                os.environ["MPCOURSE_CACHE"] = before


def _time(action: Callable[[], object], runs: int) -> list[float]:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return seconds
