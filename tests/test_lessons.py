"""Lessons: text and notebook in step, executed, and held to the rules of the house. What they say is run by nbval."""

import ast
import re

import nbformat
import pytest

from mpcourse.check.manifest import load_course
from tests.conftest import ROOT, load_script

COURSE = load_course(ROOT)
EACH = pytest.mark.parametrize("name", [lesson.id for lesson in COURSE.lessons])
LEAVES_OUTPUT_OPEN = "nbval-ignore-output"


@pytest.fixture(scope="module")
def build():
    return load_script(ROOT / "lessons" / "build.py")


def notebook(name):
    return nbformat.read(ROOT / "lessons" / f"{name}.ipynb", as_version=4)


def source(name):
    return ROOT / "lessons" / "src" / f"{name}.py"


def test_every_text_has_its_notebook_and_its_place_in_the_manifest():
    texts = {path.stem for path in (ROOT / "lessons" / "src").glob("*.py")}
    books = {path.stem for path in (ROOT / "lessons").glob("*.ipynb")}
    assert texts == books == {lesson.id for lesson in COURSE.lessons}


@EACH
def test_the_notebook_holds_what_the_text_says(name, build):
    def held(book):
        return [(cell.id, cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in book.cells]

    assert held(notebook(name)) == held(build.read_source(source(name))), "run `make lessons` and commit the result"


@EACH
def test_the_text_is_as_jupytext_writes_it(name, build):
    """Else JupyterLab takes the two for different, and may refuse to open them."""
    assert source(name).read_text() == build.canonical(source(name)), "run `make lessons` and commit the result"


@EACH
def test_reading_the_text_twice_gives_the_same_notebook(name, build):
    first, second = (nbformat.writes(build.read_source(source(name))) for _ in range(2))
    assert first == second


@EACH
def test_the_notebooks_metadata_is_the_builders_own(name, build):
    assert dict(notebook(name).metadata) == nbformat.from_dict(build.METADATA)


@EACH
def test_every_cell_was_run_in_order_without_an_error(name):
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [o for cell in cells for o in cell.outputs if o.output_type == "error"]


@EACH
def test_a_lesson_shows_a_figure_and_asserts_what_it_claims(name):
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    assert sum(len(re.findall(r"^\s*assert ", cell.source, re.MULTILINE)) for cell in cells) >= 5


@EACH
def test_no_output_holds_a_path_or_a_progress_bar(name):
    text = nbformat.writes(notebook(name))
    assert not re.search(r"/(root|home|tmp|work|Users)/", text)
    assert "it/s]" not in text and "step/s]" not in text


@EACH
def test_a_lesson_starts_no_mpi_in_its_kernel(name):
    code = "\n".join(
        line
        for cell in notebook(name).cells
        if cell.cell_type == "code" and not cell.source.startswith("%%writefile")
        for line in cell.source.splitlines()
        if not line.lstrip().startswith(("!", "%")) and " = !" not in line
    )
    imported = [
        alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert not [name for name in imported if name.startswith("mpi4py")]


@EACH
def test_cells_that_leave_their_output_open_are_followed_by_claims_elsewhere(name):
    """An open output is for what the machine decides; where it is a measurement, some cell must assert about it."""
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    strict = [cell for cell in cells if LEAVES_OUTPUT_OPEN not in cell.metadata.get("tags", [])]
    assert any("assert " in cell.source for cell in strict)
    assert any(cell.outputs for cell in strict), "nbval compares nothing here"


@EACH
def test_the_prose_keeps_to_the_house_style(name):
    prose = "\n".join(cell.source for cell in notebook(name).cells if cell.cell_type == "markdown")
    text = re.sub(r"```.*?```|`[^`]*`|!\[", "", prose, flags=re.DOTALL)
    assert "!" not in text, "no exclamation marks"
    assert not re.search(r"\b(simply|obviously|just|easy|easily|powerful|awesome)\b", text)
    lesson = next(lesson for lesson in COURSE.lessons if lesson.id == name)
    assert lesson.question in prose and f"About {lesson.minutes} minutes" in prose


def test_editing_the_text_in_jupyterlab_keeps_the_notebook(tmp_path):
    """Through jupytext's contents manager, as JupyterLab saves: the pair is found by jupytext.toml alone."""
    import shutil

    from jupyter_server.services.contents.largefilemanager import LargeFileManager
    from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

    shutil.copytree(ROOT / "lessons", tmp_path / "lessons", ignore=shutil.ignore_patterns("scratch"))
    shutil.copy(ROOT / "jupytext.toml", tmp_path)
    manager = build_sync_jupytext_contents_manager_class(LargeFileManager)()
    manager.root_dir = str(tmp_path)
    first = COURSE.lessons[0].id

    book = manager.get(f"lessons/{first}.ipynb")
    book["content"]["cells"][0]["source"] += "\nA line from the notebook."
    manager.save(book, f"lessons/{first}.ipynb")
    text = tmp_path / "lessons" / "src" / f"{first}.py"
    assert "# A line from the notebook." in text.read_text()

    model = manager.get(f"lessons/src/{first}.py", type="notebook", content=True)
    model["content"]["cells"][0]["source"] += "\nA line from the text."
    manager.save(model, f"lessons/src/{first}.py")
    saved = nbformat.read(tmp_path / "lessons" / f"{first}.ipynb", as_version=4)
    assert "A line from the text." in saved.cells[0].source
    assert any(cell.get("outputs") for cell in saved.cells), "outputs are kept"
