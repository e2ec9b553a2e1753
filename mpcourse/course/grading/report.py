"""A class's verdicts as a table of values (CSV), a page (HTML) and a JUnit file for each student."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mpcourse.course.check.manifest import Exercise
from mpcourse.course.check.misconceptions import without_values
from mpcourse.course.check.verdict import Verdict
from mpcourse.course.grading.run import NOT_CHECKED, NOT_HANDED_IN, Graded
from mpcourse.course.grading.similar import Copy, Pair
from mpcourse.course.page import cells, page, table


@dataclass(frozen=True)
class Report:
    """The verdicts on a class's answers.

    graded: student by student, each in the order of `exercises`. pairs, copies: answers that are like another
    student's, or like the course's solution. about: lines on how this was checked.
    """

    exercises: Sequence[Exercise]
    graded: Sequence[Graded]
    pairs: Sequence[Pair]
    copies: Sequence[Copy]
    about: Sequence[str]

    def rows(self) -> dict[str, dict[str, Graded]]:
        """Return the verdicts by student and exercise."""
        found: dict[str, dict[str, Graded]] = {}
        for each in self.graded:
            found.setdefault(each.student, {})[each.verdict.exercise] = each
        return found


def misconception(verdict: Verdict) -> str:
    """Return what verdicts are counted by: the sentence on the likely misconception, else what happened."""
    return verdict.why or verdict.headline


def counts(graded: Sequence[Graded]) -> list[tuple[str, str, str, int]]:
    """Return exercise, kind, misconception, and how many have it; by exercise, the most frequent first.

    Sentences that differ in numbers only are one misconception, in the words of the first answer that has it.
    """
    found: Counter[tuple[str, str, str]] = Counter()
    words: dict[tuple[str, str, str], str] = {}
    for verdict in (g.verdict for g in graded if g.verdict.kind not in (NOT_HANDED_IN, NOT_CHECKED)):
        text = "" if verdict.passed else misconception(verdict)
        key = (verdict.exercise, verdict.kind, without_values(text))
        found[key] += 1
        words.setdefault(key, text)
    rows = [(exercise, kind, words[exercise, kind, same], n) for (exercise, kind, same), n in found.items()]
    return sorted(rows, key=lambda row: (row[0], -row[3], row[1], row[2]))


def as_csv(report: Report) -> str:
    """Write a row for each student: the kind of each verdict, and how many passed.

    A name that a spreadsheet takes for a formula has an apostrophe before it.
    """
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["student", *(e.name for e in report.exercises), "passed", "of"])
    for student, row in report.rows().items():
        name = f"'{student}" if student.startswith(("=", "+", "-", "@", "\t", "\r")) else student
        passed = sum(g.verdict.passed for g in row.values())
        lines.writerow([name, *(row[e.name].verdict.kind for e in report.exercises), passed, len(row)])
    return out.getvalue()


# How a verdict is shown where there is one for each exercise and student: a sign, and a style of its cell.
SIGNS = {"passed": "\N{CHECK MARK}", "failed": "\N{BALLOT X}", "unchecked": "?", "none": "\N{MIDDLE DOT}", "copy": "="}
STYLE = """
.students table { font-size: .8rem }
.students td { white-space: nowrap }
.students td, .students th { padding: .2rem .25rem }
.sign { display: inline-block; width: 1.05em; text-align: center; border-radius: 3px }
.passed { background: #2a91342e } .failed, .unchecked { background: #d1495b38 } .none { color: GrayText }
.copy { background: #e8a33d66; font-weight: bold }
"""


def as_html(report: Report) -> str:
    """Make one page without scripts, which needs no other file. The class comes first, on one screen."""
    rows = report.rows()
    lessons = list(dict.fromkeys(exercise.lesson for exercise in report.exercises))
    heads = ["student", "passed", *(lesson[:2] for lesson in lessons)]
    legend = {
        "passed": "passed",
        "copy": "passed, and a copy of the course's solution",
        "failed": "did not pass",
        "unchecked": "could not be checked",
        "none": "not handed in",
    }
    parts = [f"<p>{escape(report.about[0])}</p>" if report.about else ""]
    parts += ['<div class="students">', table(heads, _cells(report, lessons), "Students"), "</div>"]
    signs = ", ".join(f'<span class="sign {name}">{SIGNS[name]}</span> {text}' for name, text in legend.items())
    parts += [f"<p>A column is a lesson, a sign an exercise: {signs}. Point at one to see which exercise.</p>"]
    parts += ["<h2>Copies of the course's solution</h2>"]
    if report.copies:
        copied = [cells([copy.exercise, copy.student, f"{copy.share:.0%}"]) for copy in report.copies]
        parts += [table(["exercise", "student", "like the solution"], copied, "Copies of the course's solution")]
    else:
        parts += ["<p>None.</p>"]
    parts += ["<h2>Similar answers</h2>"]
    if report.pairs:
        pairs = [cells([pair.exercise, *pair.students, f"{pair.share:.0%}"]) for pair in report.pairs]
        parts += [table(["exercise", "student", "student", "alike"], pairs, "Similar answers")]
    else:
        parts += ["<p>None.</p>"]
    parts += ["<h2>What went wrong, by exercise</h2>"]
    parts += ["<p>Counted are the answers that were handed in and checked.</p>"]
    counted = [cells(row) for row in counts(report.graded)]
    parts += [table(["exercise", "verdict", "misconception", "students"], counted, "What went wrong, by exercise")]
    parts += ["<h2>Verdicts in full</h2>"]
    for student, row in rows.items():
        handed_in = [g for g in row.values() if g.verdict.kind != NOT_HANDED_IN]
        told = [_verdict(g) for g in handed_in if not g.verdict.passed]
        nothing = "Nothing failed." if handed_in else "Handed in nothing."
        parts += [f"<h3>{escape(student)}</h3>", *(told or [f"<p>{nothing}</p>"])]
    parts += ["<h2>How this was checked</h2>", "<ul>", *(f"<li>{escape(line)}</li>" for line in report.about), "</ul>"]
    return page("Verdicts", parts, STYLE)


def _cells(report: Report, lessons: Sequence[str]) -> list[list[str]]:
    """Make a row for each student: the name, how many passed, and for each lesson a sign for each of its exercises."""
    copied = {(copy.student, copy.exercise): copy.share for copy in report.copies}
    rows = []
    for student, row in report.rows().items():
        passed = sum(g.verdict.passed for g in row.values())
        handed_in = any(g.verdict.kind != NOT_HANDED_IN for g in row.values())
        found = [f'<th scope="row">{escape(student)}</th>']
        found.append(f"<td>{passed} of {len(row)}</td>" if handed_in else "<td>handed in nothing</td>")
        for lesson in lessons:
            signs = ""
            for name in (exercise.name for exercise in report.exercises if exercise.lesson == lesson):
                signs += _sign(row[name].verdict, copied.get((student, name)))
            found.append(f"<td>{signs}</td>")
        rows.append(found)
    return rows


def _sign(verdict: Verdict, share: float | None) -> str:
    """Make the sign of one student's exercise. share: of the solution's fingerprints, if the answer is a copy of it."""
    kinds = {NOT_HANDED_IN: "none", NOT_CHECKED: "unchecked"}
    name = "passed" if verdict.passed else kinds.get(verdict.kind, "failed")
    text = f"{verdict.exercise}: {verdict.kind}"
    if share is not None:
        name = "copy" if verdict.passed else name
        text += f", {share:.0%} like the course's solution"
    return (
        f'<span class="sign {name}" role="img" title="{escape(text)}" aria-label="{escape(text)}">{SIGNS[name]}</span>'
    )


def _verdict(graded: Graded) -> str:
    verdict = graded.verdict
    printed = [f"rank {rank} printed: {text}" for rank, text in verdict.printed]
    text = "\n".join([verdict.headline, *verdict.details, *([verdict.why] if verdict.why else []), *printed])
    noun = ("virtual " if verdict.virtual and not verdict.passed else "") + ("rank" if verdict.np == 1 else "ranks")
    where = f" with {verdict.np} {noun}" if verdict.np else ""
    head = f"{verdict.exercise}: {verdict.kind}{where} ({verdict.file}; sandbox: {graded.sandbox})"
    return f"<details><summary>{escape(head)}</summary><pre>{escape(text)}</pre></details>"
