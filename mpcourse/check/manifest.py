"""The course's table of contents: `exercises/manifest.toml`, read once and offered as records."""

import difflib
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from mpcourse.errors import UserError


@dataclass(frozen=True)
class Lesson:
    """id: "00_start_here", the notebook's name without its ending."""

    id: str
    title: str
    question: str


@dataclass(frozen=True)
class Exercise:
    """One task. minutes: an estimate. difficulty: 1 to 5. functions: names that the answer must define.

    sizes: numbers of ranks to check.
    seconds: time limit of one run. check: the module with `check(answer, comm)`. hints: a ladder, vague to plain.
    virtual: whether that begins on virtual ranks, of which one real rank is enough.
    holds: where mpcourse has what the answer is to write: packages, modules, or functions as "module:function".
    short: what is enough to type: `e00` of `e00_hello`; the name itself where another exercise has that number too.
    """

    name: str
    lesson: str
    title: str
    minutes: int
    difficulty: int
    functions: list[str]
    hints: list[str]
    check: str
    sizes: list[int]
    seconds: float = 8.0
    virtual: bool = False
    holds: list[str] = field(default_factory=list)
    short: str = ""


@dataclass(frozen=True)
class Course:
    """A clone of the course: `root` holds exercises/, solutions/ and lessons/."""

    root: Path
    lessons: list[Lesson]
    exercises: list[Exercise]

    def exercise_file(self, exercise: Exercise) -> Path:
        return self.root / "exercises" / f"{exercise.name}.py"

    def solution_file(self, exercise: Exercise) -> Path:
        return self.root / "solutions" / f"{exercise.name}.py"

    def find(self, asked: str) -> Exercise:
        """The exercise that `asked` names: "e01_memory", "e01", a unique beginning, or the path of a file of it."""
        name = Path(asked).stem if asked.endswith(".py") else asked.strip()
        exact = [e for e in self.exercises if e.name == name]
        matches = exact or [e for e in self.exercises if name and e.name.startswith(name)]
        if not matches and asked.endswith(".py"):  # a copy under a longer name, such as e00_hello_mine.py
            matches = sorted((e for e in self.exercises if name.startswith(e.name)), key=lambda e: len(e.name))[-1:]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UserError(f"{asked!r} could be {' or '.join(e.name for e in matches)}: type more of the name")
        names = [e.name for e in self.exercises] + [e.short for e in self.exercises]
        near = difflib.get_close_matches(name, names, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        if asked.endswith(".py"):
            meant += "a file's name begins with its exercise's; "
        raise UserError(f"there is no exercise {asked!r}: {meant}`mpcourse list` shows all")


def load_course(root: Path | None = None) -> Course:
    """The course in `root`, else in $MPCOURSE_ROOT, else around the working directory, else around this package."""
    root = root or _find_root()
    path = root / "exercises" / "manifest.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{root} holds no exercises/manifest.toml: go to a clone of the course") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML ({error}): `git checkout {path}` brings it back") from None
    try:
        lessons = [Lesson(**row) for row in table.get("lesson", [])]
        rows = table.get("exercise", [])
        numbers = [str(row.get("name")).partition("_")[0] for row in rows]
        exercises = [
            Exercise(**row, short=number if numbers.count(number) == 1 else row["name"])
            for number, row in zip(numbers, rows, strict=True)
        ]
    except (TypeError, KeyError) as error:
        raise UserError(f"{path}: {error}") from None
    return Course(root, lessons, exercises)


def _find_root() -> Path:
    if asked := os.environ.get("MPCOURSE_ROOT"):
        return Path(asked)
    here = Path.cwd()
    package = Path(__file__).resolve().parents[2]
    for folder in (here, *here.parents, package):
        if (folder / "exercises" / "manifest.toml").is_file():
            return folder
    raise UserError("no course was found here: change to a clone of mpcourse, or set MPCOURSE_ROOT to one")
