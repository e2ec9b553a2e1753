"""What a learner waits for: verdicts, and the first use of a data set."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mpcourse.bench.record import Record
from mpcourse.check.manifest import load_course
from mpcourse.check.supervisor import check

DEADLOCK = """
def greet(comm):
    return comm.recv(source=1 - comm.rank)
"""
LOOP = """
def greet(comm):
    while True:
        pass
"""


def course(runs: int = 5) -> Iterator[Record]:
    """Time verdicts on a right and two hanging answers to e00, and the rendering of 60 000 glyphs."""
    found = load_course()
    e00 = found.find("e00")
    solution = found.solution_file(e00)
    yield Record("verdict on a right e00 with 2 ranks", _time(lambda: check(e00, solution, [2]), runs), promise=3.0)
    yield Record("verdict on a right e00 with 2, 1, 3, 4 ranks", _time(lambda: check(e00, solution), runs))
    with tempfile.TemporaryDirectory() as folder:
        for what, code in (("a deadlock", DEADLOCK), ("an endless loop", LOOP)):
            file = Path(folder) / "e00_hello.py"
            file.write_text(code)
            seconds = _time(lambda file=file: check(e00, file, [2]), runs)  # type: ignore[misc]
            yield Record(f"verdict on {what} with 2 ranks", seconds, promise=10.0)
    yield Record("glyphs: 60 000 and no test images, rendered", _time(_render, runs), promise=6.0)


def _render() -> None:
    from mpcourse.data import glyphs

    before = os.environ.get("MPCOURSE_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MPCOURSE_CACHE"] = folder  # empty, so nothing is read from a cache
        try:
            glyphs(60_000, test=0)
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
