"""A learner's progress as a table, a page, JSON, and the first cell of a lesson."""

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mpcourse.common.words import counted
from mpcourse.course.check.manifest import Course, Exercise
from mpcourse.course.check.progress import (
    LessonProgress,
    Progress,
    Record,
    by_lesson,
    dates_of,
    done_of,
    misconceptions,
    summary,
)

NARROW = 90  # columns; in fewer the table has no lines between its columns, and tasks are below names
BAR = 16  # columns
_COLOURS = {"done": "green", "begun": "yellow", "open": "dim"}

# JupyterLab's own colours, which follow its theme, and elsewhere colours that are readable on light and on dark. They
# are in the elements: JupyterLab removes a style sheet from what it does not trust.
_FRAME = "border-left: 4px solid var(--jp-brand-color1, #2a7fc1); padding: 2px 12px; line-height: 1.5; max-width: 60em"
_ALIGNED = "display: inline-block; min-width: 19em"
_TRACK = (
    "display: inline-block; width: 12em; height: 0.6em; margin: 0 0.6em; border-radius: 0.3em; overflow: hidden; "
    "background: var(--jp-layout-color3, #8886)"
)
_DONE = "display: block; height: 100%; background: var(--jp-brand-color1, #2a7fc1); width: "


def as_rows(lessons: Sequence[LessonProgress]) -> list[dict[str, Any]]:
    """Return a row for each exercise, for JSON."""
    return [
        {
            "exercise": exercise.name,
            "title": exercise.title,
            "lesson": exercise.lesson,
            "minutes": exercise.minutes,
            "difficulty": exercise.difficulty,
            "state": record.state,
            "passed": record.state == "done",
            "tried_at": record.tried_at,
            "passed_at": record.passed_at,
            "tries": record.attempts,
            "hints": record.hints,
            "solution_shown": record.spoiled,
            "misconceptions": [asdict(met) for met in record.met],
        }
        for lesson in lessons
        for exercise, record in lesson.rows
    ]


def as_text(lessons: Sequence[LessonProgress]) -> str:
    """Return a line for each lesson and each misconception; of one lesson alone also the state of its exercises."""
    lines = []
    for lesson in lessons:
        lines.append(f"{lesson.name}: {_count(lesson)}")
        if len(lessons) == 1:
            lines.append(", ".join(f"{exercise.name} {_state(record)}" for exercise, record in lesson.rows))
        lines += [f"{exercise.name}: {met.why} ({dates_of(met)})" for exercise, met in misconceptions(lesson.rows)]
    return "\n".join(lines)


def as_html(lessons: Sequence[LessonProgress], states: bool = True) -> str:
    """Return the same in HTML, with a bar. Misconceptions are folded, and unfolded while one of them is not mended.

    states: whether each exercise's state is shown.
    """
    parts = []
    for lesson in lessons:
        name = f'<b style="{_ALIGNED * (len(lessons) > 1)}">{escape(lesson.name)}</b>'
        parts.append(f"<div>{name}{_html_bar(lesson)}{_count(lesson)}</div>")
        if states:
            named = (f"<code>{escape(e.name)}</code>&nbsp;{escape(_state(record))}" for e, record in lesson.rows)
            parts.append(f"<div>{' &middot; '.join(named)}</div>")
        if met := misconceptions(lesson.rows):
            items = "".join(
                f"<li>{escape(each.why)}<br><small>{escape(exercise.name)}: {escape(dates_of(each))}</small></li>"
                for exercise, each in met
            )
            mended = sum(each.mended_at is not None for _, each in met)
            head = f"misconceptions: {len(met)} met, {mended} mended"
            unfolded = " open" * (mended < len(met))
            parts.append(f"<details{unfolded}><summary>{head}</summary><ul>{items}</ul></details>")
    return f'<div style="{_FRAME}">{"".join(parts)}</div>'


def _state(record: Record) -> str:
    return record.state if record.state != "begun" else " ".join(["begun,", *record.facts()[:1]])


def _count(lesson: LessonProgress) -> str:
    return f"{lesson.done} of {counted(len(lesson.rows), 'exercise')} done"


def _html_bar(lesson: LessonProgress) -> str:
    share = f"{100 * lesson.done // len(lesson.rows)}%"
    bar = f'<span style="{_DONE}{share}"></span>'
    return f'<span style="{_TRACK}" role="img" aria-label="{share} done">{bar}</span>'


def show_list(course: Course, progress: Progress, out: Console) -> None:
    """Print the table of exercises, and what is done, by lesson and of all."""
    lessons = by_lesson(course, progress)
    every = [row for lesson in lessons for row in lesson.rows]
    narrow = out.width < NARROW
    look: dict[str, Any] = {"box": None, "padding": (0, 1, 0, 0)} if narrow else {}
    table = Table(title="mpcourse: exercises", title_justify="left", **look)
    for heading in ("", "exercise", *["task"] * (not narrow), "lesson", "min", "level", "tries"):
        least = max(len(e.name) for e in course.exercises) if heading == "exercise" else None
        justify: Any = "right" if heading in ("min", "tries") else "left"
        table.add_column(heading, justify=justify, min_width=least)
    for exercise, record in every:
        done = "done" if record.state == "done" else ""
        below = [Text.assemble(exercise.name, "\n", (exercise.title, "dim"))]
        table.add_row(
            Text(done, _COLOURS["done"]),
            *(below if narrow else [exercise.name, exercise.title]),
            exercise.lesson[:2],
            str(exercise.minutes),
            "*" * exercise.difficulty,
            str(record.attempts or ""),
        )
    out.print(table)
    out.print(_bars([*((lesson.name, lesson.rows) for lesson in lessons), ("all", every)], out))
    if misconceptions(every):
        out.print("`mpcourse progress` shows what you met and mended", style="dim", soft_wrap=True)
    if course.outdated:
        out.print(course.outdated, soft_wrap=True)


def show_progress(course: Course, progress: Progress, out: Console) -> None:
    """Print the summary, then of each lesson that was begun its exercises and misconceptions, then what comes next."""
    lessons = by_lesson(course, progress)
    out.print(_bars([("mpcourse", [row for lesson in lessons for row in lesson.rows])], out))
    for line in summary(lessons):
        out.print(Text(line))
    for lesson in lessons:
        if lesson.begun:
            out.print()
            out.print(_bars([(lesson.name, lesson.rows)], out))
            for exercise, record in lesson.rows:
                _print_exercise(exercise, record, out)
    if later := [lesson.name for lesson in lessons if not lesson.begun]:
        out.print()
        out.print(Text(f"not begun: {', '.join(later)}", "dim"))
    upcoming = progress.next(course)
    out.print(Text(f"next: {upcoming.name}, see `mpcourse next`" if upcoming else "all exercises have passed", "dim"))


def _print_exercise(exercise: Exercise, record: Record, out: Console) -> None:
    facts = ", ".join(record.facts())
    line = Text.assemble(
        (f"{record.state:<6}", _COLOURS[record.state]), exercise.name, (f"  {facts}" if facts else "", "dim")
    )
    out.print(Padding(line, (0, 0, 0, 2), expand=False))
    for _, met in misconceptions([(exercise, record)]):
        dates = Text(f"{dates_of(met)} ({met.kind})", "dim" if met.mended_at else "bold")
        out.print(Padding(dates, (0, 0, 0, 8), expand=False))
        out.print(Padding(Text(met.why), (0, 0, 0, 10), expand=False))


def _bars(rows: Sequence[tuple[str, Sequence[tuple[Exercise, Record]]]], out: Console) -> Table:
    """Return a line for each of `rows`: its name, a bar, and how many are done."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for name, exercises in rows:
        done, every = done_of(exercises), len(exercises)
        grid.add_row(Text(name), _bar(done, every, out), Text(f"{done} of {every} done"))
    return grid


def _bar(done: int, every: int, out: Console) -> RenderableType:
    """Return Rich's own bar; without colours it does not show what is left, so there it has two characters."""
    if out.color_system and not out.no_color:
        return ProgressBar(every, done, width=BAR, style="bright_black", complete_style="green", finished_style="green")
    full = BAR * done // every
    return Text("#" * full + "." * (BAR - full))
