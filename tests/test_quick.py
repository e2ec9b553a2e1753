"""`make quick` takes the tests that are nearest to a change, as far as there is time."""

import json
import os

import pytest

from tests import quick
from tests.jobs import jobs
from tests.quick import BUDGET, chosen, distances


def test_a_change_is_looked_for_by_what_tests_import():
    run, exercises, later = chosen(["mpcourse/pipeline/schedule.py"], {})
    assert "test_schedule.py" in run and "test_readme.py" not in run and not exercises and later


def test_what_is_imported_from_near_comes_first_and_the_rest_is_told():
    seconds = {"test_schedule.py": BUDGET}
    run, _, later = chosen(["mpcourse/pipeline/schedule.py"], seconds)
    assert "test_schedule.py" in [*run, *later] and sum(seconds.get(file, 5.0) for file in run) <= BUDGET


def test_the_answers_to_an_exercise_are_judged_where_its_check_or_they_have_changed():
    for path in (
        "mpcourse/course/check/cases/e03_balance.py",
        "tests/answers/e03_balance.diff",
        "solutions/e03_balance.py",
    ):
        assert chosen([path], {})[1] == {"e03_balance"}


def test_a_program_that_a_test_starts_is_as_near_as_a_module():
    assert distances("tests.test_servers")["tests.programs.servers_truth"] == 1


@pytest.mark.parametrize(
    "path, test",
    [
        ("lessons/src/05_mpi_allreduce.py", "test_lessons.py"),
        ("lessons/05_mpi_allreduce.ipynb", "test_lessons.py"),
        ("README.md", "test_readme.py"),
        ("website/index.md", "test_site.py"),
        ("Makefile", "test_make.py"),
        ("Dockerfile", "test_dockerfile.py"),
    ],
)
def test_a_file_that_no_test_imports_is_looked_for_by_its_name_and_its_folder(path, test):
    run, _, _ = chosen([path], json.loads(quick.SECONDS.read_text()))
    assert test in run


def test_what_a_report_says_is_kept_by_file_and_the_answers_by_exercise(tmp_path, monkeypatch):
    cases = (
        ("tests.test_answers", "test_a_wrong_answer_is_named[e00_hello-no-root]", 1.5),
        ("tests.test_answers", "test_a_right_answer_passes[e00_hello-gather]", 2),
        ("tests.test_answers", "test_an_answer_that_cannot_be_read_is_refused[# %% a-b]", 0.25),
        ("tests.test_split", "test_a", 4),
        ("build.00_start_here", "Cell 1", 8),
    )
    report = tmp_path / "report.xml"
    rows = [f'<testcase classname="{file}" name="{name}" time="{spent}"/>' for file, name, spent in cases]
    report.write_text(f"<s>{''.join(rows)}</s>")
    monkeypatch.setattr(quick, "SECONDS", tmp_path / "seconds.json")
    quick.learn(report)
    learnt = json.loads(quick.SECONDS.read_text())
    assert learnt == {"answers e00_hello": 3.5, "test_answers.py": 0.2, "test_split.py": 4.0}


@pytest.mark.parametrize(
    "cores, gigabytes, expected", [(1, 24, 2), (2, 24, 4), (8, 7, 3), (8, 64, 13), (64, 512, 16), (2, 1, 1)]
)
def test_tests_at_a_time_are_more_than_cores_as_far_as_memory_goes(monkeypatch, tmp_path, cores, gigabytes, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gigabytes << 18}.get)
    assert jobs(tmp_path) == expected
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert jobs(tmp_path) == expected
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert jobs(tmp_path) == min(expected, 4)
    (tmp_path / "memory.max").write_text(f"{4 << 30}\n")
    assert jobs(tmp_path) == min(expected, 2)
