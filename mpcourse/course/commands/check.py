"""`mpcourse check` and `mpcourse watch`."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import Course, Exercise, load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.supervisor import check, starter_of
from mpcourse.course.commands.output import check_writable, real_path, write
from mpcourse.course.forkserver import Starter

LOOK = 0.05  # seconds between two looks at a file that is watched


def check_answers(options: argparse.Namespace) -> int:
    """Run `mpcourse check`. Returns exit status 0 if all that were checked have passed, else 1."""
    course = load_course()
    progress = Progress(course)
    chosen = _chosen(options, course, progress)
    if not chosen:
        print("all exercises have passed; name one to check it again")
        return 0
    file = _other_file(options, course, chosen)
    if not file:
        progress.check_writable()  # before, not after, the learner has waited for a verdict
    if options.junit:
        check_writable(options.junit)
    sizes = None if options.np is None else [options.np]
    verdicts = []
    with starter_of(chosen) as starter:
        from mpcourse.course.check.show import junit, show_next, show_verdict  # while the starter imports torch

        for exercise in chosen:
            verdict = check(exercise, file or course.exercise_file(exercise), sizes, starter)
            verdicts.append(verdict)
            if not file:
                progress.note_check(exercise, verdict)
            if not options.json:
                show_verdict(verdict)
    passed = all(v.passed for v in verdicts)
    if options.json:
        print(json.dumps([v.as_dict() for v in verdicts], indent=1))
    elif passed and not file:
        show_next(course, progress, chosen)
    if options.junit:
        write(options.junit, junit(verdicts))
    return 0 if passed else 1


def _chosen(options: argparse.Namespace, course: Course, progress: Progress) -> Sequence[Exercise]:
    """Return the exercises to check: all, the named ones, or the next one; none if all have passed."""
    if options.all:
        return course.exercises
    if options.exercises:
        return [course.find(name) for name in options.exercises]
    upcoming = progress.next(course)
    return [] if upcoming is None else [upcoming]


def _other_file(options: argparse.Namespace, course: Course, chosen: Sequence[Exercise]) -> Path | None:
    """Return the answer's file, if it is another than the exercise's own; it comes from --file, or is named itself.

    Raises UserError where there is no such file, or more than one exercise to check.
    """
    file: Path | None = options.file
    if len(chosen) == len(options.exercises) == 1 and options.exercises[0].endswith(".py") and not file:
        given = Path(options.exercises[0])
        if real_path(given) != real_path(course.exercise_file(chosen[0])):
            file = given
    if file and len(chosen) != 1:
        raise UserError("--file is one answer: name the one exercise that it answers")
    if file and not file.is_file():
        raise UserError(f"{file} is not a file: give the path of an answer, or none for your own exercise")
    return file


def watch_answer(options: argparse.Namespace) -> int:
    """Run `mpcourse watch`: check an answer each time its file is saved, until it passes."""
    course = load_course()
    exercise = course.find(options.exercise)
    with starter_of([exercise]) as starter:
        return _watch(course, exercise, None if options.np is None else [options.np], starter)


def _watch(course: Course, exercise: Exercise, sizes: list[int] | None, starter: Starter) -> int:
    from mpcourse.course.check.show import show_next, show_verdict  # while the starter imports torch

    file, seen = course.exercise_file(exercise), None
    while True:
        # Poll: file systems of clusters do not report when a file changes.
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
