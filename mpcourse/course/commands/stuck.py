"""`mpcourse hint`, `mpcourse reset` and `mpcourse solution`."""

import argparse
import json

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.show import show_code, show_hints
from mpcourse.course.check.stubs import reset, solution_only


def hint(options: argparse.Namespace) -> int:
    """Run `mpcourse hint`: show one more hint."""
    course = load_course()
    exercise, progress = course.find(options.exercise), Progress(course)
    with progress.changing(exercise) as record:
        record.hints = min(record.hints + 1, len(exercise.hints))
    shown = exercise.hints[: record.hints]
    if options.json:
        print(json.dumps({"exercise": exercise.name, "hints": shown, "of": len(exercise.hints)}, indent=1))
    else:
        show_hints(exercise, shown)
    return 0


def put_back(options: argparse.Namespace) -> int:
    """Run `mpcourse reset`: put the stub in the place of the learner's text, which is kept."""
    course = load_course()
    exercise = course.find(options.exercise)
    kept = reset(course, exercise, Progress(course).folder / "kept")
    print(f"{exercise.name} is as it was at first." + (f" Your text is in {kept}" if kept else ""))
    return 0


def solution(options: argparse.Namespace) -> int:
    """Run `mpcourse solution`: show it once the exercise has passed, or to a learner who insists."""
    course = load_course()
    exercise, progress = course.find(options.exercise), Progress(course)
    if not progress.passed(exercise):
        if not options.spoil:
            raise UserError(
                f"{exercise.name} has not passed yet: `mpcourse hint {exercise.short}` helps, --spoil shows it"
            )
        with progress.changing(exercise) as record:
            record.spoiled = True
    show_code(solution_only(course.solution_file(exercise).read_text(encoding="utf-8")))
    return 0
