"""Lessons for Google Colab, made of the texts in lessons/src: python tools/for_colab.py [FOLDER] (build/colab).

Colab opens a notebook of a public repository on a machine that has torch, and nothing of the course. So its notebooks
begin with a cell that installs the course. They are copies, without outputs: a cell in the lessons themselves would
have to stand in their texts, too, for JupyterLab refuses a pair that differs, and would be the first thing that all
others see. No commit of the course holds them: .github/workflows/site.yml puts them on a branch of their own, `colab`.
"""

import hashlib
import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from mpcourse import __version__  # noqa: E402
from tools.build import METADATA, lesson_texts, name_of, read_source  # noqa: E402  no part of the package

# Colab shows the title in place of the code. Its own mpirun, Open MPI's, is left alone, and so is its torch.
FIRST = '''# @title Set up the course: run this cell first
import os
import subprocess
import sys
from importlib.metadata import files, version
from pathlib import Path


def set_up(content):
    """Install the course, make its folder in `content`, or in Drive where that is mounted, and go to its lessons."""

    def run(*command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            said = (done.stdout.strip() or "nothing").splitlines()[-1]
            raise RuntimeError(f"The course was not set up: {' '.join(command[2:])} says: {said}")

    # A wheel that was uploaded is found, too.
    run(sys.executable, "-m", "pip", "install", "--quiet", f"--find-links={content}", "mpcourse[mpich]==VERSION")
    mpirun = next(file.locate().resolve() for file in files("mpich") if file.name == "mpirun")
    os.environ["MPCOURSE_MPIRUN"] = str(mpirun)
    os.environ["PATH"] = f"{mpirun.parent}{os.pathsep}{os.environ['PATH']}"
    drive = content / "drive" / "MyDrive"
    course = (drive if drive.is_dir() else content) / "mpcourse"
    if not (course / "exercises" / "manifest.toml").exists():
        run(sys.executable, "-m", "mpcourse.course.cli", "init", str(course))
    os.chdir(course / "lessons")
    print(f"mpcourse {version('mpcourse')} with torch {version('torch')}: lessons and exercises are in {course}.")
    if not drive.is_dir():
        print("Colab deletes them with this machine. To keep your answers, mount Drive, then run this cell again.")


if "google.colab" in sys.modules:
    set_up(Path("/content"))
'''
LINK = re.compile(r"\[([^]]*)\]\((?!https?:|#)[^)\s]*\)")  # to a file, which Colab does not find


def first_cell() -> nbformat.NotebookNode:
    """Return the cell that Colab's copies begin with. Elsewhere it does nothing."""
    cell = nbformat.v4.new_code_cell(FIRST.replace("VERSION", __version__).rstrip())
    cell.id = hashlib.sha256(cell.source.encode()).hexdigest()[:12]
    cell.metadata = nbformat.from_dict({"cellView": "form", "tags": ["colab"]})
    return cell


def copy_of(source: Path) -> nbformat.NotebookNode:
    """Colab's copy of the lesson whose text is at `source`."""
    book = read_source(source)
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(r"\1", cell.source)
    book.cells.insert(0, first_cell())
    book.metadata = nbformat.from_dict(METADATA | {"colab": {"provenance": []}})
    return book


def write_copies(folder: Path) -> None:
    """Write a copy of each lesson to `folder`, and remove notebooks that are none."""
    (folder / "appendix").mkdir(parents=True, exist_ok=True)
    for old in folder.rglob("*.ipynb"):
        old.unlink()
    for text in lesson_texts():
        nbformat.write(copy_of(text), folder / f"{name_of(text)}.ipynb")


if __name__ == "__main__":
    write_copies(Path(*sys.argv[1:2] or (ROOT / "build" / "colab",)))
