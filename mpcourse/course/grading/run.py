"""Check all answers of a class, several at once, and keep every verdict as soon as it is there."""

import functools
import json
import os
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.common.launch import find_mpirun, rank_environment
from mpcourse.course.check.manifest import PACKAGE, Course, Exercise
from mpcourse.course.check.stubs import hollow
from mpcourse.course.check.verdict import Verdict, clean
from mpcourse.course.grading.sandbox import sandboxed, why_none
from mpcourse.course.grading.state import State, checker_version, key_of
from mpcourse.course.grading.submissions import Submission

GIBIBYTES = 2.0  # that each process may take beyond what it has when it starts
MOST_PROCESSES = 256  # in a sandbox; a check has at most about 20
POLL = 0.2  # seconds
PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "MPCOURSE_MPIRUN", "MPCOURSE_CHECK_SEED")
NOT_CHECKED, NOT_HANDED_IN = "not checked", "not handed in"


@dataclass(frozen=True)
class Graded:
    """student: the folder's name. verdict: of "not handed in" and "not checked" the kind says so.

    sandbox: "bubblewrap", or why there was none; empty where nothing ran.
    """

    student: str
    verdict: Verdict
    sandbox: str = ""


class Grader:
    """Checks answers of one course, each in a process of its own.

    hidden: folders that no answer can see. isolated: whether in a sandbox, where one can be made.
    """

    def __init__(
        self, course: Course, hidden: Sequence[Path], gibibytes: float = GIBIBYTES, isolated: bool = True
    ) -> None:
        self.course, self.gibibytes, self.isolated = course, gibibytes, isolated
        self.hidden = [course.root / "solutions", PACKAGE / "course" / "files" / "solutions", *hidden]
        self.manifest = (course.root / "exercises" / "manifest.toml").read_text(encoding="utf-8")
        self.stopped = threading.Event()

    @functools.cached_property
    def refused(self) -> str:
        """Why answers run without a sandbox; empty where they run in one. Raises UserError for root without one."""
        if not self.isolated:
            return "it was switched off by --no-sandbox"
        reason = why_none()
        if reason and os.geteuid() == 0:  # an answer could do anything to the machine
            raise UserError(
                f"no sandbox can be made here ({reason}), and you are root: grade as another user, "
                "or with --no-sandbox in a container of its own"
            )
        return reason

    def check(self, exercise: Exercise, answer: str) -> tuple[dict[str, Any], str]:
        """Return {"verdict": ...}, or {"fault": ...} where there is none, and in which sandbox it was found."""
        with tempfile.TemporaryDirectory(prefix="mpcourse-grade-") as name:
            folder = Path(name)
            self._write_files(folder, exercise, answer)
            command = [sys.executable, "-P", "-m", "mpcourse.course.grading.inside"]
            command += [exercise.name, str(self.gibibytes), "0" if self.refused else str(MOST_PROCESSES)]
            if not self.refused:
                command = sandboxed(command, [*shown(), folder], self.hidden)
            temporary = str(folder / "tmp") if self.refused else "/tmp"
            environment = class_environment() | {
                "MPCOURSE_ROOT": str(folder / "course"), "TMPDIR": temporary, "HOME": temporary
            }  # fmt: skip
            outcome = self._run(command, environment, folder / "answer", exercise)
        return outcome, f"none: {self.refused}" if self.refused else "bubblewrap"

    def _write_files(self, folder: Path, exercise: Exercise, answer: str) -> None:
        """Write what a check reads: the answer, the manifest, and the solution without what learners write."""
        for name in ("answer", "course/exercises", "course/solutions", "tmp"):
            (folder / name).mkdir(parents=True)
        (folder / "answer" / f"{exercise.name}.py").write_bytes(answer.encode("utf-8", "surrogateescape"))
        (folder / "course" / "exercises" / "manifest.toml").write_text(self.manifest, encoding="utf-8")
        try:
            solution = hollow(self.course.solution_file(exercise).read_text(encoding="utf-8"))
        except OSError:
            solution = ""  # a teacher has taken the solutions away
        (folder / "course" / "solutions" / f"{exercise.name}.py").write_text(solution, encoding="utf-8")

    def _run(
        self, command: Sequence[str], environment: dict[str, str], folder: Path, exercise: Exercise
    ) -> dict[str, Any]:
        """Run `grading.inside` and return what it says. What it has started ends with it, or a moment later."""
        seconds = 60 + 10 * exercise.seconds
        deadline = time.monotonic() + seconds
        with subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        ) as process:  # fmt: skip
            while time.monotonic() < deadline and not self.stopped.is_set():
                try:
                    output, errors = process.communicate(timeout=POLL)
                    break
                except subprocess.TimeoutExpired:
                    pass
            else:
                process.terminate()  # bwrap ends all that is in the sandbox; without one, `inside` ends what it started
                headline = f"the check had not ended after {seconds:.0f} s, and was stopped"
                if self.stopped.is_set():
                    return {"fault": "stopped"}
                return {"verdict": Verdict(exercise.name, "too slow", 1, headline).as_dict()}
        try:
            return json.loads(output.partition("\n")[0])
        except ValueError:
            said = errors.strip().splitlines() or [f"it said nothing, and its exit status was {process.returncode}"]
            return {"fault": f"the check failed: {said[-1]}"}


def grade(
    submissions: Sequence[Submission],
    exercises: Sequence[Exercise],
    grader: Grader,
    state: State,
    jobs: int,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Graded]:
    """Return the verdicts on all answers, student by student. Equal answers to one exercise are checked once.

    state: what it holds already is not checked again. jobs: how many answers are checked at once. tell: is called with
    a line for each answer checked.
    """
    version = checker_version(grader.course)
    keys = {
        (s.student, e.name): key_of(version, e, s.answers[e.name], grader.gibibytes)
        for s in submissions
        for e in exercises
        if e.name in s.answers
    }
    asked = {
        key: (e, s.answers[e.name]) for s in submissions for e in exercises if (key := keys.get((s.student, e.name)))
    }
    faults: dict[str, dict[str, Any]] = {}
    waiting = [key for key in asked if key not in state.verdicts]
    tell(f"{len(keys)} answers, {len(asked)} of them different; {len(asked) - len(waiting)} were checked before")
    with ThreadPoolExecutor(jobs) as pool:
        checks = {pool.submit(grader.check, *asked[key]): key for key in waiting}
        try:
            for number, done in enumerate(as_completed(checks), 1):
                key, (outcome, sandbox) = checks[done], done.result()
                if "verdict" in outcome:
                    state.add(key, {"verdict": _cleaned(outcome["verdict"]), "sandbox": sandbox})
                    kind = outcome["verdict"]["kind"]
                else:
                    faults[key] = {"fault": outcome.get("fault", ""), "sandbox": sandbox}
                    kind = f"{NOT_CHECKED}: {faults[key]['fault']}"
                tell(f"{number} of {len(waiting)}: {asked[key][0].name}: {kind}")
        except BaseException:
            grader.stopped.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [
        _graded(s, e, keys.get((s.student, e.name), ""), state.verdicts, faults) for s in submissions for e in exercises
    ]


def _graded(submission: Submission, exercise: Exercise, key: str, verdicts: dict, faults: dict) -> Graded:
    file = submission.files.get(exercise.name, "")
    if not key:
        verdict = Verdict(exercise.name, NOT_HANDED_IN, 0, f"there is no {exercise.name}.py")
        return Graded(submission.student, verdict)
    if key in faults:
        verdict = Verdict(exercise.name, NOT_CHECKED, 0, clean(faults[key]["fault"]), file=file)
        return Graded(submission.student, verdict, faults[key]["sandbox"])
    known = {field.name for field in fields(Verdict)}
    verdict = Verdict(**{k: v for k, v in verdicts[key]["verdict"].items() if k in known})
    verdict.file = file
    return Graded(submission.student, verdict, verdicts[key]["sandbox"])


def _cleaned(value: Any) -> Any:
    """Clean texts that an answer could have chosen, so that any file and any terminal takes them."""
    if isinstance(value, str):
        return clean(value.encode("utf-8", "replace").decode())
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if isinstance(value, dict):
        return {key: _cleaned(each) for key, each in value.items()}
    return value


def shown() -> list[Path]:
    """Return the folders that Python, the library and MPI consist of."""
    paths = [str(PACKAGE), sys.prefix, sys.base_prefix, sys.exec_prefix, site.getusersitepackages()]
    paths += [path for path in sys.path if path.endswith("-packages")]
    paths += [os.path.dirname(os.path.dirname(os.path.realpath(find_mpirun())))]
    for variable in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        paths += [path for path in os.environ.get(variable, "").split(os.pathsep) if os.path.isabs(path)]
    return [Path(path) for path in paths if os.path.isdir(path) and path != "/"]


def class_environment() -> dict[str, str]:
    """Return the environment of checks: of the teacher's own only what they need."""
    given = rank_environment()
    kept = {name: given[name] for name in PASSED_ON if name in given}
    mpis = {k: v for k, v in given.items() if k.startswith(("OMPI_", "PRTE_", "OMP_", "UCX_"))}
    return kept | mpis | {"TQDM_DISABLE": "1"}
