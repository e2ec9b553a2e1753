"""What the first cell of a lesson shows: what is done of its exercises, and what was met and mended in them.

from mpcourse.course.learner import panel

panel.show("02_split_with_copy")
"""

import os
from html import escape
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.progress import LessonProgress, Progress, by_lesson
from mpcourse.course.check.show_progress import as_html, as_text


def show(lesson: str | None = None) -> None:
    """Show a learner's progress, in a notebook or in a terminal. Raises nothing: a lesson goes on without it.

    lesson: "02_split_with_copy", or its beginning, such as "02". None: in JupyterLab the notebook's lesson; else, and
    where the notebook is no lesson, the whole course.
    """
    try:
        chosen = _lessons(lesson)
        text, html = as_text(chosen), as_html(chosen, states=len(chosen) == 1)
    except UserError as error:
        text = f"progress is not shown: {error}"
        html = f"<div>{escape(text)}</div>"
    except Exception as error:  # a fault of this panel must not keep anybody from the lesson below it
        text = f"progress is not shown: {type(error).__name__}: {error}"
        html = f"<div>{escape(text)}</div>"
    _display(text, html)


def _lessons(asked: str | None) -> list[LessonProgress]:
    """Return the lesson that is asked for, or all."""
    course = load_course()
    every = by_lesson(course, Progress(course))
    if asked is None:
        notebook = Path(os.environ.get("JPY_SESSION_NAME", "")).stem  # which JupyterLab tells its kernels
        return [each for each in every if each.lesson.id == notebook] or every
    found = [each for each in every if asked and each.lesson.id.startswith(asked)]
    if len(found) != 1:
        raise UserError(f"there is no lesson {asked!r}: they go from {every[0].lesson.id} to {every[-1].lesson.id}")
    return found


def _display(text: str, html: str) -> None:
    """Show by IPython in a notebook, which keeps both forms, and as text elsewhere."""
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
