"""`mpcourse grade`: the verdicts on a class's answers."""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from mpcourse import __version__
from mpcourse.common.errors import UserError
from mpcourse.common.words import counted
from mpcourse.course.check.manifest import Course, Exercise, load_course
from mpcourse.course.check.show import junit
from mpcourse.course.check.stubs import make_stub
from mpcourse.course.commands.output import check_writable, write
from mpcourse.course.grading.report import Report, as_csv, as_html
from mpcourse.course.grading.run import NOT_CHECKED, Grader, grade
from mpcourse.course.grading.similar import LEAST, Copy, Pair, copies, similar
from mpcourse.course.grading.state import State
from mpcourse.course.grading.submissions import Submission, find_submissions


def run(options: argparse.Namespace) -> int:
    """Run `mpcourse grade`. Returns exit status 0 if all answers were checked, right or wrong, else 1."""
    course = load_course()
    wanted = {course.find(name).name for name in options.only}
    exercises = [e for e in course.exercises if e.name in wanted or not wanted]
    jobs = options.jobs if options.jobs is not None else _cores()
    if jobs < 1 or options.memory <= 0 or not 0 < options.similar <= 1:
        raise UserError("--jobs is at least 1, --memory more than 0, --similar from 0 to 1")
    submissions = find_submissions(options.submissions, exercises)
    _check_outputs(options)
    state = State(options.state)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    hidden = [path for path in (options.submissions, options.junit) if path]
    grader = Grader(course, hidden, options.memory, not options.no_sandbox)
    graded = grade(submissions, exercises, grader, state, jobs, tell)
    sandboxes = Counter(g.sandbox for g in graded if g.sandbox)
    used = ", ".join(f"{name} ({count})" for name, count in sorted(sandboxes.items())) or "nothing was checked"
    about = [
        f"mpcourse {__version__}, {time.strftime('%Y-%m-%d %H:%M')}: {counted(len(submissions), 'student')}, "
        f"{counted(len(exercises), 'exercise')}, checked in {time.monotonic() - began:.0f} s",
        f"sandbox: {used}",
        f"each process may take {options.memory:g} GiB of address space beyond what it starts with",
        f"two answers are called similar, and one a copy of the solution, if {options.similar:.0%} of the fingerprints "
        f"that either has are in both; each must have {LEAST} beyond the stub's; of similar ones, what the solution or "
        "most of the class has does not count",
    ]
    report = Report(exercises, graded, *_alike(course, exercises, submissions, options.similar), about)
    _write_report(report, options)
    missed = sum(g.verdict.kind == NOT_CHECKED for g in graded)
    for line in about[:2]:
        tell(line)
    if missed:
        tell(f"{counted(missed, 'answer')} could not be checked; the same command tries them again")
    return 1 if missed else 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_outputs(options: argparse.Namespace) -> None:
    """Raise UserError now, before answers are checked, if a report could not be written afterwards."""
    for path in (options.csv, options.html):
        if path:
            check_writable(path)
    if options.junit:
        _make_folder(options.junit)


def _write_report(report: Report, options: argparse.Namespace) -> None:
    """Write the report in all forms that the options ask for, or print it as CSV if they ask for none."""
    if options.csv:
        write(options.csv, as_csv(report))
    if options.html:
        write(options.html, as_html(report))
    if options.junit:
        for student, row in report.rows().items():
            write(options.junit / f"{student}.xml", junit([g.verdict for g in row.values()]))
    if not (options.csv or options.html or options.junit):
        print(as_csv(report), end="")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}): name another folder") from None
    check_writable(folder / "student.xml")


def _alike(
    course: Course, exercises: list[Exercise], submissions: list[Submission], threshold: float
) -> tuple[list[Pair], list[Copy]]:
    """Return the answers that are like another student's, and those that are like the solution."""
    pairs: list[Pair] = []
    copied: list[Copy] = []
    for exercise in exercises:
        answers = [(s.student, s.answers[exercise.name]) for s in submissions if exercise.name in s.answers]
        try:
            solution = course.solution_file(exercise).read_text(encoding="utf-8")
            stub = make_stub(exercise.name, solution)
        except OSError:  # a teacher has taken the solutions away
            pairs += similar(exercise.name, answers, [], threshold)
        else:
            pairs += similar(exercise.name, answers, [solution, stub], threshold)
            copied += copies(exercise.name, answers, stub, solution, threshold)
    return pairs, copied
