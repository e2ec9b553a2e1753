"""The clinic's evidence: it is there, names no place of the machine it is from, and fits the program it is about."""

import ast
import re
import shlex
import subprocess

import pytest

from mpcourse.course.check.manifest import load_course
from tests.conftest import ROOT, python

CASES = [exercise.name for exercise in load_course(ROOT).exercises if exercise.lesson == "16_clinic"]
COMMAND = re.compile(r"((?:mpirun -np \d+ )?python exercises/evidence/(?:\w+)/run\.py(?: \d+)?)(?![\w ]*FILE)")
ENDS_BADLY = ("e16_stops", "e16_accuracy", "e16_checkpoint")  # a hang, an error of gloo, and a race


def task(name):
    return (ROOT / "exercises" / f"{name}.py").read_text(encoding="utf-8")


def evidence(name):
    return sorted((ROOT / "exercises" / "evidence" / name).iterdir())


def test_there_are_twelve_cases():
    assert len(CASES) == 12


@pytest.mark.parametrize("name", CASES)
def test_the_task_names_each_file_of_its_evidence(name):
    said = ast.get_docstring(ast.parse(task(name))) or ""
    assert f"evidence/{name}/" in said
    assert sorted(set(re.findall(r"`([\w.-]+\.(?:log|txt|csv|json|json\.gz))`", said)) | {"run.py"}) == [
        file.name for file in evidence(name)
    ]


@pytest.mark.parametrize("name", CASES)
def test_evidence_is_small_and_names_no_place_of_a_machine(name):
    for file in evidence(name):
        assert file.stat().st_size < (300_000 if "trace" in file.name or file.suffix == ".gz" else 30_000)
        if file.suffix != ".gz":
            assert not re.search(r"/(root|home|tmp|work|Users)/", file.read_text(encoding="utf-8")), file


@pytest.mark.parametrize("name", CASES)
def test_lines_that_evidence_names_are_lines_that_run(name):
    """If lines of an exercise move, its evidence has to be made anew."""
    runs = {
        node.lineno
        for node in ast.walk(ast.parse(task(name)))
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant)
    }
    lines = task(name).splitlines()
    for file in evidence(name):
        if file.suffix in (".txt", ".log", ".json"):
            text = file.read_text(encoding="utf-8")
            found = re.findall(rf"{name}\.py(?:\", line |:)(\d+)", text)
            assert {int(line) for line in found} <= runs, file
            for line, source in re.findall(rf"{name}\.py\", line (\d+), in \w+\n +(\S.*)", text):
                assert lines[int(line) - 1].strip() == source.strip()
            if file.name == "py-spy.txt":
                assert found and all("comm." in lines[int(line) - 1] for line in found)


@pytest.mark.ranks
@pytest.mark.parametrize("name", [name for name in CASES if name not in ENDS_BADLY])
def test_the_fault_can_be_seen_again(name, tmp_path, mpirun):
    said = " ".join(task(name).split())
    (command, *_) = COMMAND.findall(said)
    words = shlex.split(command)
    folder = tmp_path / "exercises"
    made = folder / "evidence" / name
    made.mkdir(parents=True)
    for file in (ROOT / "exercises" / f"{name}.py", *evidence(name)):
        (made if file.parent.name == name else folder).joinpath(file.name).write_bytes(file.read_bytes())
    run, given = made / "run.py", words[words.index("python") + 2 :]
    if words[0] == "mpirun":
        done = mpirun(int(words[2]), run, *given)
    else:
        done = subprocess.run(python(run, *given), capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first = (made / "ranks.log").read_text().splitlines()[0].split()
    assert any(len(line.split()) == len(first) for line in done.stdout.splitlines())
