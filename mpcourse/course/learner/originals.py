"""What a learner's folder holds before anyone writes in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpcourse import __version__
from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import Course, load_course, source
from mpcourse.course.check.stubs import stub_of

MANIFEST = "exercises/manifest.toml"
LIBRARY = "library"  # in a learner's folder, links to the installed package: lessons lead to its source there


@dataclass(frozen=True)
class Originals:
    """files: contents by path from the folder's root, with "/" between parts. version: of mpcourse."""

    version: str
    files: Mapping[str, bytes]


def originals(root: Path | None = None) -> Originals:
    """Return the files of a learner's folder; they come from a clone where one is installed.

    root: where lessons, manifest and solutions are, if not in this mpcourse. Exercises are made from the solutions,
    because the exercises in a clone may hold a learner's answers. Raises UserError where something is missing.
    """
    course = load_course(root or source())
    try:
        files = {path: (course.root / path).read_bytes() for path in _paths(course)}
        files |= {f"exercises/{e.name}.py": stub_of(course, e).encode() for e in course.exercises}
    except OSError as error:
        raise UserError(f"{error.filename} is missing: install mpcourse again") from None
    for path in files:
        if path.endswith(".ipynb"):  # what links to the library's source in a clone
            files[path] = files[path].replace(b"../mpcourse/", f"../{LIBRARY}/".encode())
    own = Path(__file__).with_name("files")
    table = "\n".join(f"| [{x.id[:2]} {x.title}](lessons/{x.id}.ipynb) | {x.question} |" for x in course.lessons)
    files["README.md"] = (own / "README.md").read_text(encoding="utf-8").replace("LESSONS", table).encode()
    files["AGENTS.md"] = (own / "AGENTS.md").read_bytes()
    return Originals(__version__, files)


def _paths(course: Course) -> list[str]:
    """Return the files that are copied as they are."""
    docs = ("debugging", "glossary", "running_a_large_job", "several_machines")
    found = [MANIFEST, *(f"docs/{name}.md" for name in docs)]
    found += [f"lessons/{lesson.id}.ipynb" for lesson in course.lessons]
    also = "lessons/appendix/*.ipynb lessons/figures/*.* lessons/twins/*.py exercises/evidence/*/*.*"
    for pattern in also.split():
        found += sorted(path.relative_to(course.root).as_posix() for path in course.root.glob(pattern))
    return found
