"""A class's verdicts as a table of values (CSV), a page (HTML) and a JUnit file for each student."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mpcourse.check.manifest import Exercise
from mpcourse.check.verdict import Verdict
from mpcourse.grading.run import NOT_CHECKED, NOT_HANDED_IN, Graded
from mpcourse.grading.similar import Pair


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
    """Exercise, kind, misconception, and how many have it; by exercise, the most frequent first."""
    found = Counter(
        (g.verdict.exercise, g.verdict.kind, "" if g.verdict.passed else misconception(g.verdict))
        for g in graded
        if g.verdict.kind not in (NOT_HANDED_IN, NOT_CHECKED)
    )
    return sorted(((*key, count) for key, count in found.items()), key=lambda row: (row[0], -row[3], row[1], row[2]))


def as_csv(report: Report) -> str:
    """A row a student: the kind of each verdict, and how many passed. A name that a spreadsheet takes for a formula has
    an apostrophe before it.
    """
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["student", *(e.name for e in report.exercises), "passed", "of"])
    for student, row in report.rows().items():
        name = f"'{student}" if student.startswith(("=", "+", "-", "@", "\t", "\r")) else student
        passed = sum(g.verdict.passed for g in row.values())
        table.writerow([name, *(row[e.name].verdict.kind for e in report.exercises), passed, len(row)])
    return out.getvalue()


STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.45 }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; font-size: .9rem }
th, td { border: 1px solid #8888; padding: .2rem .5rem; text-align: left; vertical-align: top }
.scroll { overflow-x: auto }
.passed { background: #2a91342e } .failed { background: #d1495b38 } .none { color: GrayText }
pre { white-space: pre-wrap; margin: .3rem 0 }
"""


def as_html(report: Report) -> str:
    """One page without scripts, which needs no other file."""
    rows = report.rows()
    parts = ["<h1>Verdicts</h1>", "<ul>", *(f"<li>{escape(line)}</li>" for line in report.about), "</ul>"]
    parts += ["<h2>Students</h2>", _table(["student", *(e.short for e in report.exercises), "passed"], _cells(report))]
    parts += ["<h2>What went wrong, by exercise</h2>"]
    parts += ["<p>Counted are the answers that were handed in and checked.</p>"]
    table = [[f"<td>{escape(str(cell))}</td>" for cell in row] for row in counts(report.graded)]
    parts += [_table(["exercise", "verdict", "misconception", "students"], table)]
    parts += ["<h2>Similar answers</h2>"]
    if report.pairs:
        pairs = [[pair.exercise, *pair.students, f"{pair.share:.0%}"] for pair in report.pairs]
        parts += [
            _table(["exercise", "student", "student", "alike"], [[f"<td>{escape(c)}</td>" for c in p] for p in pairs])
        ]
    else:
        parts += ["<p>None.</p>"]
    parts += ["<h2>Verdicts in full</h2>"]
    for student, row in rows.items():
        told = [_verdict(g) for g in row.values() if g.verdict.kind != NOT_HANDED_IN and not g.verdict.passed]
        parts += [f"<h3>{escape(student)}</h3>", *(told or ["<p>Nothing failed.</p>"])]
    body = "\n".join(parts)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Verdicts</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """heads: plain text. rows: of cells in HTML."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'
    )


def _cells(report: Report) -> list[list[str]]:
    rows = []
    for student, row in report.rows().items():
        cells = [f'<th scope="row">{escape(student)}</th>']
        for verdict in (row[e.name].verdict for e in report.exercises):
            style = "passed" if verdict.passed else "none" if verdict.kind == NOT_HANDED_IN else "failed"
            cells.append(f'<td class="{style}">{escape(verdict.kind)}</td>')
        cells.append(f"<td>{sum(g.verdict.passed for g in row.values())} of {len(row)}</td>")
        rows.append(cells)
    return rows


def _verdict(graded: Graded) -> str:
    verdict = graded.verdict
    printed = [f"rank {rank} printed: {text}" for rank, text in verdict.printed]
    text = "\n".join([verdict.headline, *verdict.details, *([verdict.why] if verdict.why else []), *printed])
    noun = ("virtual " if verdict.virtual else "") + ("rank" if verdict.np == 1 else "ranks")
    where = f" with {verdict.np} {noun}" if verdict.np else ""
    head = f"{verdict.exercise}: {verdict.kind}{where} ({verdict.file}; sandbox: {graded.sandbox})"
    return f"<details><summary>{escape(head)}</summary><pre>{escape(text)}</pre></details>"
