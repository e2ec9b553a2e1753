"""`mpcourse list` and `mpcourse progress`: what is done, and what was met and mended."""

import argparse
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.progress_summary import (
    LessonStanding,
    Standing,
    all_of,
    dates_of,
    done_of,
    misconceptions,
    standings,
    summary,
)
from mpcourse.course.commands.output import check_writable, write
from mpcourse.course.page import page, table

MADE_BY = "mpcourse progress"
_STYLE = """
body { max-width: 50rem }
h2 { margin: 2rem 0 .3rem } h3 { margin: .8rem 0 .2rem; font-size: 1rem }
h2 small, th small { font-weight: normal }
.bar { background: #8885; border-radius: .4rem; overflow: hidden; margin: .4rem 0 .8rem }
.bar div { background: #2a7fc1; height: .6rem }
.open { border-left: .3rem solid #c9730a; padding-left: .6rem }
.mended { border-left: .3rem solid #2a9134; padding-left: .6rem }
.met { list-style: none; padding: 0; margin: .3rem 0 } .met li { margin: .6rem 0 }
"""


def list_exercises(options: argparse.Namespace) -> int:
    """`mpcourse list`."""
    course = load_course()
    progress = Progress(course)
    if options.json:
        rows = [
            {"exercise": e.name, "title": e.title, "lesson": e.lesson, "minutes": e.minutes, "difficulty": e.difficulty}
            | {"passed": progress.passed(e), "passed_at": progress.of(e).passed_at, "tries": progress.of(e).attempts}
            | Standing(e, progress.of(e), progress.history(e)).as_dict()
            for e in course.exercises
        ]
        print(json.dumps(rows, indent=1))
    else:
        from mpcourse.course.check.show import console
        from mpcourse.course.check.show_progress import show_list

        show_list(course, progress, console())
    return 0


def show(options: argparse.Namespace) -> int:
    """`mpcourse progress`: in the terminal, as JSON, or as a page."""
    if options.force and not options.html:
        raise UserError("--force is of `mpcourse progress --html`")
    if options.json and options.html:
        raise UserError("--json and --html are two ways to show it: give one of them")
    course = load_course()
    progress = Progress(course)
    lessons = standings(course, progress)
    if options.html:
        _check_ours(options.html, options.force)
        check_writable(options.html)
        write(options.html, as_html(lessons))
        print(f"{options.html} shows your progress")
    elif options.json:
        print(json.dumps(as_dict(lessons), indent=1))
    else:
        from mpcourse.course.check.show import console
        from mpcourse.course.check.show_progress import show_progress

        show_progress(course, progress, console())
    return 0


def _check_ours(path: Path, force: bool) -> None:
    """Raise UserError where a file would be lost that is no such page."""
    try:
        ours = not path.is_file() or f'content="{MADE_BY}"' in path.read_text(encoding="utf-8", errors="replace")[:2000]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): name another file") from None
    if not ours and not force:
        raise UserError(f"{path} holds something else than a page of `{MADE_BY}`: name another file, or give --force")


def as_dict(lessons: Sequence[LessonStanding]) -> dict[str, Any]:
    """For --json."""
    every = all_of(lessons)
    return {
        "summary": summary(every),
        "done": done_of(every),
        "of": len(every),
        "lessons": [
            {
                "lesson": lesson.lesson.id,
                "title": lesson.lesson.title,
                "done": done_of(lesson.exercises),
                "of": len(lesson.exercises),
                "exercises": [each.as_dict() for each in lesson.exercises],
            }
            for lesson in lessons
        ],
    }


def as_html(lessons: Sequence[LessonStanding]) -> str:
    """One page without scripts, which needs no other file."""
    every = all_of(lessons)
    parts = [_bar(every), "<ul>", *(f"<li>{escape(line)}</li>" for line in summary(every)), "</ul>"]
    for lesson in lessons:
        if lesson.begun:
            parts += _lesson(lesson)
    if later := [lesson for lesson in lessons if not lesson.begun]:
        rows = [f"<li>{escape(lesson.name)}: {escape(lesson.lesson.question)}</li>" for lesson in later]
        parts += ["<h2>Not begun</h2>", "<ul>", *rows, "</ul>"]
    return page("Your progress in mpcourse", parts, _STYLE, MADE_BY)


def _lesson(lesson: LessonStanding) -> list[str]:
    rows = [
        [
            f'<th scope="row">{escape(each.exercise.name)}<br><small>{escape(each.exercise.title)}</small></th>',
            f"<td>{each.state}</td>",
            f"<td>{escape(', '.join(each.facts()))}</td>",
        ]
        for each in lesson.exercises
    ]
    heads = ["exercise", "state", "checks and hints"]
    count = f"<small>{done_of(lesson.exercises)} of {len(lesson.exercises)} done</small>"
    parts = [f"<h2>{escape(lesson.name)} {count}</h2>", _bar(lesson.exercises), table(heads, rows, lesson.name)]
    found = misconceptions(lesson.exercises)
    for title, style in (("Met and not mended yet", "open"), ("Met and mended", "mended")):
        lines = [
            f'<li class="{style}">{escape(met.why)}<br><small>{escape(exercise.name)}, {escape(met.kind)}: '
            f"{escape(dates_of(met))}</small></li>"
            for exercise, met in found
            if (met.mended_at is None) == (style == "open")
        ]
        parts += [f"<h3>{title}</h3>", '<ul class="met">', *lines, "</ul>"] if lines else []
    return parts


def _bar(exercises: Sequence[Standing]) -> str:
    done, every = done_of(exercises), len(exercises)
    share = f"{100 * done / every:.0f}%"
    return f'<div class="bar" role="img" aria-label="{share} done"><div style="width: {share}"></div></div>'
