"""A class's verdicts as a table of values (CSV), a page (HTML) and a JUnit file for each student."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mpcourse.check.manifest import Exercise
from mpcourse.check.misconceptions import without_values
from mpcourse.check.verdict import Verdict
from mpcourse.grading.run import NOT_CHECKED, NOT_HANDED_IN, Graded
from mpcourse.grading.similar import Pair
from mpcourse.page import cells, page, table


@dataclass(frozen=True)
class Report:
    """graded: student by student, each in the order of `exercises`. about: lines on how this was checked."""

    exercises: Sequence[Exercise]
    graded: Sequence[Graded]
    pairs: Sequence[Pair]
    about: Sequence[str]

    def rows(self) -> dict[str, dict[str, Graded]]:
        """Student -> exercise -> verdict."""
        found: dict[str, dict[str, Graded]] = {}
        for each in self.graded:
            found.setdefault(each.student, {})[each.verdict.exercise] = each
        return found


def misconception(verdict: Verdict) -> str:
    """What verdicts are counted by: the sentence on the likely misconception, else what happened."""
    return verdict.why or verdict.headline


def counts(graded: Sequence[Graded]) -> list[tuple[str, str, str, int]]:
    """Exercise, kind, misconception, and how many have it; by exercise, the most frequent first.

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
    """A row a student: the kind of each verdict, and how many passed. A name that a spreadsheet takes for a formula has
    an apostrophe before it.
    """
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["student", *(e.name for e in report.exercises), "passed", "of"])
    for student, row in report.rows().items():
        name = f"'{student}" if student.startswith(("=", "+", "-", "@", "\t", "\r")) else student
        passed = sum(g.verdict.passed for g in row.values())
        lines.writerow([name, *(row[e.name].verdict.kind for e in report.exercises), passed, len(row)])
    return out.getvalue()


STYLE = """
.passed { background: #2a91342e } .failed { background: #d1495b38 } .none { color: GrayText }
"""


def as_html(report: Report) -> str:
    """One page without scripts, which needs no other file."""
    rows = report.rows()
    parts = ["<ul>", *(f"<li>{escape(line)}</li>" for line in report.about), "</ul>"]
    heads = ["student", *(e.short for e in report.exercises), "passed"]
    parts += ["<h2>Students</h2>", table(heads, _cells(report), "Students")]
    parts += ["<h2>What went wrong, by exercise</h2>"]
    parts += ["<p>Counted are the answers that were handed in and checked.</p>"]
    counted = [cells(row) for row in counts(report.graded)]
    parts += [table(["exercise", "verdict", "misconception", "students"], counted, "What went wrong, by exercise")]
    parts += ["<h2>Similar answers</h2>"]
    if report.pairs:
        pairs = [cells([pair.exercise, *pair.students, f"{pair.share:.0%}"]) for pair in report.pairs]
        parts += [table(["exercise", "student", "student", "alike"], pairs, "Similar answers")]
    else:
        parts += ["<p>None.</p>"]
    parts += ["<h2>Verdicts in full</h2>"]
    for student, row in rows.items():
        told = [_verdict(g) for g in row.values() if g.verdict.kind != NOT_HANDED_IN and not g.verdict.passed]
        parts += [f"<h3>{escape(student)}</h3>", *(told or ["<p>Nothing failed.</p>"])]
    return page("Verdicts", parts, STYLE)


def _cells(report: Report) -> list[list[str]]:
    rows = []
    for student, row in report.rows().items():
        found = [f'<th scope="row">{escape(student)}</th>']
        for verdict in (row[e.name].verdict for e in report.exercises):
            style = "passed" if verdict.passed else "none" if verdict.kind == NOT_HANDED_IN else "failed"
            found.append(f'<td class="{style}">{escape(verdict.kind)}</td>')
        found.append(f"<td>{sum(g.verdict.passed for g in row.values())} of {len(row)}</td>")
        rows.append(found)
    return rows


def _verdict(graded: Graded) -> str:
    verdict = graded.verdict
    printed = [f"rank {rank} printed: {text}" for rank, text in verdict.printed]
    text = "\n".join([verdict.headline, *verdict.details, *([verdict.why] if verdict.why else []), *printed])
    noun = ("virtual " if verdict.virtual else "") + ("rank" if verdict.np == 1 else "ranks")
    where = f" with {verdict.np} {noun}" if verdict.np else ""
    head = f"{verdict.exercise}: {verdict.kind}{where} ({verdict.file}; sandbox: {graded.sandbox})"
    return f"<details><summary>{escape(head)}</summary><pre>{escape(text)}</pre></details>"
