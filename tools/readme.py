"""Bring README.md in step: the table of lessons from the manifest, and the pictures of a verdict and of a schedule.

Run by `make lessons`.
"""

import io
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from mpcourse import plot
from mpcourse.course.check.manifest import Course, load_course
from mpcourse.course.check.show import print_verdict
from mpcourse.course.check.supervisor import check
from mpcourse.pipeline import one_f_one_b

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.answers import answers_to  # noqa: E402
from tools.build import judged  # noqa: E402  no part of the package

PICTURE = ROOT / "lessons" / "figures" / "verdict.svg"
SCHEDULE = ROOT / "lessons" / "figures" / "one_f_one_b.svg"
HANGS = "timeout 10 mpirun -np 2 python hello.py"
HELLO = "from e00_hello import greet\nfrom mpi4py import MPI\n\nprint(greet(MPI.COMM_WORLD))\n"
SHOWN = "receive_before_send_on_both_sides"  # a wrong answer to e00_hello
BEGIN, END = "<!-- lessons: made by `make lessons` -->", "<!-- end of lessons -->"
WORDS, LINES = 150, 12  # of text and of code that are read in a minute
FIGURE, PREDICTION = 1.0, 1.5  # minutes
UNREAD = {"remove-cell", "checked"}  # tags of cells that a reader passes over
DARK = TerminalTheme(
    (32, 36, 44),
    (220, 223, 228),
    [
        (40, 44, 52),
        (240, 113, 120),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 120, 221),
        (86, 182, 194),
        (220, 223, 228),
    ],
)


def reading_minutes(book: nbformat.NotebookNode) -> int:
    """Return the minutes that a lesson takes to read, rounded up to a multiple of 5.

    book: with its outputs. Empty lines of code do not count, nor what cells print, nor the targets of links.
    """
    texts = [re.sub(r"\]\([^)]*\)", "]", cell.source) for cell in book.cells if cell.cell_type == "markdown"]
    code = [cell for cell in book.cells if cell.cell_type == "code" and not UNREAD & set(cell.metadata.get("tags", []))]
    words = sum(len(re.findall(r"\w[\w'.-]*", text)) for text in texts)
    lines = sum(bool(line.strip()) for cell in code for line in cell.source.splitlines())
    figures = sum("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    predictions = sum(text.count("**Predict first.**") for text in texts)
    return 5 * math.ceil((words / WORDS + lines / LINES + FIGURE * figures + PREDICTION * predictions) / 5)


def lesson_table(course: Course) -> str:
    """Return the README's table, a row for each lesson in order, and the hours of all."""
    rows = ["| lesson | question | exercises | minutes |", "|---|---|---|---|"]
    hours = sum(e.minutes for e in course.exercises) / 60
    for lesson in course.lessons:
        exercises = [e for e in course.exercises if e.lesson == lesson.id]
        names = "<br>".join(f"`{e.name}` {e.title}" for e in exercises)
        reading = reading_minutes(nbformat.reads(judged(lesson.id)[1], as_version=4))
        minutes = f"{reading} + {sum(e.minutes for e in exercises)}"
        hours += reading / 60
        title = f"[{lesson.id[:2]} {lesson.title}](lessons/{lesson.id}.ipynb)"
        rows.append(f"| {title} | {lesson.question} | {names} | {minutes} |")
    said = f"The minutes are those for reading the lesson + those for its exercises, {hours:.0f} hours in all."
    return "\n".join([*rows, "", said])


def with_table(readme: str, course: Course) -> str:
    """Return the README's text with the table of this course between its markers."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    made, found = pattern.subn(lambda _: f"{BEGIN}\n{lesson_table(course)}\n{END}", readme)
    if found != 1:
        raise ValueError(f"README.md must hold {BEGIN} and {END} once")
    return made


def draw_verdict(course: Course) -> str:
    """Return an SVG of a terminal in which a wrong answer hangs under mpirun, and is then checked.

    Both really happen. Only the banner is left out that MPICH prints when `timeout` ends it.
    """
    e00 = course.find("e00")
    answer = next(answer for answer in answers_to(e00, right=False) if answer.name == SHOWN)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{e00.name}.py"
        file.write_text(answer.text)
        Path(folder, "hello.py").write_text(HELLO)
        here = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        hung = subprocess.run(shlex.split(HANGS), cwd=folder, env=here, capture_output=True, check=False)
        verdict = check(e00, file, [2])
    verdict.file = course.exercise_file(e00).relative_to(ROOT).as_posix()  # as if it had been written there
    out = Console(record=True, width=96, file=io.StringIO(), force_terminal=True, highlight=False)
    out.print(Text.assemble(("$ ", "green"), f'{HANGS}; echo "exit status $?"'))
    out.print(f"exit status {hung.returncode}")
    out.print(Text.assemble(("$ ", "green"), "mpcourse check e00"))
    print_verdict(verdict, out)
    svg = out.export_svg(title="a deadlock, named", theme=DARK, unique_id="verdict")
    # A picture in a README may not fetch fonts from elsewhere: the reader's own fixed-width one will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "DejaVu Sans Mono").replace(
        "<!-- Generated with Rich https://www.textualize.io -->", ""
    )


def draw_schedule() -> str:
    """Return an SVG of 1F1B, with its text as text."""
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "mpcourse"}):
        out = io.StringIO()
        figure = plot.schedule(one_f_one_b(4, 8), "1F1B: 4 stages, 8 micro-batches")
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


if __name__ == "__main__":
    course = load_course(ROOT)
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(), course))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw_verdict(course))
    SCHEDULE.write_text(draw_schedule())
    print("README.md and its pictures are in step")
