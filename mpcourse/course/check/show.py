"""Verdicts and hints as a person reads them in a terminal or a notebook."""

import sys
from collections.abc import Sequence
from typing import IO
from xml.etree import ElementTree

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from mpcourse.course.check.manifest import Course, Exercise, load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.verdict import Verdict


def console(file: IO[str] | None = None) -> Console:
    """Make a console on `file` or standard output: colour only on a terminal, elsewhere wide enough for a verdict."""
    made = Console(file=file or sys.stdout, highlight=False)
    return made if made.is_terminal else Console(file=file or sys.stdout, highlight=False, width=100)


def show_verdict(verdict: Verdict) -> None:
    """Print a verdict on standard output."""
    print_verdict(verdict, console())


def print_verdict(verdict: Verdict, out: Console) -> None:
    """Render one line if it passed, else what happened, where, and why that is so."""
    file = (f" ({verdict.file})", "dim")
    if verdict.passed:
        sizes = ", ".join(map(str, verdict.sizes))
        noun = "rank" if sizes == "1" else "ranks"
        head = (f"{verdict.exercise} passed", "bold green")
        before = ", and on virtual ranks before" if verdict.virtual else ""
        out.print(Text.assemble(head, f" with {sizes} {noun}{before}", file), soft_wrap=True)
    else:
        noun = ("virtual " if verdict.virtual else "") + ("rank" if verdict.np == 1 else "ranks")
        head = (f"{verdict.exercise}: {verdict.kind}", "bold red")
        out.print(Text.assemble(head, f" with {verdict.np} {noun}", file), soft_wrap=True)
        _block(out, verdict.headline)
        for line in verdict.details:
            _block(out, line)
        if verdict.why:
            out.print()
            _block(out, verdict.why, "bold")
    for rank, text in verdict.printed:
        out.print()
        _block(out, f"rank {rank} printed:", "dim")
        for line in text.splitlines():
            _block(out, line, "dim", indent=4)
    if verdict.kind not in ("passed", "fault of the checker", "not started"):
        out.print()
        _block(out, f"a hint: mpcourse hint {load_course().find(verdict.exercise).short}", "dim")


def _block(out: Console, text: str, style: str = "", indent: int = 2) -> None:
    out.print(Padding(Text(text, style), (0, 0, 0, indent), expand=False))


def show_next(course: Course, progress: Progress, passed: Sequence[Exercise]) -> None:
    """Print what can be done after `passed`: compare with the solution, and go on."""
    out = console()
    compare = ", ".join(f"mpcourse solution {exercise.short}" for exercise in passed)
    _block(out, f"compare with: {compare}", "dim")
    upcoming = progress.next(course)
    _block(out, f"next: {upcoming.name}, see `mpcourse next`" if upcoming else "all exercises have passed", "dim")


def junit(verdicts: Sequence[Verdict]) -> str:
    """Write the verdicts as JUnit XML, one test case an exercise, as CI servers and grading tools read it."""
    failures = sum(not v.passed for v in verdicts)
    total = sum(v.seconds for v in verdicts)
    suite = ElementTree.Element(
        "testsuite", name="mpcourse", tests=str(len(verdicts)), failures=str(failures), errors="0", time=f"{total:.3f}"
    )
    for verdict in verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname="mpcourse", name=verdict.exercise, time=f"{verdict.seconds:.3f}"
        )
        if not verdict.passed:
            failure = ElementTree.SubElement(case, "failure", type=verdict.kind, message=verdict.headline)
            failure.text = "\n".join([verdict.headline, *verdict.details, verdict.why])
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def show_hints(exercise: Exercise, shown: Sequence[str]) -> None:
    """Print the hints shown so far, the newest last."""
    out = console()
    for number, hint in enumerate(shown, 1):
        _block(out, f"hint {number} of {len(exercise.hints)}: {hint}", "" if number == len(shown) else "dim", indent=0)
    if len(shown) == len(exercise.hints):
        _block(
            out, f"That was the last one. `mpcourse solution {exercise.short} --spoil` shows the solution.", "dim", 0
        )


def show_code(code: str) -> None:
    """Print Python code, coloured on a terminal, plain (and ready to be redirected into a file) elsewhere."""
    out = console()
    if out.is_terminal:
        from rich.syntax import Syntax  # it takes a tenth of a check's time, which shows none

        out.print(Syntax(code, "python", background_color="default"))
    else:
        sys.stdout.write(code)
