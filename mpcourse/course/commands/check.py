"""`mpcourse check` and `mpcourse watch`."""

import argparse
import json
import sys
import time
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import Course, Exercise, load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.supervisor import check, starter_of
from mpcourse.course.commands.output import check_writable, real_path, write
from mpcourse.course.forkserver import Starter

LOOK = 0.05  # seconds between two looks at a file that is watched


def check_answers(options: argparse.Namespace) -> int:
    """`mpcourse check`: exit status 0 if all that were checked have passed, else 1."""
    course = load_course()
    progress = Progress(course)
    chosen = course.exercises if options.all else [course.find(name) for name in options.exercises]
    if not chosen:
        upcoming = progress.next(course)
        if upcoming is None:
            print("all exercises have passed; name one to check it again")
            return 0
        chosen = [upcoming]
    if len(chosen) == len(options.exercises) == 1 and options.exercises[0].endswith(".py") and not options.file:
        given = Path(options.exercises[0])
        if real_path(given) != real_path(course.exercise_file(chosen[0])):
            options.file = given  # the path of another file than the exercise's own
    if options.file and len(chosen) != 1:
        raise UserError("--file is one answer: name the one exercise that it answers")
    if options.file and not options.file.is_file():
        raise UserError(f"{options.file} is not a file: give the path of an answer, or none for your own exercise")
    if not options.file:
        progress.check_writable()  # before, not after, the learner has waited for a verdict
    if options.junit:
        check_writable(options.junit)
    sizes = None if options.np is None else [options.np]
    verdicts = []
    with starter_of(chosen) as starter:
        from mpcourse.course.check.show import junit, show_next, show_verdict  # while the starter imports torch

        for exercise in chosen:
            verdict = check(exercise, options.file or course.exercise_file(exercise), sizes, starter)
            verdicts.append(verdict)
            if not options.file:
                progress.note_check(exercise, verdict)
            if not options.json:
                show_verdict(verdict)
    passed = all(v.passed for v in verdicts)
    if options.json:
        print(json.dumps([v.as_dict() for v in verdicts], indent=1))
    elif passed and not options.file:
        show_next(course, progress, chosen)
    if options.junit:
        write(options.junit, junit(verdicts))
    return 0 if passed else 1


def watch_answer(options: argparse.Namespace) -> int:
    """`mpcourse watch`: check an answer each time its file is saved, until it passes."""
    course = load_course()
    exercise = course.find(options.exercise)
    with starter_of([exercise]) as starter:
        return _watch(course, exercise, None if options.np is None else [options.np], starter)


def _watch(course: Course, exercise: Exercise, sizes: list[int] | None, starter: Starter) -> int:
    from mpcourse.course.check.show import show_next, show_verdict  # while the starter imports torch

    file, seen = course.exercise_file(exercise), None
    while True:
        # Polling, for file systems of clusters tell nobody when a file changes.
        try:
            stamp = (file.stat().st_mtime_ns, file.stat().st_size)
        except OSError:
            stamp = None
        if stamp is None and seen is None:
            raise UserError(f"{file} is not there: `mpcourse reset {exercise.short}` makes it anew")
        if stamp is not None and stamp != seen:
            seen = stamp
            verdict = check(exercise, file, sizes, starter)
            progress = Progress(course)
            progress.note_check(exercise, verdict)
            print(f"\n--- {time.strftime('%H:%M:%S')}", flush=True)
            show_verdict(verdict)
            if verdict.passed:
                show_next(course, progress, [exercise])
                return 0
            sys.stdout.flush()
        time.sleep(LOOK)
