"""The findings as a table for people, or as JSON for programs."""

import os
import re
import shlex
from dataclasses import asdict
from json import dumps

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpcourse.course.doctor.finding import Finding
from mpcourse.course.doctor.hosts import examine_hosts
from mpcourse.course.doctor.topics import examine

COMMAND = re.compile(r"`(\S+ [^`]+)`")  # the first of an advice is the one to try first
STYLES = {"ok": "green", "note": "yellow", "problem": "red"}


def report(json: bool = False, hosts: str = "", ssh: str = "ssh") -> int:
    """Examine this machine and print what was found: a table, or with `json` an object of `ok` and `findings`.

    hosts: examine whether ranks can run on these, "a,b", instead; ssh: how they are reached, "ssh -F file".
    Exit status 1 if the course cannot run here, or there, else 0.
    """
    findings = examine_hosts(hosts, ssh) if hosts else examine()
    unfit = [finding.topic for finding in findings if finding.fatal]
    if json:
        print(dumps({"ok": not unfit, "findings": [asdict(finding) for finding in findings]}, indent=2))
        return 1 if unfit else 0
    console = Console(highlight=False)
    console.print(table(findings))
    what, where = ("Ranks", "on these hosts together") if hosts else ("The course", "here")
    verdict = f"{what} cannot run {where} yet: first mend {', '.join(unfit)}." if unfit else f"{what} can run {where}."
    console.print(verdict, markup=False)
    urgent = [finding for finding in findings if finding.fatal] or [each for each in findings if each.status != "ok"]
    if commands := [match[1] for finding in urgent if (match := COMMAND.search(finding.advice))]:
        # The table breaks long lines, and a broken command cannot be copied.
        lines = [line for command in dict.fromkeys(commands) for line in _typed(command)]
        console.print("To copy:", *lines, sep="\n  ", markup=False, soft_wrap=True)
    return 1 if unfit else 0


def _typed(command: str) -> list[str]:
    """Return a command's lines as they are to be typed where the report is read.

    What `!export` sets in a notebook ends with that line's own shell: there it is %env, a variable a line.
    """
    in_notebook = "JPY_PARENT_PID" in os.environ  # Jupyter starts its kernels with it
    if in_notebook and command.startswith("export "):
        return [f"%env {setting}" for setting in shlex.split(command)[1:]]
    return [command]


def table(findings: list[Finding]) -> Table:
    """Make a table with one row for each finding. The status is a word as well as a colour."""
    made = Table("topic", "found", "what to do", show_lines=True)
    for finding in findings:
        status = "fatal" if finding.fatal else finding.status
        value = finding.value if status == "ok" else f"{status}: {finding.value}"
        # Text and not a string: rich would read "[...]" in a path or an error as markup.
        made.add_row(Text(finding.topic, STYLES[finding.status]), Text(value), Text(finding.advice))
    for column in made.columns:
        column.overflow = "fold"
    return made
