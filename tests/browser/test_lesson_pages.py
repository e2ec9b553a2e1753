"""Lessons in a real browser: JupyterLab as `make lab` opens it, run from the menu, seen, its sliders moved by keys.

Selenium and not Playwright: it is a quarter of the size, and drives any Chromium that comes with a driver, as Debian's
does; Playwright promises to work with the builds that it downloads.
"""

import ast

import nbformat
import pytest

from mpcourse.check.manifest import load_course
from tests.browser.conftest import BUILD
from tests.conftest import ROOT

LESSONS = [lesson.id for lesson in load_course(ROOT).lessons]
SECONDS = 180  # for all cells of a lesson, on a machine that does other things as well


def code_cells(name):
    return [c for c in nbformat.reads(BUILD.judged(name)[1], as_version=4).cells if c.cell_type == "code"]


def sliders_asked(name):
    """How many values the lesson lets a reader choose: the named arguments of its `plot.sliders(...)`."""
    called = [
        call
        for cell in code_cells(name)
        if "plot.sliders(" in cell.source
        for call in ast.walk(ast.parse(cell.source))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "plot.sliders"
    ]
    return sum(len(call.keywords) for call in called)


@pytest.mark.timeout(SECONDS + 180)
@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_runs_shows_its_figures_and_follows_its_sliders(name, page, screenshots):
    cells = code_cells(name)
    page.open(name, len(cells))
    page.run_all(SECONDS)
    page.browser.save_screenshot(str(screenshots / f"{name}-window.png"))  # as a learner sees it; the whole comes last
    page.show_all()
    seen = page.look()
    assert seen["prompts"] == [f"[{n + 1}]:" for n in range(len(cells))]
    committed = sum(any(kind.startswith("image/") for kind in o.get("data", {})) for c in cells for o in c.outputs)
    assert len(seen["figures"]) >= committed > 0
    assert all(own == shown > 0 for own, shown in seen["figures"]), "a figure is empty, or was shrunk to fit the page"

    assert len(page.sliders()) == sliders_asked(name)
    assert seen["cut"] == []
    for slider in page.sliders():
        page.move(slider)
    if any("plot.place_schedule(" in cell.source for cell in cells):
        place_by_hand(page)


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
    assert not page.look()["complaints"]
