"""Lessons: text and notebook in step, executed, and held to the rules of the house. What they say is run by nbval.

A lesson that a learner has saved in JupyterLab is judged as it was committed: see `judged` in tools/build.py.
"""

import ast
import json
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from mpcourse.course.check.manifest import load_course
from mpcourse.course.jupyter.kernel import LessonKernel
from tests.conftest import ROOT, load_script

COURSE = load_course(ROOT)
LESSONS = [lesson.id for lesson in COURSE.lessons]
APPENDICES = sorted(f"appendix/{path.stem}" for path in (ROOT / "lessons/src/appendix").glob("*.py"))
EACH = pytest.mark.parametrize("name", LESSONS)
AND_APPENDICES = pytest.mark.parametrize("name", [*LESSONS, *APPENDICES])
LEAVES_OUTPUT_OPEN = "nbval-ignore-output"


BUILD = load_script(ROOT / "tools" / "build.py")
README = load_script(ROOT / "tools" / "readme.py")


def text(name):
    return BUILD.judged(name)[0]


def notebook(name):
    return nbformat.reads(BUILD.judged(name)[1], as_version=4)


@pytest.fixture
def source(tmp_path):
    """Write the judged text of a lesson to a file, for functions that read one."""

    def write(name):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text(name))
        return path

    return write


def test_every_text_has_its_notebook_and_its_place_in_the_manifest():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "lessons"], capture_output=True, text=True).stdout
    # A learner's own notebooks are not in git. Where there is no git, all files count.
    paths = [ROOT / line for line in listed.splitlines()] or [*(ROOT / "lessons").rglob("*.*")]
    folder = ROOT / "lessons"
    places = {path.with_suffix("").relative_to(folder).as_posix(): path for path in paths}
    texts = {name.removeprefix("src/") for name in places if name.startswith("src/")}
    books = {name for name, path in places.items() if path.suffix == ".ipynb"}
    assert texts == books == {*LESSONS, *APPENDICES}
    beside = {path.name for path in paths if path.parent.name == "lessons"}
    assert beside == {f"{name}.ipynb" for name in LESSONS}, "JupyterLab's file browser shows a learner what is there"


@AND_APPENDICES
def test_the_notebook_holds_what_the_text_says(name, source):
    def held(book):
        return [(cell.id, cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in book.cells]

    assert held(notebook(name)) == held(BUILD.read_source(source(name))), "run `make lessons` and commit the result"


@AND_APPENDICES
def test_the_text_is_as_jupytext_writes_it(name, source):
    """Else JupyterLab takes the two for different, and may refuse to open them."""
    assert text(name) == BUILD.canonical(source(name)), "run `make lessons` and commit the result"


@AND_APPENDICES
def test_reading_the_text_twice_gives_the_same_notebook(name, source):
    first, second = (nbformat.writes(BUILD.read_source(source(name))) for _ in range(2))
    assert first == second


@AND_APPENDICES
def test_the_notebook_is_as_it_was_built(name):
    book = notebook(name)
    built = BUILD.METADATA | {"mpcourse": {"built": BUILD.digest(book)}}
    assert book.metadata == nbformat.from_dict(built), "run `make lessons` and commit it"


@EACH
def test_a_cell_that_shows_the_readers_own_machine_answers_or_progress_is_committed_without_output(name):
    own = re.compile(r"^(panel\.show|!mpcourse (doctor|check e\d\d\w*)$|!.*\.\./exercises/)", re.MULTILINE)
    shown = [cell for cell in notebook(name).cells if cell.cell_type == "code" and own.search(cell.source)]
    assert len(shown) >= 2
    for cell in shown:
        assert cell.outputs == [] and LEAVES_OUTPUT_OPEN in cell.metadata.tags, cell.source


@EACH
def test_a_lesson_links_to_the_file_of_each_of_its_exercises(name):
    prose = "".join(cell.source for cell in notebook(name).cells if cell.cell_type == "markdown")
    linked = set(re.findall(r"\]\(\.\./exercises/(\w+)\.py\)", prose))
    assert linked == {exercise.name for exercise in COURSE.exercises if exercise.lesson == name}


@AND_APPENDICES
def test_the_text_passes_ruff(name):
    """Here and not in `make lint`, which would judge what a learner wrote into a lesson."""
    path = f"lessons/src/{name}.py"
    command = [sys.executable, "-m", "ruff", "check", "--stdin-filename", path, "-"]
    checked = subprocess.run(command, input=text(name), capture_output=True, text=True, cwd=ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@AND_APPENDICES
def test_every_cell_was_run_in_order_without_an_error(name):
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [o for cell in cells for o in cell.outputs if o.output_type == "error"]


@EACH
def test_a_lesson_shows_a_figure_and_asserts_what_it_claims(name):
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    held = [cell for cell in cells if cell.outputs and LEAVES_OUTPUT_OPEN not in cell.metadata.get("tags", [])]
    assert sum(len(re.findall(r"^\s*assert ", cell.source, re.MULTILINE)) for cell in cells) + len(held) >= 8


@AND_APPENDICES
def test_no_output_holds_a_path_or_a_progress_bar(name):
    book = nbformat.writes(notebook(name))
    assert not re.search(r"/(root|home|tmp|work|Users)/", book)
    assert "it/s]" not in book and "step/s]" not in book


@AND_APPENDICES
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


@AND_APPENDICES
def test_the_prose_keeps_to_the_house_style(name):
    prose = "\n".join(cell.source for cell in notebook(name).cells if cell.cell_type == "markdown")
    titles = r"(?<!\*)\*[A-Z][^*]+\*(?!\*)"  # of publications
    words = re.sub(rf"```.*?```|`[^`]*`|!\[|{titles}", "", prose, flags=re.DOTALL)
    assert "!" not in words, "no exclamation marks"
    assert not re.search(r"\b(simply|obviously|just|easy|easily|powerful|awesome)\b", words)


@EACH
def test_the_lesson_asks_its_question_and_says_what_time_it_and_its_exercises_take(name):
    lesson = next(lesson for lesson in COURSE.lessons if lesson.id == name)
    minutes = [exercise.minutes for exercise in COURSE.exercises if exercise.lesson == name]
    exercises = "exercise" if len(minutes) == 1 else "exercises"
    first = notebook(name).cells[0].source
    assert f"**{lesson.question}**" in first
    reading = README.reading_minutes(notebook(name))
    assert f"About {reading} minutes to read, and {sum(minutes)} for its {exercises}." in first


@EACH
def test_a_lesson_is_read_in_55_minutes(name):
    assert README.reading_minutes(notebook(name)) <= 55


def test_reading_counts_words_lines_of_code_figures_and_predictions():
    words = nbformat.v4.new_markdown_cell(" ".join(["word"] * 746) + " **Predict first.** How?")  # 5 minutes and 1.5
    shown = [nbformat.v4.new_output("display_data", {"image/png": ""})] * 3
    code = nbformat.v4.new_code_cell("x = 1\n\n" * 60, outputs=shown)  # 3 and 5
    check = nbformat.v4.new_code_cell("x = 1\n" * 600, metadata={"tags": ["checked"]})
    minutes = [
        README.reading_minutes(nbformat.v4.new_notebook(cells=cells))
        for cells in ([words], [code], [words, code, check])
    ]
    assert minutes == [10, 10, 15]


@EACH
def test_the_cell_that_answers_a_prediction_is_folded_and_says_so(name):
    cells = notebook(name).cells
    asked = [i for i, cell in enumerate(cells) if cell.cell_type == "markdown" and "**Predict first.**" in cell.source]
    answers = [next(cell for cell in cells[i:] if cell.cell_type == "code") for i in asked]
    assert answers and len({cell.id for cell in answers}) == len(answers)
    for cell in answers:
        assert cell.source.startswith("# answer\n")
        assert cell.metadata.collapsed and cell.metadata.jupyter == {"outputs_hidden": True, "source_hidden": True}


@EACH
def test_a_cell_that_is_read_holds_at_most_one_assert_and_the_others_are_folded(name):
    for cell in (cell for cell in notebook(name).cells if cell.cell_type == "code"):
        if cell.metadata.get("tags") == ["checked"]:
            assert cell.source.startswith("# checked: ") and cell.metadata.jupyter == {"source_hidden": True}
        else:
            assert len(re.findall(r"^\s*assert ", cell.source, re.MULTILINE)) <= 1, cell.source


def test_outputs_of_answers_can_be_left_out(tmp_path):
    file = tmp_path / "lesson.ipynb"
    nbformat.write(notebook(LESSONS[0]), file)
    BUILD.without_answers(file)
    cells = [cell for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"]
    assert not [cell for cell in cells if "answer" in cell.metadata.get("tags", []) and cell.outputs]
    assert [cell for cell in cells if cell.outputs]


@EACH
def test_the_lesson_closes_with_what_comes_next(name):
    assert re.search(r"^Next", notebook(name).cells[-1].source, re.MULTILINE)


def test_lesson_00_leaves_its_exercise_to_the_learner():
    assert "gather(" not in text(COURSE.lessons[0].id)


@pytest.fixture
def jupyterlab(tmp_path):
    """Return a folder with the first lesson in it, committed, and jupytext's contents manager, which JupyterLab uses.

    A pair is found by jupytext.toml alone.
    """
    from jupyter_server.services.contents.largefilemanager import LargeFileManager
    from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

    first = COURSE.lessons[0].id
    (tmp_path / "lessons" / "src").mkdir(parents=True)
    text, book = BUILD.judged(first)
    (tmp_path / "lessons" / "src" / f"{first}.py").write_text(text)
    (tmp_path / "lessons" / f"{first}.ipynb").write_text(book)
    shutil.copy(ROOT / "jupytext.toml", tmp_path)
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "one")):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True)
    manager = build_sync_jupytext_contents_manager_class(LargeFileManager)()
    manager.root_dir = str(tmp_path)
    return manager


def test_editing_the_text_in_jupyterlab_keeps_the_notebook(jupyterlab, tmp_path):
    first = COURSE.lessons[0].id
    book = jupyterlab.get(f"lessons/{first}.ipynb")
    book["content"]["cells"][0]["source"] += "\nA line from the notebook."
    jupyterlab.save(book, f"lessons/{first}.ipynb")
    saved = tmp_path / "lessons" / "src" / f"{first}.py"
    assert "# A line from the notebook." in saved.read_text()

    model = jupyterlab.get(f"lessons/src/{first}.py", type="notebook", content=True)
    model["content"]["cells"][0]["source"] += "\nA line from the text."
    jupyterlab.save(model, f"lessons/src/{first}.py")
    saved = nbformat.read(tmp_path / "lessons" / f"{first}.ipynb", as_version=4)
    assert "A line from the text." in saved.cells[0].source
    assert any(cell.get("outputs") for cell in saved.cells), "outputs are kept"


def test_saving_a_lesson_that_was_only_opened_changes_no_byte(jupyterlab, tmp_path):
    """JupyterLab writes into a notebook what its kernel says of itself, and counts it as changed if that is new."""
    first = COURSE.lessons[0].id
    files = [tmp_path / "lessons" / f"{first}.ipynb", tmp_path / "lessons" / "src" / f"{first}.py"]
    before = [file.read_bytes() for file in files]
    model = jupyterlab.get(f"lessons/{first}.ipynb")
    metadata = json.loads(json.dumps(model["content"]["metadata"]))
    spec = json.loads((ROOT / "mpcourse/course/jupyter/kernels/python3/kernel.json").read_text())
    metadata["kernelspec"] = {key: spec[key] for key in ("display_name", "language")} | {"name": "python3"}
    metadata["language_info"] = LessonKernel.language_info
    assert model["content"]["metadata"] == metadata, "it would count as changed as soon as it is open"
    jupyterlab.save(model, f"lessons/{first}.ipynb")
    assert [file.read_bytes() for file in files] == before


def run_a_cell(book):
    book["cells"][1]["outputs"] = [nbformat.v4.new_output("stream", text="mine")]


def add_a_cell(book):
    book["cells"].append(nbformat.v4.new_code_cell("x ="))


@pytest.mark.parametrize("use", [run_a_cell, add_a_cell])
def test_a_lesson_saved_in_jupyterlab_is_judged_as_it_was_committed(jupyterlab, tmp_path, monkeypatch, use):
    first = COURSE.lessons[0].id
    monkeypatch.setattr(BUILD, "LESSONS", tmp_path / "lessons")
    committed = BUILD.judged(first)
    model = jupyterlab.get(f"lessons/{first}.ipynb")
    use(model["content"])
    jupyterlab.save(model, f"lessons/{first}.ipynb")
    saved = tmp_path / "lessons" / f"{first}.ipynb"
    assert saved.read_text() != committed[1]
    assert BUILD.judged(first) == committed


def test_a_lesson_that_was_saved_and_committed_is_judged_as_it_stands(jupyterlab, tmp_path, monkeypatch):
    """What a maintainer forgot to rebuild must not pass."""
    first = COURSE.lessons[0].id
    monkeypatch.setattr(BUILD, "LESSONS", tmp_path / "lessons")
    model = jupyterlab.get(f"lessons/{first}.ipynb")
    run_a_cell(model["content"])
    jupyterlab.save(model, f"lessons/{first}.ipynb")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", tmp_path, *author, "commit", "-q", "-a", "-m", "two"], check=True)
    book = nbformat.reads(BUILD.judged(first)[1], as_version=4)
    assert book.cells[1].outputs[0].text == "mine" and book.metadata["mpcourse"]["built"] != BUILD.digest(book)


def test_a_change_that_make_lessons_built_or_has_yet_to_build_is_judged_before_it_is_committed(
    jupyterlab, tmp_path, monkeypatch
):
    first = COURSE.lessons[0].id
    monkeypatch.setattr(BUILD, "LESSONS", tmp_path / "lessons")
    source, book = tmp_path / "lessons" / "src" / f"{first}.py", tmp_path / "lessons" / f"{first}.ipynb"
    source.write_text(source.read_text().replace("Start here", "Start there"))
    assert BUILD.judged(first) == (source.read_text(), book.read_text())
    assert "Start there" not in BUILD.judged(first)[1]
    assert BUILD.renew(source)
    assert "Start there" in BUILD.judged(first)[1]


def test_prose_and_tags_are_renewed_without_a_run_and_changed_code_is_not(tmp_path, monkeypatch):
    name = COURSE.lessons[1].id
    committed, told = notebook(name), text(name)
    monkeypatch.setattr(BUILD, "LESSONS", tmp_path / "lessons")
    source, file = tmp_path / "lessons" / "src" / f"{name}.py", tmp_path / "lessons" / f"{name}.ipynb"
    source.parent.mkdir(parents=True)
    shutil.copy(ROOT / "jupytext.toml", tmp_path)
    source.write_text(told.replace("One device", "A device"))
    nbformat.write(committed, file)
    outputs = [cell.get("outputs") for cell in committed.cells]
    assert BUILD.renew(source)
    renewed = nbformat.read(file, as_version=4)
    assert renewed.cells[0].source.startswith("# 01 A device")
    assert [cell.get("outputs") for cell in renewed.cells] == outputs
    before = file.read_bytes()
    source.write_text(source.read_text().replace("widths = [64, ", "widths = [65, "))
    assert not BUILD.renew(source) and file.read_bytes() == before


def test_make_notebooks_runs_the_judged_lessons_in_a_folder_of_their_own(tmp_path):
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "09_of_old.ipynb").write_text("{}")
    BUILD.copy_judged(folder)
    copies = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.ipynb")}
    assert copies.keys() == {*LESSONS, *APPENDICES}
    for name, path in copies.items():
        assert path.read_text() == BUILD.judged(name)[1]
    makefile = (ROOT / "Makefile").read_text()
    assert makefile.count("tools/build.py --judged build\n") == 2 and makefile.count("build/*.ipynb") == 3


def test_make_test_skips_what_torchrun_starts_and_what_needs_its_results(tmp_path):
    BUILD.copy_judged(tmp_path, without_torchrun=True)
    assert "--judged build --without-torchrun\n" in (ROOT / "Makefile").read_text()
    for name in LESSONS:
        cells = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4).cells
        skipped = [cell.source for cell in cells if "nbval-skip" in cell.metadata.get("tags", [])]
        assert len([source for source in skipped if "!torchrun" in source]) == ("torchrun --local" in text(name))
        kept = [cell.source for cell in cells if cell.cell_type == "code" and cell.source not in skipped]
        assert len(kept) > 3 * len(skipped) and not any("torchrun" in source for source in kept)


@pytest.mark.parametrize("path", sorted((ROOT / "lessons/src").glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_a_lesson_asks_two_questions_before_it_answers_them_and_has_a_widget(path):
    text = path.read_text()
    assert text.count("**Predict first.**") >= 2
    assert re.search(r"^plot\.(sliders|place_schedule)\(", text, re.MULTILINE)


@pytest.mark.parametrize("name", [lesson.id for lesson in COURSE.lessons[1:]])
def test_a_lesson_shows_its_reference_implementation_from_the_source(name):
    shown = [cell for cell in notebook(name).cells if cell.cell_type == "code" and "\nreference(" in cell.source]
    text = "".join(output["data"]["text/markdown"] for cell in shown for output in cell.outputs)
    assert re.search(r"\]\(\.\./mpcourse/\w+", text) and "```python" in text
