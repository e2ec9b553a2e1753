"""What the doctor says about one topic, and how all findings are printed."""

from dataclasses import asdict, dataclass
from json import dumps
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {"ok": "green", "note": "yellow", "problem": "red"}


@dataclass(frozen=True)
class Finding:
    """One row of the table.

    topic: a short name.
    value: what was found.
    status: "ok", "note" (ranks run, but know this), or "problem" (they do not run).
    command: the next command to type; empty where there is none.
    advice: what to know about the command, or what to do without one.
    """

    topic: str
    value: str
    status: Literal["ok", "note", "problem"] = "ok"
    command: str = ""
    advice: str = ""


def show(findings: list[Finding], json: bool, subject: str, where: str) -> int:
    """Print findings and the verdict "`subject` can run `where`."; return 1 if there is a problem, else 0."""
    problems = [finding for finding in findings if finding.status == "problem"]
    if json:
        print(dumps({"ok": not problems, "findings": [asdict(finding) for finding in findings]}, indent=2))
        return 1 if problems else 0
    console = Console(highlight=False)
    table = Table("topic", "found", "what to do", show_lines=True)
    for finding in findings:
        value = finding.value if finding.status == "ok" else f"{finding.status}: {finding.value}"
        to_do = "\n".join(text for text in (finding.command, finding.advice) if text)
        # Text and not a string: rich would read "[...]" in a path or an error as markup.
        table.add_row(Text(finding.topic, STYLES[finding.status]), Text(value), Text(to_do))
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)
    console.print(f"{subject} cannot run {where} yet." if problems else f"{subject} can run {where}.")
    urgent = problems or [finding for finding in findings if finding.status == "note"]
    if commands := [finding.command for finding in urgent if finding.command]:
        # The table breaks long lines, and a broken command cannot be copied.
        console.print("Next:", *dict.fromkeys(commands), sep="\n  ", markup=False, soft_wrap=True)
    return 1 if problems else 0
