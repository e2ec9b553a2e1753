"""The Dockerfile, as far as it can be judged by reading. `make test-doors` carries it out."""

import pytest

from mpcourse.course.learner.originals import originals
from tests.conftest import ROOT
from tests.doors.dockerfile import context, expanded, parse


def test_an_instruction_that_nobody_carries_out_is_refused():
    with pytest.raises(ValueError, match="line 2: VOLUME is not known"):
        parse("# one\nVOLUME /course\n")
    with pytest.raises(ValueError, match="line 1: the last instruction goes on"):
        parse("RUN a \\\n")


def test_an_instruction_may_go_on_over_lines_with_comments_between():
    (run,) = parse("\n# x\nRUN a \\\n    # y\n    && b\n")
    assert (run.name, run.text.split(), run.line) == ("RUN", ["a", "&&", "b"], 3)


def test_variables_are_replaced():
    assert expanded("/new:$PATH:${PATH}$NONE", {"PATH": "/bin"}) == "/new:/bin:/bin"


def test_an_image_gets_all_that_the_wheel_is_made_of_and_nobodys_answers(tmp_path):
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    for name in ("exercises/e00_hello.py", "exercises/manifest.toml", "mpcourse/a/b.py", "mpcourse/__pycache__/c.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("lessons/00.ipynb", "lessons/scratch/x.ipynb", "lessons/twins/t.py", ".git/config", "Dockerfile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert set(context(tmp_path, ignore)) == {
        *("exercises/manifest.toml", "mpcourse/a/b.py", "lessons/00.ipynb", "lessons/twins/t.py")
    }
    there = set(context(ROOT, ignore))
    copied = ("lessons/", "docs/", "exercises/evidence/", "exercises/manifest.toml")
    needed = {path for path in originals().files if path.startswith(copied)}
    needed |= {f"solutions/{path.name}" for path in (ROOT / "solutions").glob("*.py")}
    needed |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "mpcourse").rglob("*.py")}
    needed |= {"setup.py", "pyproject.toml", "README.md", "LICENSE", "constraints.txt", "docker/entrypoint.sh"}
    assert not needed - there
