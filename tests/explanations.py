"""Which explanations of the checker no wrong answer has reached: texts that nobody knows to be true.

`test_answers.py` records what each verdict says. A run in which all wrong answers were judged fails if there are
explanations in `cases` and `facts` of `mpcourse/course/check` that none of the verdicts contains, and ends with a list
of them (see `Reached`, and conftest.py).
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mpcourse.course.check.manifest import load_course
from tests.answers import answers_to

SAID = "said"  # the property under which a test records what a verdict says
SHORTEST = 30  # characters: names, units and parts of a sentence are shorter
VALUE = "\0"  # in a text, what is put in when it is told


@dataclass(frozen=True)
class Explanation:
    """file, line: where it stands. text: its longest part into which no value is put."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def unreached(files: Iterable[Path], said: Iterable[str]) -> list[Explanation]:
    """Return the explanations in `files` that are part of none of the texts `said`."""
    verdicts = "\n".join(said)
    return [found for file in sorted(files) for found in explanations(file) if found.text not in verdicts]


def explanations(file: Path) -> Iterator[Explanation]:
    """Return the sentences of a file, without docstrings and short ones, from its first line to its last."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    passed_over = {id(node) for each in ast.walk(tree) for node in _no_explanations(each)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        text = _text(node)
        longest = max(text.split(VALUE), key=len).strip()
        # What is asked, and patterns of others' messages, are no sentences: they do not begin or end as one.
        sentence = text[:1].isupper() or text.startswith(VALUE)
        if id(node) not in passed_over and sentence and text.endswith((".", "?", VALUE)) and len(longest) >= SHORTEST:
            yield Explanation(file.name, node.lineno, longest)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    """Return a text with VALUE in place of each value that an f-string or format puts in."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value if isinstance(part, ast.Constant) else VALUE for part in parts]
    return re.sub(r"\{[^{} ]*\}", VALUE, "".join(text for text in texts if isinstance(text, str)))


def _no_explanations(node: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, and the parts of texts with values put in, which are looked at with the whole."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        yield body[0].value
    if isinstance(node, ast.JoinedStr):
        yield from (part for value in node.values for part in ast.walk(value))


class Reached:
    """A plugin of pytest: what all verdicts on wrong answers said, in whatever process they were judged.

    Once all of them were judged, a run that passes otherwise fails if an explanation is in none of these texts.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: list[str] = []
        self.unreached: list[Explanation] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and "::test_a_wrong_answer_is_named[" in report.nodeid:
            self.said += [str(text) for name, text in report.user_properties if name == SAID]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        course = load_course(self.root)
        if len(self.said) < sum(len(answers_to(exercise, right=False)) for exercise in course.exercises):
            return  # a run of some tests only, or answers were skipped: what these reach is not known
        check = self.root / "mpcourse" / "course" / "check"
        self.unreached = unreached([*check.glob("cases/*.py"), *check.glob("facts/*.py")], self.said)
        if self.unreached and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.unreached:
            terminalreporter.section("explanations that no wrong answer reaches", red=True, bold=True)
            terminalreporter.write_line("Write a wrong answer for each (tests/answers), or delete it.")
            for explanation in self.unreached:
                terminalreporter.write_line(str(explanation))
