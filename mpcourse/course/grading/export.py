"""`mpcourse export`: the course's checks for Gradescope, GitHub Classroom and nbgrader."""

import argparse
import json
import re
import shlex
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import nbformat

from mpcourse import __version__
from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import Course, Exercise, load_course

SETUP = """#!/usr/bin/env bash
# Gradescope runs this once, as it builds the container: Ubuntu, as root.
set -eu
base="${AUTOGRADER:-/autograder}"
apt-get update -qq && apt-get install -qq --yes python3 python3-venv
python3 -m venv "$base/venv"
TORCH
"$base/venv/bin/pip" install --quiet "$(echo "$base"/source/*.whl)[mpich]"
"$base/venv/bin/mpcourse" init "$base/course"
# What students submit runs in this container, and must not find the solutions in it.
rm -rf "$("$base/venv/bin/python" -c 'from mpcourse.course.check.manifest import source; print(source())')/solutions"
"""

RUN = """#!/usr/bin/env bash
# Gradescope runs this for each submission.
set -eu
base="${AUTOGRADER:-/autograder}"
export MPCOURSE_ROOT="${MPCOURSE_ROOT:-$base/course}"
exec "${PYTHON:-$base/venv/bin/python}" -P -m mpcourse.course.grading.results "$base"
"""

WORKFLOW = """name: Autograding
on: [push, workflow_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  autograding:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: TORCH
      - run: pip install "$(echo .github/classroom/*.whl)[mpich]"
      - uses: education/autograding@v1
"""

CHECK = """# The check of mpcourse: nbgrader gives the points if this cell raises nothing.
import json, subprocess, sys

command = [sys.executable, "-m", "mpcourse.course.cli", "check", "{name}", "--file", "{name}.py", "--json"]
done = subprocess.run(command, capture_output=True, text=True)
if not done.stdout:
    raise RuntimeError(done.stderr)
verdict = json.loads(done.stdout)[0]
assert verdict["passed"], "\\n".join([verdict["kind"], verdict["headline"], *verdict["details"], verdict["why"]])
"""

ABOUT = {
    "gradescope": """Upload autograder.zip as the assignment's autograder.
In it, points.json says what an exercise counts.
Students submit files that are called as the exercises.
""",
    "classroom": """Copy .github into the template repository, which is a folder that `mpcourse init` made.
autograding.json says what each exercise counts, and after how many minutes it is ended.
""",
    "nbgrader": """source/ is nbgrader's: an assignment an exercise.
`nbgrader generate_assignment e00_hello` takes the solutions out.
Where notebooks run, in class and under `nbgrader autograde`, mpcourse is installed, and the variable MPCOURSE_ROOT
names a folder that `mpcourse init` made.
""",
}  # fmt: skip
OWN_TORCH = """Torch comes from pip's own index: a build for CUDA, of several gigabytes. For a CPU build, export again
with --torch-index URL, which PyTorch's selector shows after --index-url.
"""
NO_WHEEL = "Put mpcourse's wheel into {place}, or export again with --wheel FILE: without it the checks cannot run.\n"


def run(options: argparse.Namespace) -> int:
    """Run `mpcourse export FORMAT DIR`: write what the autograder takes, and a README.txt on what to do with it."""
    course = load_course()
    wanted = {course.find(name).name for name in options.only}
    exercises = [e for e in course.exercises if e.name in wanted or not wanted]
    folder: Path = options.folder
    if options.wheel and not (options.wheel.is_file() and options.wheel.suffix == ".whl"):
        raise UserError(f"{options.wheel} is no wheel: `pip wheel --no-deps --wheel-dir dist .` in a clone makes one")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"{folder} is not empty: name a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        about = ABOUT[options.format]
        about += FORMATS[options.format](course, exercises, folder, options.wheel, options.torch_index)
        if options.format != "nbgrader" and not options.torch_index:
            about += OWN_TORCH
        (folder / "README.txt").write_text(f"mpcourse {__version__}\n\n{about}", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{error.filename or folder} cannot be written or read ({error.strerror})") from None
    print(f"{folder}: {len(exercises)} exercises for {options.format}; README.txt tells what to do with it")
    return 0


def torch_from(index: str | None, pip: str) -> str:
    """Return the command that installs torch, before the wheel asks for it: from a package index, by `pip`."""
    return f"{pip} install --quiet torch" + (f" --index-url {shlex.quote(index)}" if index else "")


def gradescope(
    course: Course, exercises: Sequence[Exercise], folder: Path, wheel: Path | None, index: str | None
) -> str:
    """Write autograder.zip; return a remark on what is missing in it."""
    setup = SETUP.replace("TORCH", torch_from(index, '"$base/venv/bin/pip"'))
    points = json.dumps({e.name: float(e.difficulty) for e in exercises}, indent=1)
    with zipfile.ZipFile(folder / "autograder.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (("setup.sh", setup), ("run_autograder", RUN), ("points.json", points)):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o644 if name.endswith(".json") else 0o755) << 16
            archive.writestr(entry, text)
        if wheel:
            archive.write(wheel, wheel.name)
    return "" if wheel else NO_WHEEL.format(place="autograder.zip")


def classroom(
    course: Course, exercises: Sequence[Exercise], folder: Path, wheel: Path | None, index: str | None
) -> str:
    """Write .github for the repository of an assignment; return a remark on what is missing in it."""
    tests = [
        {
            "name": f"{e.name}: {e.title}", "setup": "", "run": f"mpcourse check {e.name}", "input": "", "output": "",
            "comparison": "included", "timeout": 10, "points": e.difficulty,
        }
        for e in exercises
    ]  # fmt: skip
    place = folder / ".github" / "classroom"
    place.mkdir(parents=True)
    (place / "autograding.json").write_text(json.dumps({"tests": tests}, indent=1), encoding="utf-8")
    (folder / ".github" / "workflows").mkdir()
    workflow = WORKFLOW.replace("TORCH", torch_from(index, "pip"))
    (folder / ".github" / "workflows" / "classroom.yml").write_text(workflow, encoding="utf-8")
    if wheel:
        shutil.copyfile(wheel, place / wheel.name)
    return "" if wheel else NO_WHEEL.format(place=".github/classroom")


def nbgrader(course: Course, exercises: Sequence[Exercise], folder: Path, wheel: Path | None, index: str | None) -> str:
    """Write source/NAME/NAME.ipynb for each exercise, with its solution between nbgrader's marks; install nothing."""
    for e in exercises:
        place = folder / "source" / e.name
        place.mkdir(parents=True)
        nbformat.write(notebook(e, course.solution_file(e).read_text(encoding="utf-8")), place / f"{e.name}.ipynb")
    if wheel:
        shutil.copyfile(wheel, folder / wheel.name)
    return ""


def notebook(exercise: Exercise, solution: str) -> nbformat.NotebookNode:
    """Make a notebook: the text, a cell that writes the answer's file, and the cell that nbgrader grades."""
    marked = re.sub(r"^([ \t]*)# solution: ([^\n]+)$", r"\1# \2\n\1### BEGIN SOLUTION", solution, flags=re.MULTILINE)
    marked = re.sub(r"^([ \t]*)# end of solution[ \t]*$", r"\1### END SOLUTION", marked, flags=re.MULTILINE)
    v4 = nbformat.v4
    task = (
        f"# {exercise.title}\n\nThe next cell writes the file `{exercise.name}.py`. Replace what raises "
        "NotImplementedError, and run it, then the cell below it, which checks the file."
    )
    cells = [
        _cell(v4.new_markdown_cell(task), f"{exercise.name}-task", locked=True),
        _cell(v4.new_code_cell(f"%%writefile {exercise.name}.py\n{marked}"), f"{exercise.name}-answer", solution=True),
        _cell(
            v4.new_code_cell(CHECK.format(name=exercise.name)),
            f"{exercise.name}-check",
            exercise.difficulty,
            locked=True,
        ),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return v4.new_notebook(cells=cells, metadata=kernel)


def _cell(
    cell: nbformat.NotebookNode, name: str, points: int = 0, solution: bool = False, locked: bool = False
) -> nbformat.NotebookNode:
    """Mark a cell as nbgrader's schema 3 does, and return it."""
    cell["id"] = re.sub(r"\W", "-", name)[:64]
    marks = {"grade": points > 0, "solution": solution, "locked": locked, "task": False, "schema_version": 3}
    cell.metadata["nbgrader"] = marks | {"grade_id": name, "cell_type": cell.cell_type}
    if points:
        cell.metadata["nbgrader"]["points"] = points
    return cell


FORMATS = {"gradescope": gradescope, "classroom": classroom, "nbgrader": nbgrader}
