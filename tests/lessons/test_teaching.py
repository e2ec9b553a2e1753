"""docs/teaching.md: plans name the course's exercises with their minutes; slides begin at headings."""

import re

import nbformat
import pytest

from mpcourse.course.check.manifest import load_course
from tests.conftest import ROOT, load_script

TEACHING = (ROOT / "docs/teaching.md").read_text(encoding="utf-8")
MINUTES = {exercise.name: exercise.minutes for exercise in load_course(ROOT).exercises}
LESSONS = {exercise.name: exercise.lesson[:2] for exercise in load_course(ROOT).exercises}


@pytest.mark.parametrize("weeks", [4, 8, 19])
def test_a_plan_has_its_weeks_and_their_minutes(weeks):
    plan = TEACHING.split(f"### {weeks} weeks")[1].split("###")[0].split("## Grading")[0]
    rows = re.findall(r"^\| (\d+) \| ([\d, ]+) \| (.*) \| (\d+) \|$", plan, re.MULTILINE)
    assert [int(row[0]) for row in rows] == list(range(1, weeks + 1))
    for _, lessons, exercises, minutes in rows:
        names = re.findall(r"`(\w+)`", exercises)
        assert sum(MINUTES[name] for name in names) == int(minutes)
        assert {LESSONS[name] for name in names} <= set(lessons.split(", "))
    if weeks == 19:
        assert sorted(re.findall(r"`(e\d\d_\w+)`", " ".join(row[2] for row in rows))) == sorted(MINUTES)


def test_what_wrong_answers_reveal_is_told_of_every_exercise():
    table = TEACHING.split("## What wrong answers tell")[1].split("## Slides")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(MINUTES)


def test_slides_begin_at_headings_and_below_them_at_texts_after_code():
    script = load_script(ROOT / "tools" / "slides.py")
    v4 = nbformat.v4
    texts = [v4.new_markdown_cell(text) for text in ("# Title", "More.", "## Part")]
    cells = [*texts[:2], v4.new_code_cell("1"), v4.new_markdown_cell("Then."), v4.new_code_cell("2"), texts[2]]
    kinds = [c.metadata.slideshow.slide_type for c in script.with_slides(v4.new_notebook(cells=cells)).cells]
    assert kinds == ["slide", "-", "-", "subslide", "-", "slide"]


def test_a_lesson_becomes_as_many_slides_as_it_has_headings():
    script = load_script(ROOT / "tools" / "slides.py")
    lesson = ROOT / "lessons" / "00_start_here.ipynb"
    headings = sum(c.cell_type == "markdown" and c.source.startswith("#") for c in nbformat.read(lesson, 4).cells)
    page = script.slides(lesson)
    assert headings > 3 and len(re.findall(r"<section[^>]*>\s*<section", page)) == headings
