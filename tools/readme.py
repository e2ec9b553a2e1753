"""Bring README.md in step: the table of lessons from the manifest, and the picture of a real verdict.

Run by `make lessons`.
"""

import io
import math
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from mpcourse.course.check.manifest import Course, load_course
from mpcourse.course.check.show import print_verdict
from mpcourse.course.check.supervisor import check

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.answers import answers_to  # noqa: E402
from tools.build import judged  # noqa: E402  no part of the package

PICTURE = ROOT / "lessons" / "figures" / "verdict.svg"
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
    """Return the README's table: a row for each lesson, in order."""
    rows = ["| lesson | question | exercises | minutes |", "|---|---|---|---|"]
    for lesson in course.lessons:
        exercises = [e for e in course.exercises if e.lesson == lesson.id]
        names = "<br>".join(f"`{e.name}` {e.title}" for e in exercises)
        reading = reading_minutes(nbformat.reads(judged(lesson.id)[1], as_version=4))
        minutes = f"{reading} + {sum(e.minutes for e in exercises)}"
        title = f"[{lesson.id[:2]} {lesson.title}](lessons/{lesson.id}.ipynb)"
        rows.append(f"| {title} | {lesson.question} | {names} | {minutes} |")
    return "\n".join(rows)


def with_table(readme: str, course: Course) -> str:
    """Return the README's text with the table of this course between its markers."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    made, found = pattern.subn(lambda _: f"{BEGIN}\n{lesson_table(course)}\n{END}", readme)
    if found != 1:
        raise ValueError(f"README.md must hold {BEGIN} and {END} once")
    return made


def draw_verdict(course: Course) -> str:
    """Return an SVG of a terminal in which a wrong answer is checked. The verdict is a real one."""
    e00 = course.find("e00")
    answer = next(answer for answer in answers_to(e00, right=False) if answer.name == SHOWN)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{e00.name}.py"
        file.write_text(answer.text)
        verdict = check(e00, file, [2])
    verdict.file = course.exercise_file(e00).relative_to(ROOT).as_posix()  # as if it had been written there
    out = Console(record=True, width=96, file=io.StringIO(), force_terminal=True, highlight=False)
    out.print(Text.assemble(("$ ", "green"), "mpcourse check e00"))
    print_verdict(verdict, out)
    svg = out.export_svg(title="a deadlock, named", theme=DARK, unique_id="verdict")
    # A picture in a README may not fetch fonts from elsewhere: the reader's own fixed-width one will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "DejaVu Sans Mono").replace(
        "<!-- Generated with Rich https://www.textualize.io -->", ""
    )


if __name__ == "__main__":
    course = load_course(ROOT)
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(), course))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw_verdict(course))
    print("README.md and its picture are in step")
