"""`mpcourse list` and `mpcourse progress` as a person reads them in a terminal or a notebook."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mpcourse.course.check.manifest import Course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.progress_summary import (
    Standing,
    all_of,
    dates_of,
    done_of,
    misconceptions,
    standings,
    summary,
)

NARROW = 90  # columns; in fewer the table has no lines between its columns, and tasks stand below names
BAR = 16  # columns
_COLOURS = {"done": "green", "begun": "yellow", "open": "dim"}


def show_list(course: Course, progress: Progress, out: Console) -> None:
    """Print the table of exercises, and what is done, by lesson and of all."""
    lessons = standings(course, progress)
    narrow = out.width < NARROW
    look: dict[str, Any] = {"box": None, "padding": (0, 1, 0, 0)} if narrow else {}
    table = Table(title="mpcourse: exercises", title_justify="left", **look)
    for heading in ("", "exercise", *["task"] * (not narrow), "lesson", "min", "level", "tries"):
        least = max(len(e.name) for e in course.exercises) if heading == "exercise" else None
        justify: Any = "right" if heading in ("min", "tries") else "left"
        table.add_column(heading, justify=justify, min_width=least)
    for each in all_of(lessons):
        exercise, done = each.exercise, each.state == "done"
        named = (
            [Text.assemble(exercise.name, "\n", (exercise.title, "dim"))] if narrow else [exercise.name, exercise.title]
        )
        table.add_row(
            Text("done" if done else "", _COLOURS["done"]),
            *named,
            exercise.lesson[:2],
            str(exercise.minutes),
            "*" * exercise.difficulty,
            str(each.done.attempts or ""),
        )
    out.print(table)
    every = all_of(lessons)
    out.print(_bars([*((lesson.name, lesson.exercises) for lesson in lessons), ("all", every)], out))
    if misconceptions(every):
        out.print("`mpcourse progress` tells what you met and mended", style="dim", soft_wrap=True)
    if course.outdated:
        out.print(course.outdated, soft_wrap=True)


def show_progress(course: Course, progress: Progress, out: Console) -> None:
    """Print the summary, then of each lesson that was begun its exercises and misconceptions, then what comes next."""
    lessons = standings(course, progress)
    out.print(_bars([("mpcourse", all_of(lessons))], out))
    for line in summary(all_of(lessons)):
        out.print(Text(line))
    for lesson in lessons:
        if lesson.begun:
            out.print()
            out.print(_bars([(lesson.name, lesson.exercises)], out))
            for each in lesson.exercises:
                _print_exercise(each, out)
    if later := [lesson.name for lesson in lessons if not lesson.begun]:
        out.print()
        out.print(Text(f"not begun: {', '.join(later)}", "dim"))
    upcoming = progress.next(course)
    out.print(Text(f"next: {upcoming.name}, see `mpcourse next`" if upcoming else "all exercises have passed", "dim"))


def _print_exercise(each: Standing, out: Console) -> None:
    facts = ", ".join(each.facts())
    line = Text.assemble(
        (f"{each.state:<6}", _COLOURS[each.state]), each.exercise.name, (f"  {facts}" if facts else "", "dim")
    )
    out.print(Padding(line, (0, 0, 0, 2), expand=False))
    for _, met in misconceptions([each]):
        out.print(
            Padding(
                Text(f"{dates_of(met)} ({met.kind})", "dim" if met.mended_at else "bold"), (0, 0, 0, 8), expand=False
            )
        )
        out.print(Padding(Text(met.why), (0, 0, 0, 10), expand=False))


def _bars(rows: Sequence[tuple[str, Sequence[Standing]]], out: Console) -> Table:
    """A line for each of `rows`: its name, a bar, and how many are done."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for name, exercises in rows:
        done, every = done_of(exercises), len(exercises)
        grid.add_row(Text(name), _bar(done, every, out), Text(f"{done} of {every} done"))
    return grid


def _bar(done: int, every: int, out: Console) -> RenderableType:
    """Rich's own bar; without colours it does not show what is left, so there it is of two characters."""
    if out.color_system and not out.no_color:
        return ProgressBar(every, done, width=BAR, style="bright_black", complete_style="green", finished_style="green")
    full = BAR * done // every
    return Text("#" * full + "." * (BAR - full))
