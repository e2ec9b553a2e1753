"""What pyproject.toml cannot say: the course's files, which stand at the top of the repository, go into the package.

In a wheel they are in mpcourse/course/files, where mpcourse.course.check.manifest.source finds them. An editable
installation has no such folder, and takes them from the clone. Of exercises only the manifest is there: those in a
clone may hold a learner's answers, and `mpcourse init` makes them from the solutions.
"""

import os
import shutil
import tomllib
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent

# Building twice makes the same wheel, to the byte: dates and permissions of files are no part of it.
os.environ.setdefault("SOURCE_DATE_EPOCH", "315619200")  # 1980-01-02, about the first that a zip file can tell
os.umask(0o022)


def course_files() -> list[str]:
    """Paths, from the root, of all that a learner's folder is made of."""
    manifest = tomllib.loads((ROOT / "exercises" / "manifest.toml").read_text(encoding="utf-8"))
    docs = ("debugging", "glossary", "running_a_large_job", "several_machines")
    paths = ["exercises/manifest.toml", *(f"docs/{name}.md" for name in docs)]
    paths += [f"lessons/{lesson['id']}.ipynb" for lesson in manifest["lesson"]]
    paths += [f"solutions/{exercise['name']}.py" for exercise in manifest["exercise"]]
    also = "lessons/appendix/*.ipynb lessons/figures/*.* lessons/twins/*.py exercises/evidence/*/*.*"
    for pattern in also.split():
        paths += [path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)]
    return sorted(paths)


class BuildCourse(Command):
    """Copies the course's files into the package that is built."""

    description = "copy lessons, solutions and the manifest into the package"
    user_options = []  # noqa: RUF012
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        for target, path in self.get_output_mapping().items():
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, target)

    def get_source_files(self) -> list[str]:
        return course_files()

    def get_outputs(self) -> list[str]:
        return list(self.get_output_mapping())

    def get_output_mapping(self) -> dict[str, str]:
        if self.editable_mode:
            return {}
        return {f"{self.build_lib}/mpcourse/course/files/{path}": path for path in course_files()}


class BuildPackage(build_py):
    """Without what an earlier build left, and with permissions that are no clone's own."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            for path in Path(self.build_lib).rglob("*.py"):
                path.chmod(0o644)


build.sub_commands.append(("build_course", None))
setup(cmdclass={"build_course": BuildCourse, "build_py": BuildPackage})
