"""What is kept of a learner's checks, and how it is shown: nothing is lost, and one misconception stays one."""

import json
import os
import re
import subprocess
from dataclasses import replace

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from rich.console import Console

from mpcourse.common.errors import UserError
from mpcourse.course.check import progress
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.misconceptions import is_same, names_one
from mpcourse.course.check.progress import LessonProgress, Progress, by_lesson, duration, summary
from mpcourse.course.check.show_progress import as_html, show_list, show_progress
from mpcourse.course.check.verdict import Verdict
from mpcourse.course.cli import main
from mpcourse.course.learner import panel
from tests.conftest import ROOT, python
from tests.explanations import explanations

COUNT = "Each rank divides by its own count, of 3 rows."
ORDER = "Each of them receives before it sends."


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Return the course, with nothing done yet."""
    monkeypatch.setenv("MPCOURSE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MPCOURSE_ROOT", str(ROOT))
    return load_course()


@pytest.fixture
def check(course):
    """Note a verdict on an exercise: one that passed, or one with this sentence."""

    def noted(name, why=None, kind="wrong answer"):
        verdict = Verdict(name, "passed" if why is None else kind, 2, "rank 0", why=why or "")
        Progress(course).note_check(course.find(name), verdict)

    return noted


def met_in(course, name):
    return Progress(course).of(course.find(name)).met


def refused(capsys, *arguments):
    """Return what `mpcourse ARGUMENTS` says: one line, with exit status 2."""
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    said = capsys.readouterr()
    assert ended.value.code == 2 and not said.out and said.err.count("\n") == 1, said
    return said.err


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    said = capsys.readouterr()
    assert ended.value.code == 0 and not said.err, said
    return said.out


def test_a_misconception_is_counted_until_the_exercise_passes_and_is_open_again_when_it_comes_back(course, check):
    for why in (COUNT, ORDER, COUNT.replace("3", "17")):
        check("e00", why)
    count, order = met_in(course, "e00")
    assert (count.times, order.times) == (2, 1) and not count.mended_at and not order.mended_at
    assert count.why == COUNT.replace("3", "17"), "the words are those of the last verdict"
    check("e00")
    assert all(met.mended_at for met in met_in(course, "e00"))
    first = met_in(course, "e00")[0]
    check("e00", COUNT)
    count, order = met_in(course, "e00")
    assert (count.times, count.met_at, count.mended_at) == (3, first.met_at, None) and order.mended_at
    check("e01", COUNT)
    assert [met.times for met in met_in(course, "e01")] == [1], "another exercise's is another one"


def test_another_verdict_alone_mends_nothing(course, check):
    check("e00", COUNT)
    check("e00", ORDER)
    assert [met.mended_at for met in met_in(course, "e00")] == [None, None]


def test_only_a_verdict_with_a_sentence_on_what_was_understood_names_a_misconception():
    wrong = Verdict("e00_hello", "wrong answer", 2, "rank 0", why=COUNT)
    assert names_one(wrong) and not names_one(replace(wrong, why=""))
    for kind in ("not written yet", "syntax error", "out of time", "not started", "fault of the checker"):
        assert not names_one(replace(wrong, kind=kind)), kind


@pytest.mark.parametrize(
    "one, other",
    [
        ("Rank 0 receives from itself.", "Rank 12 receives from itself."),
        ("Rank 1 has the sum: 0.5 of 3 rows.", "Ranks 1, 2 and 3 have the sum: -1.25e-05 of 1 row."),
        ("It must be made by all, and rank 1 did not.", "It must be made by all, and ranks 1, 2, ... did not."),
        ("x has 1 micro-batch.", "x has 4 micro-batches."),
        ("The order is [0, 2, 1].", "The order is [[3], [1, 0]]."),
        ("The shape is (3, 4).", "The shape is (5,)."),
        ("Sent with tag 1 (line 3: `comm.Send(x, 1)`).", "Sent with tag 2 (line 14: `comm.Isend(y, 1)`)."),
        ("Stage 1 is at F0.", "Stage 2 is at F13."),
    ],
)
def test_sentences_that_differ_in_values_are_one_misconception(one, other):
    assert is_same(("deadlock", one), ("deadlock", other))
    assert not is_same(("deadlock", one), ("wrong answer", other))


def test_no_two_explanations_of_the_checker_are_taken_for_one_but_those_that_name_another_device():
    cases = (ROOT / "mpcourse" / "course" / "check" / "cases").glob("*.py")
    texts = sorted({found.text for case in cases for found in explanations(case)})
    for at, one in enumerate(texts):
        for other in texts[at + 1 :]:
            if one[:12] == other[:12] and is_same(("", one), ("", other)):  # a beginning is kept, but for its values
                assert re.sub(r"device\d", "device", one) == re.sub(r"device\d", "device", other)


def test_checks_that_end_at_once_lose_nothing(course, tmp_path):
    program = (
        "import sys\n"
        "from mpcourse.course.check.manifest import load_course\n"
        "from mpcourse.course.check.progress import Progress\n"
        "from mpcourse.course.check.verdict import Verdict\n"
        "course = load_course()\n"
        "progress = Progress(course)\n"  # what it has read is old when it writes
        "for name in sys.argv[1:]:\n"
        "    for _ in range(20):\n"
        f"        progress.note_check(course.find(name), Verdict(name, 'wrong answer', 2, '', why={COUNT!r}))\n"
    )
    environment = {**os.environ, "MPCOURSE_HOME": str(tmp_path / "home")}
    both = ["e00_hello", "e01_memory"]
    orders = [both, both[::-1], ["e02_copy"]]
    begun = [subprocess.Popen(python("-c", program, *names), env=environment) for names in orders]
    assert [each.wait(60) for each in begun] == [0, 0, 0]
    kept = Progress(course)
    for name, checks in (("e00", 40), ("e01", 40), ("e02_copy", 20)):
        exercise = course.find(name)
        assert kept.of(exercise).attempts == checks
        assert [met.times for met in kept.of(exercise).met] == [checks]


def test_what_another_mpcourse_keeps_is_passed_over(course, check, tmp_path):
    row = {"attempts": 4, "passed_at": "2026-01-01T10:00:00+01:00", "hints": 2, "stars": 3}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "progress.json").write_text(json.dumps({"e00_hello": row, "e99_new": {"attempts": 1}}))
    check("e00", COUNT)
    record = Progress(course).of(course.find("e00"))
    assert (record.attempts, record.hints, record.tried_at) == (5, 2, None), "when it was tried first is not known"
    assert "e99_new" in json.loads((tmp_path / "home" / "progress.json").read_text())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"e00_hello": 3}',
        '{"e00_hello": {"attempts": "many", "tried_at": 3}}',
        "[" * 100000,
        "\x00",
        '{"e00_hello": {"tried_at": "yesterday", "passed_at": "yesterday"}}',
        '{"e00_hello": {"met": [{}], "hints": 1.5}}',
        '{"e00_hello": {"met": [{"kind": "a", "why": "b", "headline": "c", "met_at": "0"}], "spoiled": 0}}',
    ],
)
def test_a_damaged_file_is_named_in_one_line_and_not_overwritten(course, capsys, tmp_path, text):
    name = "progress.json"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / name).write_text(text)
    for command in (["list"], ["progress"], ["progress", "--json"], ["progress", "--html", tmp_path / "p.html"]):
        assert f"{name} is damaged" in refused(capsys, *command)
    with pytest.raises(UserError, match="is damaged"):
        Progress(course)
    panel.show("00")
    assert re.fullmatch(r"progress is not shown: .* is damaged: .*\n", capsys.readouterr().out)
    assert (tmp_path / "home" / name).read_text() == text and not (tmp_path / "p.html").exists()


@pytest.mark.parametrize("width, colours", [(60, False), (60, True), (120, True)])
def test_the_list_has_a_bar_for_each_lesson_and_fits_a_narrow_terminal(course, check, width, colours):
    check("e00")
    out = Console(width=width, force_terminal=colours, color_system="standard" if colours else None, record=True)
    with out.capture() as shown:
        show_list(course, Progress(course), out)
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown.get()).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert all(re.search(rf"\b{exercise.name}\b", text) for exercise in course.exercises), "a name is cut"
    assert re.search(r"\blesson\W+min\W+level\W+tries\b", text), "a heading is cut"
    full, empty = ("━", "━") if colours else ("#", ".")
    assert re.search(rf"^00 Start here +{full}{{16}} +1 of 1 done", text, re.MULTILINE)
    assert re.search(rf"^07 Synchronous or asynchronous +{empty}{{16}} +0 of 2 done", text, re.MULTILINE)
    assert re.search(rf"^all +.* 1 of {len(course.exercises)} done", text, re.MULTILINE)


def test_the_lists_json_has_what_it_had_and_what_was_met(course, check, capsys):
    check("e00", COUNT)
    row = json.loads(run(capsys, "list", "--json"))[0]
    assert (row["exercise"], row["lesson"], row["minutes"], row["difficulty"]) == ("e00_hello", "00_start_here", 10, 1)
    assert (row["passed"], row["passed_at"], row["tries"]) == (False, None, 1)
    assert row["misconceptions"][0]["why"] == COUNT and row["tried_at"]


def test_progress_tells_by_lesson_what_is_done_and_open_met_and_mended(course, check, monkeypatch):
    checks = [("e00", ORDER, "deadlock"), ("e00", ORDER, "deadlock"), ("e00",), ("e02_copy", COUNT)]
    for minute, each in zip((1, 9, 16, 17), checks, strict=True):
        monkeypatch.setattr(progress, "now", lambda minute=minute: f"2026-11-03T10:{minute:02}:00+00:00")
        check(*each)
    out = Console(width=100)
    with out.capture() as shown:
        show_progress(course, Progress(course), out)
    text = " ".join(shown.get().split())
    assert (
        f"1 of {len(course.exercises)} exercises done. You began on 3 November 2026; the last one passed on 3 Nov"
        in text
        and "4 checks and 0 hints so far." in text
    )
    assert "You met 2 misconceptions and mended 1." in text
    assert re.search(r"done e00_hello 3 checks, passed 15 minutes after the first met on [^;]*, twice; mended on", text)
    assert f"(deadlock) {ORDER}" in text and "open e02_parallel_mlp" in text
    assert re.search(r"begun e02_copy 1 check met on [^;]*; not mended yet \(wrong answer\) Each rank", text)
    assert "not begun: 01 One device, 03" in text and "next: e01_memory" in text


def test_the_json_of_progress_counts_as_the_page_does(course, check, capsys, tmp_path):
    check("e02_copy", COUNT)
    check("e02_copy")
    shown = json.loads(run(capsys, "progress", "--json"))
    copy = next(row for row in shown["exercises"] if row["exercise"] == "e02_copy")
    assert (copy["lesson"], copy["state"], copy["tries"]) == ("02_split_with_copy", "done", 2)
    assert copy["misconceptions"][0]["mended_at"] == copy["passed_at"]
    assert "shows your progress" in run(capsys, "progress", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert shown["summary"][0] == f"1 of {len(course.exercises)} exercises done."
    assert all(f"<li>{line}</li>" in page for line in shown["summary"])


def test_the_page_holds_no_script_and_no_mark_up_of_others(course, check):
    check("e00", "<script>alert(1)</script> & more")
    check("e00")
    check("e02_copy", "<b>open</b>")
    text = as_html(by_lesson(course, Progress(course)))
    assert "<script" not in text and "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text
    assert "&lt;b&gt;open&lt;/b&gt;" in text and "http" not in text and 'aria-label="100% done"' in text
    assert text.index("mended on") < text.index("02 Split with copy") < text.index("<details open>")


def test_bad_input_is_one_line(course, capsys, tmp_path, monkeypatch):
    assert "cannot be written" in refused(capsys, "progress", "--html", tmp_path / "nowhere" / "p.html")
    assert "cannot be written" in refused(capsys, "progress", "--html", tmp_path)
    assert "--json" in refused(capsys, "progress", "--json", "--html", tmp_path / "p.html")
    assert not list(tmp_path.glob("*.html"))
    monkeypatch.setenv("MPCOURSE_ROOT", str(tmp_path))
    assert "holds no exercises/manifest.toml" in refused(capsys, "progress")


def test_a_check_keeps_what_its_verdict_says_and_a_check_of_another_file_keeps_nothing(small_course, cli, tmp_path):
    wrong = 'import numpy as np\n\n\ndef mean(comm, x):\n    """Mean."""\n    return np.empty(0)[0]\n'
    borrowed = tmp_path / "e90_mean.py"
    for file in (borrowed, small_course / "exercises" / "e90_mean.py"):
        file.write_text(wrong)
    assert cli("check", "e90", "--file", borrowed).returncode == 1
    assert not (tmp_path / "home").exists()
    assert cli("check", "e90").returncode == 1
    (row,) = json.loads(cli("list", "--json").stdout)
    (met,) = row["misconceptions"]
    assert met["kind"] == "exception" and met["why"].startswith("An empty array") and "line 6" in met["headline"]
    assert met["mended_at"] is None and row["tries"] == 1


def test_without_a_check_the_panel_has_two_lines_and_grows_with_what_is_met(check, capsys):
    panel.show("02")
    text = "02 Split with copy: 0 of 3 exercises done\ne02_copy open, e02_parallel_mlp open, e02_column_row open\n"
    assert capsys.readouterr().out == text
    check("e02_copy", COUNT)
    panel.show("02_split_with_copy")
    shown = capsys.readouterr().out
    assert "e02_copy begun, 1 check" in shown and f"e02_copy: {COUNT} (met on" in shown and "not mended yet" in shown


def test_in_a_notebook_the_panel_is_html_and_text(check):
    check("e02_copy", "<i>why</i>")
    InteractiveShell.instance()
    try:
        with capture_output() as captured:
            panel.show("02")
    finally:
        InteractiveShell.clear_instance()
    (shown,) = captured.outputs
    assert set(shown.data) == {"text/plain", "text/html"} and shown.data["text/plain"].startswith(
        "02 Split with copy: 0"
    )
    html = shown.data["text/html"]
    assert "&lt;i&gt;why&lt;/i&gt;" in html and "<details open>" in html and "var(--jp-" in html
    assert "<script" not in html and "<style" not in html


def test_without_a_name_the_panel_shows_the_notebooks_lesson_else_all(course, capsys, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", str(ROOT / "lessons" / "05_mpi_allreduce.ipynb"))
    panel.show()
    assert capsys.readouterr().out.startswith("05 All-reduce by hand: 0 of 3")
    monkeypatch.setenv("JPY_SESSION_NAME", "Untitled.ipynb")
    panel.show()
    assert len(capsys.readouterr().out.splitlines()) == len(by_lesson(course, Progress(course)))


def test_the_panel_says_in_one_line_what_keeps_it_from_being_shown(course, capsys, monkeypatch, tmp_path):
    def broken(*args):
        raise KeyError("a fault of ours")

    def shown(lesson=None):
        panel.show(lesson)
        text = capsys.readouterr().out
        assert text.count("\n") == 1 and text.startswith("progress is not shown: ")
        return text

    assert "there is no lesson '77'" in shown("77") and "there is no lesson ''" in shown("")
    assert "no lesson '0'" in shown("0")  # there are several
    with monkeypatch.context() as patch:
        patch.setattr(panel, "by_lesson", broken)
        assert "KeyError" in shown("02")
    monkeypatch.setenv("MPCOURSE_ROOT", str(tmp_path))
    assert "holds no exercises/manifest.toml" in shown("02")


def test_durations_are_told_in_the_largest_unit_of_which_there_are_two():
    told = [duration(seconds) for seconds in (-3, 1, 119, 120, 7199, 7200, 100_000, 172_800, 10**7)]
    assert told == ["0 seconds", "1 second", "119 seconds", "2 minutes", "120 minutes", "2 hours"] + [
        "28 hours", "2 days", "116 days"
    ]  # fmt: skip


def test_a_summary_begins_with_one_line_and_grows(course, check):
    def lessons():
        return by_lesson(course, Progress(course))

    first = lessons()[0]
    assert summary(lessons()) == [f"0 of {len(course.exercises)} exercises done."]
    assert summary([LessonProgress(first.lesson, first.rows[:1])]) == ["0 of 1 exercise done."]
    check("e00", COUNT)
    _done, began, checks, met = summary(lessons())
    assert began.startswith("You began on ") and "passed" not in began
    assert (checks, met) == ("1 check and 0 hints so far.", "You met 1 misconception and mended 0.")
