"""README: its table is the manifest's, its picture a real one, its commands exist."""

import re
import subprocess

import nbformat
import pytest

from mpcourse.course.check.manifest import load_course
from mpcourse.course.cli import _parser
from tests.conftest import ROOT, load_script

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def readme():
    return load_script(ROOT / "tools" / "readme.py")


def test_the_table_is_the_manifests(readme):
    assert readme.with_table(README, load_course(ROOT)) == README, "run `make lessons` and commit the result"


def test_a_readme_without_its_markers_is_refused(readme):
    with pytest.raises(ValueError, match="once"):
        readme.with_table("# nothing", load_course(ROOT))


def test_lesson_times_are_the_sum_of_their_cells():
    report = """<testsuites><testsuite><testcase classname="build.01_one_device.ipynb" name="Cell 0" time="2.5" />
    <testcase classname="00_start_here.ipynb" name="Cell 0" time="1.25" />
    <testcase classname="01_one_device.ipynb" name="Cell 1" time="30" /></testsuite></testsuites>"""
    times = load_script(ROOT / "tools" / "times.py")
    assert times.lesson_seconds(report) == {"00_start_here": 1.25, "01_one_device": 32.5}


def test_the_picture_shows_the_verdict_of_today(readme):
    """Its words, that is: colours and positions are rich's business."""

    def words(svg):
        return re.findall(r"[\w()=`.]+", re.sub(r"<style>.*?</style>|<[^>]+>|&#160;", " ", svg, flags=re.DOTALL))

    assert words(readme.PICTURE.read_text()) == words(readme.draw_verdict(load_course(ROOT)))


def test_the_drawing_of_a_schedule_is_the_one_of_today(readme):
    """Its numbers and words, that is: lines and positions are matplotlib's business."""
    committed, drawn = (
        re.findall(r">([^<>]+)</text>", svg) for svg in (readme.SCHEDULE.read_text(), readme.draw_schedule())
    )
    assert committed == drawn and {"stage 0", "stage 3", "7", "bubble"} <= set(drawn)


def test_links_point_to_files_that_exist():
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_published_figures_stand_in_the_lessons_they_lead_to():
    table = (ROOT / "docs/published.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| \[\d+\]\(\.\./([^)]+)\) \|$", table, re.MULTILINE)
    assert len(rows) == table.count("](../lessons/") >= 11
    for source, figures, lesson in rows:
        cells = nbformat.read(ROOT / lesson, as_version=4).cells
        printed = [o.get("text", "") for c in cells for o in c.get("outputs", [])]
        said = " ".join([c.source for c in cells] + printed)
        for figure in re.findall(r"\d+(?: \d{3})*(?:\.\d+)?", figures):
            # "14 637" in prose may be 14637 where a program prints it
            ways = {figure, figure.replace(" ", ""), figure.replace(" ", ",")}
            assert any(re.search(rf"(?<![\d.]){re.escape(way)}(?!\d)", said) for way in ways), (source, figure, lesson)


def test_every_command_that_it_names_exists():
    commands = next(a for a in _parser()._actions if hasattr(a, "choices") and a.choices).choices
    named = set(re.findall(r"mpcourse (doctor|list|check|hint|reset|solution|next|watch|lab|bench)", README))
    assert named and named <= set(commands)
    targets = set(re.findall(r"`make (\w+)", README)) | set(re.findall(r"^make (\w+)", README, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets), targets


def test_its_way_to_update_keeps_answers_and_a_learners_lesson(tmp_path):
    lesson, exercise = "lessons/00_start_here.ipynb", "exercises/e00_hello.py"
    course, clone = tmp_path / "course", tmp_path / "clone"
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")

    def git(folder, *arguments):
        subprocess.run(["git", "-C", folder, *author, *arguments], check=True, capture_output=True)

    def write(folder, lesson_says, stub_says, answer):
        for name, text in ((lesson, lesson_says), (exercise, f"{stub_says}\n\n\n\n\n{answer}")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")

    write(course, "first", "a stub", "raise")
    git(course, "init", "-q")
    git(course, "add", ".")
    git(course, "commit", "-q", "-m", "one")
    git(tmp_path, "clone", "-q", course, clone)
    write(course, "second", "a better stub", "raise")
    git(course, "commit", "-q", "-a", "-m", "two")
    write(clone, "as the learner left it", "a stub", "return 1")
    commands = re.search(r"To update:\n\n```\n(.*?)```", README, re.DOTALL)[1]
    subprocess.run(["sh", "-e", "-c", commands], cwd=clone, check=True, capture_output=True)
    assert (clone / lesson).read_text() == "second\n"
    assert (clone / exercise).read_text() == "a better stub\n\n\n\n\nreturn 1\n"
    assert (clone / "lessons" / "mine_00.ipynb").read_text() == "as the learner left it\n"
