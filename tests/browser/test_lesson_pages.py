"""Lessons in a real browser: JupyterLab as `make lab` opens it, run and seen, sliders moved by keys, buttons pressed.

Selenium and not Playwright: it is a quarter of the size, and drives any Chromium that comes with a driver, as Debian's
does; Playwright promises to work with the builds that it downloads.
"""

import ast
import os
import time

import nbformat
import pytest

from mpcourse.course.check.manifest import load_course
from tests.browser.conftest import BUILD
from tests.browser.needs import needed
from tests.conftest import ROOT

LESSONS = [lesson.id for lesson in load_course(ROOT).lessons]
PLACING = "plot.place_schedule("
SECONDS = 180  # for all cells of a lesson, on a machine that does other things as well


def code_cells(name):
    return [c for c in nbformat.reads(BUILD.judged(name)[1], as_version=4).cells if c.cell_type == "code"]


def sliders_asked(cells):
    """How many values a lesson lets a reader choose: the named arguments of its `plot.sliders(...)`."""
    called = [
        call
        for cell in cells
        if "plot.sliders(" in cell.source
        for call in ast.walk(ast.parse(cell.source))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "plot.sliders"
    ]
    return sum(len(call.keywords) for call in called)


@pytest.mark.timeout(SECONDS + 180)
def test_a_lesson_runs_from_the_menu(page, screenshots):
    """One for all: `make test` runs each cell of each lesson, without a browser."""
    cells = code_cells(LESSONS[0])
    page.open(LESSONS[0], len(cells))
    page.run_all(SECONDS)
    page.browser.save_screenshot(str(screenshots / f"{LESSONS[0]}-window.png"))  # as a learner sees it
    assert page.state()["prompts"] == [f"[{n + 1}]:" for n in range(len(cells))]
    looks_well_and_moves(page, cells, screenshots)


@pytest.mark.timeout(SECONDS + 180)
@pytest.mark.parametrize("name", LESSONS[1:])
def test_a_lesson_shows_its_figures_and_its_widgets_come_to_life(name, page, screenshots):
    """The page shows what the notebook holds; then widgets' cells are run in it, and in its kernel what these need."""
    cells = code_cells(name)
    page.open(name, len(cells))
    assert len(page.sliders()) == 0, "without a kernel a widget is a picture"
    widgets = [at for at, cell in enumerate(cells) if "plot.sliders(" in cell.source or PLACING in cell.source]
    with page.kernel(SECONDS) as run:
        for number in needed([cell.source for cell in cells], widgets):
            page.run_cell(number, SECONDS) if number in widgets else run(cells[number].source)
    looks_well_and_moves(page, cells, screenshots)


@pytest.mark.timeout(SECONDS)
def test_a_lesson_that_is_opened_counts_as_saved_and_saving_it_changes_no_byte(course, page):
    file = course / "lessons" / f"{LESSONS[5]}.ipynb"
    before = file.read_bytes()
    page.open(LESSONS[5], len(code_cells(LESSONS[5])))
    time.sleep(2)  # JupyterLab asks the kernel about itself once it is there, and writes the answer into the lesson
    assert not page.is_changed()
    page.save()
    assert file.read_bytes() == before


@pytest.mark.timeout(SECONDS)
def test_an_answer_is_folded_until_its_cell_is_run(page, screenshots):
    cells = code_cells(LESSONS[5])
    answers = [at for at, cell in enumerate(cells) if "answer" in cell.metadata.get("tags", [])]
    page.open(LESSONS[5], len(cells))
    page.show_all()
    page.browser.save_screenshot(str(screenshots / f"{LESSONS[5]}-folded.png"))
    shown = page.browser.find_element("css selector", ".jp-Notebook").text
    assert len(answers) >= 4
    for at in answers:
        code, output = page.folded(at)
        assert code.startswith("# answer") and output
        assert not [o.text for o in cells[at].outputs if o.output_type == "stream" and o.text[:30] in shown]
    page.show_a_part()
    with page.kernel(SECONDS) as run:
        for number in needed([cell.source for cell in cells], answers[:1]):
            page.run_cell(number, SECONDS) if number == answers[0] else run(cells[number].source)
    assert page.folded(answers[0])[1] is False


@pytest.mark.timeout(SECONDS)
def test_a_lessons_link_to_an_exercise_opens_its_file(page):
    page.open(LESSONS[5], len(code_cells(LESSONS[5])))
    link = page.find("//a[contains(@href, 'e05_exchange.py')]")
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    page.until(30, "the exercise's file", lambda: page.in_front() == "exercises/e05_exchange.py")


def looks_well_and_moves(page, cells, screenshots):
    """All figures are there and in their own size, no label is cut off, and figures follow their widgets."""
    page.show_all()
    if os.environ.get("MPCOURSE_SCREENSHOTS"):  # a picture of so tall a window takes two seconds
        page.browser.save_screenshot(str(screenshots / f"{page.lesson}.png"))
    seen = page.look()
    shown = [cell for cell in cells if "answer" not in cell.metadata.get("tags", [])]  # the others may be folded
    committed = sum(any(kind.startswith("image/") for kind in o.get("data", {})) for c in shown for o in c.outputs)
    assert len(seen["figures"]) >= committed > 0
    assert all(own == shown > 0 for own, shown in seen["figures"]), "a figure is empty, or was shrunk to fit the page"

    assert len(page.sliders()) == sliders_asked(cells) > 0
    assert seen["cut"] == []
    page.show_a_part()
    for slider in page.sliders():
        page.move(slider)
    if any(PLACING in cell.source for cell in cells):
        place_by_hand(page)


@pytest.mark.parametrize(
    "sources, wanted",
    [
        (["import a", "x = 1", "y = 2", "y"], [0, 2, 3]),
        (["import a", "x = 1", "x = 2", "x"], [0, 2, 3]),  # the last one that gives it
        (["import a", "n = 1", "def f():\n    n = 2\n    return m", "m = 3", "f()"], [0, 2, 3, 4]),
        (["import a", "n = 1", "[n for n in a]", "n"], [0, 1, 3]),  # a comprehension's names are its own
        (["import a", "n = 1", "def f(n):\n    return [n for n in range(n)]", "f(2)"], [0, 2, 3]),  # and a function's
        (["import a", "n = 1", "n += 1", "n"], [0, 1, 2, 3]),
        (["import a", "x = !ls", "y = x[0]", "x = 5", "y"], [0, 1, 2, 4]),
        (["import a", "%%writefile scratch/p\nx", "!python scratch/p", "b = 1", "open('scratch/p')"], [0, 1, 2, 4]),
    ],
)  # fmt: skip
def test_what_a_cell_needs_are_the_cells_that_give_its_names_and_files(sources, wanted):
    assert needed(sources, [len(sources) - 1]) == wanted


def place_by_hand(page):
    """Two buttons a stage, then undo and start again: what cannot run says why, what can is drawn, and taken back."""
    forward_0, _, forward_1, *_, undo, _ = page.buttons()
    first = page.picture_of(undo)
    forward_0.click()  # a fifth forward, where a stage has memory for four micro-batches
    page.until(30, "the reason", lambda: "4" in page.said() and "stage 0" in page.said())
    assert page.picture_of(undo) == first and "success" not in forward_0.get_attribute("class")
    assert "success" in forward_1.get_attribute("class")
    forward_1.click()
    page.until(30, "another figure", lambda: page.picture_of(undo) != first)
    assert "makespan" in page.said()
    undo.click()
    page.until(30, "the first figure", lambda: page.picture_of(undo) == first)
    assert not page.state()["complaints"]
