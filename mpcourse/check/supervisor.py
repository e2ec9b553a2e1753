"""Start an answer under mpirun, watch it, and come back with a verdict whatever the answer does."""

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mpcourse.check.manifest import Exercise
from mpcourse.check.processes import MARK, end_all
from mpcourse.check.rank import Job
from mpcourse.check.source import read_source, shown_path
from mpcourse.check.verdict import Verdict, clean, judge
from mpcourse.check.watch import Ending, Watch
from mpcourse.errors import UserError
from mpcourse.launch import check_ranks, mpirun_command, rank_environment
from mpcourse.shared_memory import tidy

POLL = 0.02  # seconds


def check(exercise: Exercise, file: Path, sizes: Sequence[int] | None = None) -> Verdict:
    """Check the answer in `file` at each number of ranks in `sizes`, and stop at the first that fails.

    Starts mpirun; leaves no process behind, not even when it is interrupted. Raises UserError for what is not the
    answer's fault: no file, no mpirun, an impossible number of ranks.
    """
    sizes = [check_ranks(size) for size in (sizes or exercise.sizes)]
    start = time.monotonic()
    verdict = read_verdict(exercise, file, sizes[0])
    passed: list[int] = []
    if verdict is None:
        for size in sizes:
            verdict = _run(exercise, file.resolve(), size)
            if not verdict.passed:
                break
            passed.append(size)
    assert verdict is not None
    verdict.sizes, verdict.seconds = passed, time.monotonic() - start
    return verdict


def read_verdict(exercise: Exercise, file: Path, size: int) -> Verdict | None:
    """A verdict that needs no run: the file is not Python. None where it is. Raises UserError without a file."""
    try:
        compile(read_source(file), str(file), "exec", dont_inherit=True)
    except OSError as error:
        raise UserError(
            f"{file} cannot be read ({error.strerror}): `mpcourse reset {exercise.name}` makes it anew"
        ) from None
    except (SyntaxError, ValueError) as error:  # ValueError: it holds null bytes
        line, code = getattr(error, "lineno", None), (getattr(error, "text", None) or "").strip()
        headline = getattr(error, "msg", str(error)) + (f" at line {line}" if line else "")
        headline += f": `{code}`" if code else ""
        why = "Python could not read the file, so no rank started."
        if "bytes" in headline:
            why += " Save it as UTF-8 text."
        return Verdict(exercise.name, "syntax error", size, headline, line=line, why=why, file=shown_path(file))
    return None


def _run(exercise: Exercise, file: Path, size: int) -> Verdict:
    mark, since = uuid.uuid4().hex, time.time()
    with tempfile.TemporaryDirectory(prefix="mpcourse-") as name:
        folder = Path(name)
        job = Job(exercise.name, str(file), exercise.functions, exercise.check, name, exercise.seconds)
        # -P: a file of the learner's called random.py must not stand in for Python's.
        command = [sys.executable, "-P", "-m", "mpcourse.check.rank", json.dumps(asdict(job))]
        with (folder / "mpirun.out").open("wb") as output:
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
                ending = _watch(launcher, Watch(folder, size, str(file), exercise.seconds))
                passed = ending.kind == "reported" and all(r.kind == "passed" for r in ending.reports.values())
                if passed or ending.kind == "died":  # let MPI finalize in peace, or the launcher say who it was
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        launcher.wait(timeout=2 if passed else 0.5)
            finally:
                end_all(mark)
                launcher.wait()
                tidy(since)
        _check_start(folder, size, ending)
        return judge(exercise.name, exercise.functions, file, ending, folder)


def _watch(launcher: subprocess.Popen, watch: Watch) -> Ending:
    while True:
        alive = launcher.poll() is None
        if ending := watch.look(alive):
            return ending
        time.sleep(POLL)


def _check_start(folder: Path, size: int, ending: Ending) -> None:
    """Raise UserError if not the answer but the start of MPI failed."""
    seen = {int(path.read_text()) for path in folder.glob("size*")}
    if seen - {size}:
        raise UserError(
            f"mpirun started {size} ranks, but each says that it is one of {min(seen)}: mpirun and mpi4py belong to "
            "different MPIs; `mpcourse doctor` names them and the cure"
        )
    if ending.kind == "died" and not ending.entries:
        outputs = [path.read_text(errors="replace") for path in sorted(folder.glob("*.out"))]
        lines = [line.strip() for line in clean("\n".join(outputs)).splitlines() if re.search(r"\w", line)]
        said = [line for line in lines if "rror" in line] or lines or ["no message"]
        raise UserError(f"mpirun could not start the ranks ({said[-1]}): run `mpcourse doctor`")
