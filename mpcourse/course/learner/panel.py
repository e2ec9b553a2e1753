"""What the first cell of a lesson shows: what is done of its exercises, and what was met and mended in them.

from mpcourse.course.learner import panel

panel.show("02_split_with_copy")
"""

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.common.words import counted
from mpcourse.course.check.manifest import Course, load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.progress_summary import (
    LessonStanding,
    Standing,
    dates_of,
    done_of,
    misconceptions,
    standings,
)

# JupyterLab's own colours, which follow its theme; elsewhere what is readable on light and on dark. They stand in the
# elements themselves: a style sheet would be of the whole page, and JupyterLab takes it out of what it does not trust.
_FRAME = "border-left: 4px solid var(--jp-brand-color1, #2a7fc1); padding: 2px 12px; line-height: 1.5; max-width: 60em"
_ALIGNED = "display: inline-block; min-width: 19em"
_TRACK = (
    "display: inline-block; width: 12em; height: 0.6em; margin: 0 0.6em; border-radius: 0.3em; overflow: hidden; "
    "background: var(--jp-layout-color3, #8886)"
)
_DONE = "display: block; height: 100%; background: var(--jp-brand-color1, #2a7fc1); width: "


def show(lesson: str | None = None) -> None:
    """Show where the learner stands, in a notebook or in a terminal. Raises nothing: a lesson goes on without it.

    lesson: "02_split_with_copy", or its beginning, such as "02". None: in JupyterLab the notebook's lesson; else, and
    where the notebook is no lesson, the whole course.
    """
    try:
        course = load_course()
        chosen = _lessons(course, lesson)
        text, html = as_text(chosen), as_html(chosen)
    except UserError as error:
        text = f"progress is not shown: {error}"
        html = f"<div>{escape(text)}</div>"
    except Exception as error:  # a fault of this panel must not keep anybody from the lesson below it
        text = f"progress is not shown: {type(error).__name__}: {error}"
        html = f"<div>{escape(text)}</div>"
    _display(text, html)


def _lessons(course: Course, asked: str | None) -> list[LessonStanding]:
    """The lesson that is asked for, or all."""
    every = standings(course, Progress(course))
    if asked is None:
        notebook = Path(os.environ.get("JPY_SESSION_NAME", "")).stem  # which JupyterLab tells its kernels
        return [each for each in every if each.lesson.id == notebook] or every
    found = [each for each in every if asked and each.lesson.id.startswith(asked)]
    if len(found) != 1:
        raise UserError(f"there is no lesson {asked!r}: they go from {every[0].lesson.id} to {every[-1].lesson.id}")
    return found


def as_text(lessons: Sequence[LessonStanding]) -> str:
    """Two lines of one lesson where nothing was met, one each of several; then a line for each misconception."""
    lines = []
    for lesson in lessons:
        lines.append(f"{lesson.name}: {_count(lesson.exercises)}")
        if len(lessons) == 1:
            lines.append(", ".join(f"{each.exercise.name} {_state(each)}" for each in lesson.exercises))
        lines += [f"{exercise.name}: {met.why} ({dates_of(met)})" for exercise, met in misconceptions(lesson.exercises)]
    return "\n".join(lines)


def as_html(lessons: Sequence[LessonStanding]) -> str:
    """The same, with a bar, and misconceptions folded: those that are not mended yet are unfolded."""
    parts = []
    for lesson in lessons:
        name = f'<b style="{_ALIGNED * (len(lessons) > 1)}">{escape(lesson.name)}</b>'
        parts.append(f"<div>{name}{_bar(lesson.exercises)}{_count(lesson.exercises)}</div>")
        if len(lessons) == 1:
            states = (f"<code>{escape(e.exercise.name)}</code>&nbsp;{escape(_state(e))}" for e in lesson.exercises)
            parts.append(f"<div>{' &middot; '.join(states)}</div>")
        if met := misconceptions(lesson.exercises):
            rows = "".join(
                f"<li>{escape(each.why)}<br><small>{escape(exercise.name)}: {escape(dates_of(each))}</small></li>"
                for exercise, each in met
            )
            mended = sum(each.mended_at is not None for _, each in met)
            head = f"misconceptions: {len(met)} met, {mended} mended"
            unfolded = " open" * (mended < len(met))
            parts.append(f"<details{unfolded}><summary>{head}</summary><ul>{rows}</ul></details>")
    return f'<div style="{_FRAME}">{"".join(parts)}</div>'


def _state(each: Standing) -> str:
    return each.state if each.state != "begun" else " ".join(["begun,", *each.facts()[:1]])


def _count(exercises: Sequence[Standing]) -> str:
    return f"{done_of(exercises)} of {counted(len(exercises), 'exercise')} done"


def _bar(exercises: Sequence[Standing]) -> str:
    share = f"{100 * done_of(exercises) // max(1, len(exercises))}%"
    return f'<span style="{_TRACK}" role="img" aria-label="{share}"><span style="{_DONE}{share}"></span></span>'


def _display(text: str, html: str) -> None:
    """By IPython in a notebook, which keeps both forms; as text elsewhere."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        shell = None
    else:
        shell = get_ipython()
    if shell is None:
        print(text)
    else:
        display({"text/plain": text, "text/html": html}, raw=True)
