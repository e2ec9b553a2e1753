"""Check all answers of a class, several at once, and keep every verdict as soon as it is there."""

import contextlib
import json
import os
import site
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.common.launch import find_mpirun, rank_environment
from mpcourse.course.check.manifest import PACKAGE, Course, Exercise
from mpcourse.course.check.stubs import hollow
from mpcourse.course.check.supervisor import CHECKING
from mpcourse.course.check.verdict import Verdict, clean
from mpcourse.course.forkserver import CALL, GROUP, ForkServer, Plain, Starter, offered
from mpcourse.course.grading.inside import ENDED, Task
from mpcourse.course.grading.state import State, checker_version, key_of
from mpcourse.course.grading.submissions import Submission

GIBIBYTES = 2.0  # that each process may take beyond what it has when it starts
POLL = 0.2  # seconds
PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "MPCOURSE_MPIRUN", "MPCOURSE_CHECK_SEED")
NOT_CHECKED, NOT_HANDED_IN = "not checked", "not handed in"


@dataclass(frozen=True)
class Graded:
    """student: the folder's name. verdict: of "not handed in" and "not checked" the kind says so.

    sandbox: "namespaces", or why there were none; empty where nothing ran.
    """

    student: str
    verdict: Verdict
    sandbox: str = ""


class Grader:
    """Checks answers of one course, each in a process of its own.

    hidden: folders that no answer can see. starter: what starts the processes. isolated: whether in
    namespaces, where the system has them; why not is in `refused`, an empty text where it has.
    """

    def __init__(
        self,
        course: Course,
        hidden: Sequence[Path],
        starter: Starter,
        gibibytes: float = GIBIBYTES,
        isolated: bool = True,
    ) -> None:
        self.course, self.starter, self.gibibytes = course, starter, gibibytes
        self.hidden = [course.root / "solutions", PACKAGE / "course" / "files" / "solutions", *hidden]
        self.manifest = (course.root / "exercises" / "manifest.toml").read_text(encoding="utf-8")
        self.stopped = threading.Event()
        self.isolated, self.refused = isolated, "" if isolated else "it was switched off by --no-sandbox"

    def check(self, exercise: Exercise, answer: str) -> tuple[dict[str, Any], str]:
        """Return what `grading.inside` found, and in which sandbox. Nothing of it is left when this returns."""
        if self.isolated:
            outcome = self._run(exercise, answer, sandbox=True)
            if "refused" not in outcome:
                return outcome, "namespaces"
            if os.geteuid() == 0:  # an answer could do anything to the machine
                raise UserError(
                    f"no sandbox can be made here ({outcome['refused']}), and you are root: grade as another user, "
                    "or with --no-sandbox in a container of its own"
                )
            self.isolated, self.refused = False, outcome["refused"]
        return self._run(exercise, answer, sandbox=False), f"none: {self.refused}"

    def _run(self, exercise: Exercise, answer: str, sandbox: bool) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="mpcourse-grade-") as name:
            folder = Path(name)
            (folder / "root").mkdir()
            seconds = 60 + 10 * exercise.seconds
            task = Task(
                exercise.name, exercise.check, answer, self._hollow(exercise), self.manifest, str(folder / "root"),
                sandbox, [str(path) for path in shown()], [str(path) for path in self.hidden], self.gibibytes, seconds,
            )  # fmt: skip
            (folder / "task.json").write_text(json.dumps(asdict(task)))
            group = uuid.uuid4().hex
            environment = {**class_environment(), GROUP: group}
            arguments = ["-P", CALL, "mpcourse.course.grading.inside:main", str(folder / "task.json")]
            with (folder / "outcome").open("wb") as output:
                process = self.starter.start(arguments, environment, folder, output.fileno())
            deadline = time.monotonic() + seconds + 60
            try:
                while process.poll(POLL) is None and time.monotonic() < deadline and not self.stopped.is_set():
                    pass
            finally:
                process.close()
                with contextlib.suppress(TimeoutError):
                    self.starter.end(group)
            if self.stopped.is_set():
                return {"fault": "stopped"}
            said = (folder / "outcome").read_text(errors="replace")
        try:
            return json.loads(said)
        except ValueError:
            pass
        if said:
            return {"fault": said.strip().splitlines()[-1]}
        why = "No answer needs to end, stop or kill other processes than those that it has started."
        headline = "the process that checked the answer was ended before it could tell its verdict"
        return {"verdict": {"passed": False, **asdict(Verdict(exercise.name, ENDED, 1, headline, why=why))}}

    def _hollow(self, exercise: Exercise) -> str:
        try:
            return hollow(self.course.solution_file(exercise).read_text(encoding="utf-8"))
        except OSError:
            return ""  # a teacher has taken the solutions away


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
    folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, *(p for p in sys.path if p.endswith("-packages"))]
    folders += [site.getusersitepackages(), os.path.dirname(os.path.dirname(os.path.realpath(find_mpirun())))]
    folders += [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if os.path.isabs(p)]
    return [PACKAGE, *(Path(folder) for folder in dict.fromkeys(folders) if os.path.isdir(folder) and folder != "/")]


def class_environment() -> dict[str, str]:
    """Return the environment of checks: of the teacher's own only what they need."""
    given = rank_environment()
    kept = {name: given[name] for name in PASSED_ON if name in given}
    mpis = {k: v for k, v in given.items() if k.startswith(("OMPI_", "PRTE_", "OMP_", "UCX_"))}
    return kept | mpis | {"TQDM_DISABLE": "1"}


@contextlib.contextmanager
def starter_for(exercises: Sequence[Exercise]) -> Iterator[Starter]:
    """Yield a fork server that has imported what checks of `exercises` need, and ends with this context."""
    if not offered():
        yield Plain()
        return
    cases = dict.fromkeys(exercise.check for exercise in exercises)
    modules = [*CHECKING, "mpcourse.course.grading.inside", *cases]
    with ForkServer(modules, class_environment()) as server:
        yield server
