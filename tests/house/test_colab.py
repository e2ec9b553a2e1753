"""Colab's copies of the lessons, and the cell that they begin with. `make test-doors` runs one as Colab does."""

import os
import re
import subprocess
import sys
from types import ModuleType

import nbformat
import pytest

import mpcourse
from mpcourse.course.check.manifest import load_course
from tests.conftest import ROOT, load_script

COURSE = load_course(ROOT)
BUILD = load_script(ROOT / "tools" / "build.py")
COLAB = load_script(ROOT / "tools" / "for_colab.py")
CELL = COLAB.first_cell().source


def test_every_lesson_gets_its_copy_and_none_is_left_of_another(tmp_path):
    (tmp_path / "12_gone.ipynb").touch()
    COLAB.write_copies(tmp_path)
    copies = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.ipynb")}
    assert copies == {f"{BUILD.name_of(text)}.ipynb" for text in BUILD.lesson_texts()}


@pytest.mark.parametrize("name", [lesson.id for lesson in COURSE.lessons])
def test_a_copy_is_the_lesson_behind_a_cell_that_sets_up_the_course_without_links_to_files(name, tmp_path):
    (tmp_path / f"{name}.py").write_text(BUILD.judged(name)[0])
    copy = COLAB.copy_of(tmp_path / f"{name}.py")
    nbformat.validate(copy)
    first, *cells = copy.cells
    lesson = BUILD.read_source(tmp_path / f"{name}.py").cells
    assert first.source == CELL and len(cells) == len(lesson)
    assert [c.source for c in cells if c.cell_type == "code"] == [c.source for c in lesson if c.cell_type == "code"]
    assert not [c for c in cells if c.get("outputs")]
    prose = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert not re.search(r"\]\((?!https?:)[^)\s]+\)", re.sub(r"```.*?```|`[^`]*`", "", prose, flags=re.DOTALL))


def test_the_cell_asks_for_this_version_of_the_course():
    assert re.findall(r"mpcourse\[mpich\]==([\w.]+)", CELL) == [mpcourse.__version__]


def test_the_cell_does_nothing_where_it_is_not_in_colab(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it starts a program"))
    before = dict(os.environ)
    exec(CELL, {"__name__": "__main__"})
    assert not capsys.readouterr().out and os.getcwd() == str(tmp_path) and dict(os.environ) == before


def test_in_colab_the_cell_says_in_a_line_why_the_course_was_not_set_up(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    cell = CELL.replace(f"=={mpcourse.__version__}", "==99.9").replace('"/content"', repr(str(tmp_path)))
    with pytest.raises(RuntimeError, match=r"^The course was not set up: pip install .* says: ERROR: .*99\.9.*$"):
        exec(cell, {"__name__": "__main__"})
    assert not list(tmp_path.iterdir())
