"""Answers to the exercises, as data: what learners get wrong, and unusual ways to be right.

`tests/wrong_answers/eNN_name.py` and `tests/right_answers/eNN_name.py` hold all answers to one exercise, each in a cell
of its own (jupytext's percent format, which editors fold and run):

    # %% sends_first
    # says: Every rank sends first
    # thinks: MPI keeps my message until the other rank asks for it.
    def exchange(comm, send, recv):
        ...

A cell begins with the answer's name and some of these lines. A line that begins with `#` and at least three spaces
continues the one above it.

says      what the verdict on a wrong answer must say; `{2}` stands for line 2 of the code below, as the verdict counts
thinks    what the learner thinks; of a right answer, why it is right
on        `real ranks`: virtual ranks let the answer pass, or show less of it
needs     the one MPI on which the verdict is this

What follows is the code. `Answer.text` puts it below what the exercise itself has above the learner's part (imports and
helpers, from the solution), so no answer repeats that.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mpcourse.course.check.manifest import Course, Exercise
from mpcourse.course.check.stubs import stub_of

TESTS = Path(__file__).parent
KEYS = {"says", "thinks", "on", "needs"}
_CELL = re.compile(r"^# %% (?P<name>\S+)\n(?P<rest>.*?)(?=^# %% |\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """One answer to an exercise. right: whether it must pass. body: its code, below the exercise's own head."""

    exercise: str
    name: str
    right: bool
    body: str
    says: str = ""
    thinks: str = ""
    on: str = ""
    needs: str = ""

    @property
    def on_real_ranks(self) -> bool:
        return self.on == "real ranks"

    def text(self, head: str) -> str:
        """The file that a learner would have, `head` being `head_of` its exercise."""
        return f"{head}{self.body}"

    def phrase(self, head: str) -> str:
        """What the verdict must say, with the numbers that lines have in `text(head)`."""
        above = head.count("\n")
        return re.sub(r"\{(\d+)\}", lambda line: str(above + int(line[1])), self.says)


def head_of(course: Course, exercise: Exercise) -> str:
    """All that the exercise holds above its first definition that a learner has to write."""
    stub = stub_of(course, exercise)
    first = next(node for node in ast.parse(stub).body if "NotImplementedError" in ast.unparse(node))
    line = min(node.lineno for node in [first, *getattr(first, "decorator_list", ())])  # type: ignore[attr-defined]
    return "".join(stub.splitlines(keepends=True)[: line - 1])


def answers_to(exercise: Exercise, right: bool) -> list[Answer]:
    """All answers to `exercise` that are right, or wrong. ValueError where a cell cannot be read."""
    path = TESTS / ("right_answers" if right else "wrong_answers") / f"{exercise.name}.py"
    return list(read(path.read_text(encoding="utf-8"), exercise.name, right))


def read(text: str, exercise: str, right: bool) -> Iterator[Answer]:
    """The answers in one file's text."""
    seen = set()
    for cell in _CELL.finditer(text):
        name = cell["name"]
        keys, body = _header(cell["rest"])
        if unknown := keys.keys() - KEYS:
            raise ValueError(f"{exercise}, {name}: `# {min(unknown)}:` is none of {', '.join(sorted(KEYS))}")
        if right == ("says" in keys):
            raise ValueError(f"{exercise}, {name}: a wrong answer, and no right one, says what its verdict must say")
        if name in seen:
            raise ValueError(f"{exercise}, {name}: two answers have this name")
        if not body.strip():
            raise ValueError(f"{exercise}, {name}: there is no code")
        seen.add(name)
        yield Answer(exercise, name, right, body, **keys)


def _header(rest: str) -> tuple[dict[str, str], str]:
    """The `# key: value` lines at the beginning of a cell, and the code below them."""
    keys: dict[str, str] = {}
    lines, key = rest.splitlines(keepends=True), ""
    while lines:
        if more := re.match(r"#   +(.*)", lines[0]):
            if not key:
                break
            keys[key] += " " + more[1].strip()
        elif begins := re.match(r"# ([a-z]+): (.*)", lines[0]):
            key = begins[1]
            keys[key] = begins[2].strip()
        else:
            break
        lines.pop(0)
    return keys, "".join(lines).strip("\n") + "\n"
