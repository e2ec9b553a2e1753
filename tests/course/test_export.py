"""`mpcourse export`: what Gradescope, GitHub Classroom and nbgrader get, as far as it runs without them."""

import ast
import json
import os
import re
import subprocess
import zipfile

import nbformat
import pytest

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.stubs import stub_of
from mpcourse.course.cli import _parser
from mpcourse.course.grading.export import run
from tests.conftest import ROOT, python

RIGHT = "def mean(comm, x):\n    return comm.allreduce(x) / comm.size\n"


def export(*arguments):
    return run(_parser().parse_args(["export", *map(str, arguments)]))


@pytest.fixture
def whole_course(monkeypatch):
    monkeypatch.setenv("MPCOURSE_ROOT", str(ROOT))


def test_gradescopes_run_autograder_writes_results_of_a_right_and_a_wrong_answer(small_course, tmp_path):
    base = tmp_path / "autograder"
    assert export("gradescope", tmp_path / "out") == 0
    with zipfile.ZipFile(tmp_path / "out" / "autograder.zip") as archive:
        archive.extractall(base / "source")
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert modes["run_autograder"] == modes["setup.sh"] == 0o755
    subprocess.run(["bash", "-n", base / "source" / "setup.sh"], check=True)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {" ".join(python())} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    environment = {**os.environ, "AUTOGRADER": str(base), "PYTHON": str(tmp_path / "python")}
    found = []
    for text in (RIGHT, RIGHT.replace(" / comm.size", ""), None):
        (base / "submission").mkdir(exist_ok=True)
        if text:
            (base / "submission" / "e90_mean.py").write_text(text)
        else:
            (base / "submission" / "e90_mean.py").unlink()
        done = subprocess.run(
            ["bash", base / "source" / "run_autograder"], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found += json.loads((base / "results" / "results.json").read_text())["tests"]
    assert [(test["name"], test["score"], test["max_score"], test["status"]) for test in found] == [
        ("e90_mean", 1.0, 1.0, "passed"),
        ("e90_mean", 0.0, 1.0, "failed"),
        ("e90_mean", 0.0, 1.0, "failed"),
    ]
    assert found[1]["output"].startswith("wrong answer: ") and found[2]["output"] == "there is no file e90_mean.py"


# Programs that note what setup.sh asks of them, and make what it goes on with.
NOTE = """#!/bin/sh
echo "$(basename "$0") $*" >> "$AUTOGRADER/asked"
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && for name in pip python mpcourse; do cp "$0" "$3/bin/$name"; done ;;
    -c*) echo "$AUTOGRADER/package" ;;
esac
"""


@pytest.mark.parametrize("index", ["https://example.org/whl/cpu", None])
def test_gradescopes_set_up_takes_torch_from_the_index_and_then_the_wheel(whole_course, tmp_path, index):
    wheel = tmp_path / "mpcourse-1-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    export("gradescope", tmp_path / "out", "--wheel", wheel, *(["--torch-index", index] if index else []))
    base = tmp_path / "autograder"
    with zipfile.ZipFile(tmp_path / "out" / "autograder.zip") as archive:
        archive.extractall(base / "source")
    (tmp_path / "bin").mkdir()
    for name in ("apt-get", "python3"):
        (tmp_path / "bin" / name).write_text(NOTE)
        (tmp_path / "bin" / name).chmod(0o755)
    (base / "package" / "solutions").mkdir(parents=True)
    environment = os.environ | {"AUTOGRADER": str(base), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    subprocess.run(["bash", base / "source" / "setup.sh"], env=environment, check=True)
    installed = [line for line in (base / "asked").read_text().splitlines() if line.startswith("pip ")]
    from_index = f" --index-url {index}" if index else ""
    assert installed == [
        f"pip install --quiet torch{from_index}",
        f"pip install --quiet {base}/source/{wheel.name}[mpich]",
    ]
    assert not (base / "package" / "solutions").exists()
    assert ("--torch-index URL" in (tmp_path / "out" / "README.txt").read_text()) == (index is None)


def test_classroom_gets_a_test_for_each_exercise_and_the_wheel(whole_course, tmp_path):
    wheel = tmp_path / "mpcourse-1-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    export("classroom", tmp_path / "out", "--wheel", wheel, "--torch-index", "https://example.org/whl/cpu")
    folder = tmp_path / "out" / ".github"
    tests = json.loads((folder / "classroom" / "autograding.json").read_text())["tests"]
    assert [test["run"] for test in tests] == [f"mpcourse check {e.name}" for e in load_course(ROOT).exercises]
    assert (folder / "classroom" / wheel.name).read_bytes() == b"a wheel"
    workflow = (folder / "workflows" / "classroom.yml").read_text()
    assert "education/autograding@v1" in workflow
    assert "run: pip install --quiet torch --index-url https://example.org/whl/cpu\n" in workflow


def test_nbgraders_notebooks_are_valid_and_without_their_solution_are_the_stub(whole_course, tmp_path):
    export("nbgrader", tmp_path / "out")
    course = load_course(ROOT)
    for exercise in course.exercises:
        read = nbformat.read(tmp_path / "out" / "source" / exercise.name / f"{exercise.name}.ipynb", 4)
        nbformat.validate(read)
        _task, answer, check = read.cells
        assert [cell.metadata.nbgrader.solution for cell in read.cells] == [False, True, False]
        assert check.metadata.nbgrader.grade and check.metadata.nbgrader.points == exercise.difficulty
        magic, _, text = answer.source.partition("\n")
        assert magic == f"%%writefile {exercise.name}.py"
        # as nbgrader's ClearSolutions does
        cleared = re.sub(
            r"(?ms)^([ \t]*)### BEGIN SOLUTION\n.*?### END SOLUTION$", r"\1raise NotImplementedError()", text
        )
        defined = [ast.dump(node.args) for node in ast.walk(ast.parse(cleared)) if isinstance(node, ast.FunctionDef)]
        stub = ast.walk(ast.parse(stub_of(course, exercise)))
        assert defined == [ast.dump(node.args) for node in stub if isinstance(node, ast.FunctionDef)]
        ast.parse(check.source)


def test_a_folder_that_holds_something_and_a_wheel_that_is_none_are_refused(whole_course, tmp_path):
    with pytest.raises(UserError, match="is no wheel"):
        export("classroom", tmp_path / "new", "--wheel", tmp_path / "none.whl")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is not empty"):
        export("classroom", tmp_path)
    with pytest.raises(UserError, match="cannot be written"):
        export("classroom", tmp_path / "file" / "below")
