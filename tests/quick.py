"""The tests that a change most probably breaks, in about a minute: `make quick`.

A change is what differs from the last commit, with files that git does not know; `--since REV` takes all since that.
A test file comes the earlier, the fewer imports lie between it and what has changed; of a file that no test imports,
such as a lesson or the Makefile, the test files that name it, and then those that name its folder. It goes no further
than there is time: tests/seconds.json says how long each file took when `python tests/quick.py --learn REPORT` last
read a report. Answers are taken by exercise, where its check, its solution or the answers themselves have changed.
"""

import argparse
import ast
import functools
import json
import re
import subprocess
import sys
from collections import Counter, deque
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SECONDS = ROOT / "tests" / "seconds.json"
BUDGET = 90.0  # seconds of tests, of which two cores need about half
UNKNOWN = 5.0  # of a test file that is new
ANSWER = re.compile(r"test_a_(?:wrong_answer_is_named|right_answer_passes)\[(\w+)-")
BEGIN = ("test_time_limit.py", "test_schedule.py")  # of no change at all: a sign of life


def changed_files(since: str) -> list[str]:
    """Paths, from the root, of what differs from a commit."""
    asked = (["diff", "--name-only", since], ["ls-files", "--others", "--exclude-standard"])
    listed = [
        subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout
        for words in asked
    ]
    return sorted({line for paths in listed for line in paths.splitlines()})


def module_of(path: Path) -> str:
    """The name by which a file of this repository is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[str, Path]:
    """All modules of the package and of the tests, by name."""
    paths = [
        *(ROOT / "mpcourse").rglob("*.py"),
        *(ROOT / "tests").glob("*.py"),
        *(ROOT / "tests/programs").glob("*.py"),
    ]
    return {module_of(path): path for path in paths}


@functools.cache
def imports(name: str) -> frozenset[str]:
    """The modules of this repository that a module imports, wherever in it, or names in a string as a program."""
    found = set()
    for node in ast.walk(ast.parse(modules()[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value, f"tests.programs.{node.value.removesuffix('.py')}"}
    return frozenset(found & modules().keys())


@functools.cache
def distances(test: str) -> dict[str, int]:
    """How many imports lie between a test module and each module that it reaches."""
    found, asked = {test: 0}, deque([test])
    while asked:
        name = asked.popleft()
        for each in imports(name) - found.keys():
            found[each] = found[name] + 1
            asked.append(each)
    return found


@functools.cache
def strings(test: str) -> frozenset[str]:
    """All strings in a test module."""
    nodes = ast.walk(ast.parse(modules()[test].read_text(encoding="utf-8")))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def names_file(test: str, path: str) -> int | None:
    """1 if a test module names a file in a string, 2 if it names its folder at the top, else None."""
    if strings(test) & {path, Path(path).name, Path(path).stem}:
        return 1
    return 2 if Path(path).parts[0] in strings(test) else None


def chosen(changes: list[str], seconds: dict[str, float]) -> tuple[list[str], set[str], list[str]]:
    """Test files to run, exercises whose answers are judged, and test files for which there is no time."""
    exercises = {Path(path).stem for path in changes if Path(path).stem[:1] == "e" and Path(path).stem[1:3].isdigit()}
    names = {module_of(ROOT / path) for path in changes if path.endswith(".py")} & modules().keys()
    others = [path for path in changes if module_of(ROOT / path) not in modules()]
    ranked = []
    for test in sorted(name for name in modules() if name.startswith("tests.test_") and name != "tests.test_answers"):
        near = [distance for name, distance in distances(test).items() if name in names and distance < 9]
        near += [distance for path in others if (distance := names_file(test, path))]
        if near:
            ranked.append((min(near), seconds.get(f"{test.removeprefix('tests.')}.py", UNKNOWN), test))
    left = BUDGET - sum(seconds.get(f"answers {name}", UNKNOWN) for name in exercises)
    run, later = [], []
    for _, cost, test in sorted(ranked):
        file = f"{test.removeprefix('tests.')}.py"
        if cost <= left:
            run.append(file)
            left -= cost
        else:
            later.append(file)
    return run or ([] if exercises else list(BEGIN)), exercises, later


def learn(report: Path) -> None:
    """Write down how long each test file took, and the answers to each exercise, from a report in JUnit's format."""
    took: Counter[str] = Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.attrib["classname"].split(".")[-1]
        judged = ANSWER.match(case.attrib["name"])
        took[f"answers {judged[1]}" if judged else f"{file}.py"] += float(case.attrib["time"])
    kept = {name: round(spent, 1) for name, spent in sorted(took.items()) if name.startswith(("test_", "answers "))}
    SECONDS.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> int:
    """Exit status: pytest's own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", default="HEAD", metavar="REV")
    parser.add_argument("--learn", type=Path, metavar="REPORT")
    options, rest = parser.parse_known_args()
    if options.learn:
        learn(options.learn)
        return 0
    changes = changed_files(options.since)
    run, exercises, later = chosen(changes, json.loads(SECONDS.read_text()))
    print(f"{len(changes)} files have changed. Tests: {', '.join(run) or 'none'}")
    if exercises:
        print(f"Answers to: {', '.join(sorted(exercises))}")
    if later:
        print(f"No time for (`make test` runs them): {', '.join(later)}")
    sys.stdout.flush()
    files = [f"tests/{file}" for file in run]
    if exercises:
        files.append("tests/test_answers.py")
        rest += ["-k", " or ".join([*(Path(file).stem for file in run), *sorted(exercises)])]
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *files, *rest], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
