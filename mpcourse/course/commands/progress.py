"""`mpcourse list` and `mpcourse progress`: what is done, and what was met and mended."""

import argparse
import json
from html import escape

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.progress import Progress, by_lesson, summary
from mpcourse.course.check.show import console
from mpcourse.course.check.show_progress import as_html, as_rows, show_list, show_progress
from mpcourse.course.commands.output import check_writable, write
from mpcourse.course.page import page


def list_exercises(options: argparse.Namespace) -> int:
    """Run `mpcourse list`."""
    course = load_course()
    progress = Progress(course)
    if options.json:
        print(json.dumps(as_rows(by_lesson(course, progress)), indent=1))
    else:
        show_list(course, progress, console())
    return 0


def show(options: argparse.Namespace) -> int:
    """Run `mpcourse progress`: show it in the terminal, as JSON, or as a page."""
    if options.json and options.html:
        raise UserError("--json and --html are two ways to show it: give one of them")
    course = load_course()
    progress = Progress(course)
    lessons = by_lesson(course, progress)
    if options.html:
        check_writable(options.html)
        lines = "".join(f"<li>{escape(line)}</li>" for line in summary(lessons))
        write(options.html, page("Your progress in mpcourse", [f"<ul>{lines}</ul>", as_html(lessons)]))
        print(f"{options.html} shows your progress")
    elif options.json:
        print(json.dumps({"summary": summary(lessons), "exercises": as_rows(lessons)}, indent=1))
    else:
        show_progress(course, progress, console())
    return 0
