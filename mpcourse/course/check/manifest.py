"""The course's table of contents: `exercises/manifest.toml`, read once and offered as records."""

import difflib
import json
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from mpcourse import __version__
from mpcourse.common.errors import WHEEL, UserError

PACKAGE = Path(__file__).resolve().parents[2]
INSTALLED = Path(".mpcourse", "installed.json")  # in a learner's folder: the version and what it came with
NEW_FOLDER = "make a new folder by `mpcourse init DIR`, and copy your work there"
ELSEWHERE = "change to the course's folder, set MPCOURSE_ROOT to it, or make one, `mpcourse init DIR`"


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
    virtual: whether that begins on virtual ranks, for which one real rank is enough.
    forbidden_modules: where mpcourse has what the answer must write: packages, modules, or "module:function".
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
    forbidden_modules: list[str] = field(default_factory=list)
    short: str = ""


@dataclass(frozen=True)
class Course:
    """A clone of the course, or a learner's folder: `root` holds exercises/ and lessons/, in a clone solutions/, too.

    installed: the version of mpcourse that made the learner's folder; empty for a clone.
    """

    root: Path
    lessons: list[Lesson]
    exercises: list[Exercise]
    installed: str = ""

    @property
    def outdated(self) -> str:
        """What to tell a learner whose folder an older mpcourse made; else an empty text."""
        if self.installed in ("", __version__):
            return ""
        return f"mpcourse {__version__} is installed, this folder is from {self.installed}: `mpcourse update` renews it"

    def exercise_file(self, exercise: Exercise) -> Path:
        return self.root / "exercises" / f"{exercise.name}.py"

    def solution_file(self, exercise: Exercise) -> Path:
        return (source() if self.installed else self.root) / "solutions" / f"{exercise.name}.py"

    def find(self, asked: str) -> Exercise:
        """Find the exercise that `asked` names: "e01_memory", "e01", a unique beginning, or the path of its file."""
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


def source() -> Path:
    """Return the folder of this mpcourse's lessons, manifest and solutions: the wheel's own, else the clone."""
    return PACKAGE / "course" / "files" if WHEEL else PACKAGE.parent


def load_course(root: Path | None = None) -> Course:
    """Load the course in `root`, else in $MPCOURSE_ROOT, else around the working directory, else this package."""
    root = root or _find_root()
    path = root / "exercises" / "manifest.toml"
    installed, _ = read_installed(root)
    check_version(root, installed)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{root} holds no exercises/manifest.toml: {ELSEWHERE}") from None
    except tomllib.TOMLDecodeError as error:
        cure = "`mpcourse update`" if installed else f"`git checkout {path}`"
        raise UserError(f"{path} is not valid TOML ({error}): {cure} brings it back") from None
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
    return Course(root, lessons, exercises, installed)


def read_installed(root: Path) -> tuple[str, dict[str, str]]:
    """Read which mpcourse made the learner's folder `root` or updated it last: its version, its files' SHA-256.

    The version is empty where none did. Raises UserError where that is not to be read.
    """
    path = root / INSTALLED
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        version, files = str(Version(table["version"])), table["files"]
        if not all(isinstance(name, str) for name in files.values()):
            raise TypeError
        return version, files
    except FileNotFoundError:
        return "", {}
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError, InvalidVersion):
        raise UserError(f"{path} is damaged: {NEW_FOLDER}") from None


def check_version(root: Path, version: str) -> None:
    """Raise UserError if a newer mpcourse than this one made or updated a learner's folder."""
    if version and Version(version) > Version(__version__):
        raise UserError(
            f"{root} was made by mpcourse {version}, and {__version__} is installed: install {version} or a newer one"
        )


def _find_root() -> Path:
    if asked := os.environ.get("MPCOURSE_ROOT"):
        return Path(asked)
    root = root_around(Path.cwd()) or root_around(PACKAGE)
    if root is None:
        raise UserError(f"no course was found here: {ELSEWHERE}")
    return root


def root_around(folder: Path) -> Path | None:
    """Return the root of the course in which `folder`, an absolute path, lies; None where it lies in none."""
    return next((f for f in (folder, *folder.parents) if (f / "exercises" / "manifest.toml").is_file()), None)
