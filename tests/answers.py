"""Answers to the exercises, as data: what learners get wrong, and unusual ways to be right.

`tests/answers/eNN_name.diff` holds all answers to one exercise. An answer is what it changes in the solution:

    ## same_share
    thinks: The call of array_split runs on every rank, so its first piece is the piece of this rank.
    says: All ranks have the same share
    -    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)
    +    return np.array_split(order, comm.size)[0]

thinks  what the learner thinks
says    what the verdict on this wrong answer must say; `{2}` stands for line 2 of the code
right   only a right answer has this, instead of the two above: why it is right
from    the answer that it changes instead of the solution; that one is further up in the file
on      `real ranks`: virtual ranks let the answer pass, or show less of it
needs   the one MPI on which the verdict is this

`-` marks a line that goes, `+` a line that comes. A line with a space stays, and shows the place. `@@` is between
changes in different places. Each is made after the one above it, and its lines that go or stay must be in the code
exactly once. An answer that has little in common with others is there as a whole. The code begins below the head, which
is what the exercise has above the first definition that a learner writes; it has no docstrings.

    python -m tests.answers e06_scatter_dataset same_share           print the file that a learner would have
    python -m tests.answers e06_scatter_dataset same_share --check   check it
    python -m tests.answers --add e06_scatter_dataset_mine.py        print a learner's file as the shortest edit
"""

import argparse
import ast
import itertools
import re
import tempfile
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from mpcourse.course import cli
from mpcourse.course.check.manifest import Course, Exercise, load_course
from mpcourse.course.check.stubs import solution_only, stub_of

FOLDER = Path(__file__).with_suffix("")
COURSE = load_course(FOLDER.parents[1])
_CELL = re.compile(r"^## (?P<name>.*)\n(?P<keys>(?:[a-z]+: .*\n)*)(?P<code>(?s:.*?))(?=^## |\Z)", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """right: whether it must pass. text: the learner's file. says: as in the file of answers, with lines of `text`."""

    name: str
    right: bool
    text: str
    thinks: str
    says: str
    on_real_ranks: bool
    needs: str


def head_of(course: Course, exercise: Exercise) -> str:
    """All that the exercise holds above its first definition that a learner has to write."""
    stub = stub_of(course, exercise)
    first = next(node for node in ast.parse(stub).body if "NotImplementedError" in ast.unparse(node))
    line = min(node.lineno for node in [first, *getattr(first, "decorator_list", ())])  # type: ignore[attr-defined]
    return "".join(stub.splitlines(keepends=True)[: line - 1])


def code_of(exercise: Exercise, file: Path) -> str:
    """Return what a file holds below the exercise's head, without docstrings."""
    head, text = head_of(COURSE, exercise), solution_only(file.read_text(encoding="utf-8"))
    if not text.startswith(head):
        raise ValueError(f"{file} must begin as the exercise does, down to its first definition")
    return re.sub(r'^ +r?"""(?s:.*?)"""\n+', "", text.removeprefix(head), flags=re.MULTILINE)


def answers_to(exercise: Exercise, right: bool) -> list[Answer]:
    """All answers to `exercise` that are right, or wrong; none without a file. ValueError where one cannot be read."""
    file = FOLDER / f"{exercise.name}.diff"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [answer for answer in read(text, exercise) if answer.right == right]


def read(text: str, exercise: Exercise) -> list[Answer]:
    """Return the answers in one file's text."""
    head, answers = head_of(COURSE, exercise), []
    codes = {"solution": code_of(exercise, COURSE.solution_file(exercise))}
    for cell in _CELL.finditer(text):
        name, code = cell["name"], cell["code"].rstrip() + "\n"
        keys = dict(line.split(": ", 1) for line in cell["keys"].splitlines())
        base = keys.get("from", "solution")
        try:
            if keys.keys() - {"from", "on", "needs"} not in ({"thinks", "says"}, {"right"}):
                raise ValueError(f"it must have `thinks` and `says`, or `right`, and it has {', '.join(keys)}")
            if name in codes or base not in codes or code == "\n":
                raise ValueError("another answer has its name, `from` names no answer above it, or it has no code")
            codes[name] = edited(codes[base], code) if code[0] in "-+ " else code
        except ValueError as error:
            raise ValueError(f"{exercise.name}, {name}: {error}") from None
        says = re.sub(r"\{(\d+)\}", lambda line: str(head.count("\n") + int(line[1])), keys.get("says", ""))
        thinks = keys.get("right", "") + keys.get("thinks", "")
        file, needs = head + codes[name], keys.get("needs", "")
        answers.append(Answer(name, "right" in keys, file, thinks, says, "on" in keys, needs))
    return answers


def edited(code: str, edit: str) -> str:
    """Return the code after an edit. Raises ValueError unless what it changes is in the code exactly once."""
    for change in re.split("^@@\n", edit, flags=re.MULTILINE):
        old = re.sub(r"^\+.*\n|^[- ]", "", change, flags=re.MULTILINE)
        new = re.sub(r"^-.*\n|^[+ ]", "", change, flags=re.MULTILINE)
        places = places_of(old, code)
        if len(places) != 1:
            raise ValueError(f"these lines must be in the code once, and are there {len(places)} times:\n{old}")
        code = code[: places[0]] + new + code[places[0] + len(old) :]
    return code


def places_of(lines: str, code: str) -> list[int]:
    """Where in the code these lines begin."""
    starts = (line.start() for line in re.finditer("^", code, re.MULTILINE))
    return [start for start in starts if code.startswith(lines, start)]


def edit_of(code: str, wanted: str) -> str:
    """Return the edit that turns the code into what is wanted, with enough lines around changes to show their place."""
    old, new = code.splitlines(keepends=True), wanted.splitlines(keepends=True)
    changes = []
    for tag, start, stop, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for above, below in ((n - i, i) for n in itertools.count() for i in range(n + 1)):
            before, after = new[max(first - above, 0) : first], old[stop : stop + below]
            lines = [*before, *old[start:stop], *after]
            ends_in_text = lines and lines[0] != "\n" != lines[-1]
            if ends_in_text and len(places_of("".join(lines), "".join(new[:first] + old[start:]))) == 1:
                break
        marked = [(" ", before), ("-", old[start:stop]), ("+", new[first:last]), (" ", after)]
        changes.append("".join(mark + line for mark, lines in marked for line in lines))
    return re.sub("^ $", "", "@@\n".join(changes), flags=re.MULTILINE)


def shortest(exercise: Exercise, code: str) -> str:
    """Return the code as an edit of the solution, or of an answer if that is three lines shorter, or itself."""
    edits = [code, edit_of(code_of(exercise, COURSE.solution_file(exercise)), code)]
    for base in [*answers_to(exercise, right=True), *answers_to(exercise, right=False)]:
        edits.append(f"from: {base.name}\n{edit_of(base.text.removeprefix(head_of(COURSE, exercise)), code)}")
    return min(edits, key=lambda edit: edit.count("\n") + 2 * edit.startswith("from: "))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.answers", description=__doc__.splitlines()[0])
    parser.add_argument("exercise", help="or, with --add, a learner's file")
    parser.add_argument("name", nargs="?", help="an answer's name")
    parser.add_argument("--check", action="store_true", help="check the answer")
    parser.add_argument("--add", action="store_true", help="print a learner's file as the shortest edit")
    options = parser.parse_args()
    exercise = COURSE.find(options.exercise)
    answers = {answer.name: answer for right in (True, False) for answer in answers_to(exercise, right)}
    answer = answers.get(options.name)
    if options.add:
        print(f"## NAME\nthinks: \nsays: \n{shortest(exercise, code_of(exercise, Path(options.exercise)))}", end="")
    elif answer is None:
        parser.error(f"the answers are {', '.join(answers)}")
    elif options.check:
        print(f"It must {'pass' if answer.right else f'say: {answer.says}'}\n", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"{exercise.name}.py")
            file.write_text(answer.text, encoding="utf-8")
            cli.main(["check", exercise.name, "--file", str(file)])
    else:
        print(answer.text, end="")


if __name__ == "__main__":
    main()
