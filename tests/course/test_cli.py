"""The command line: what it prints, what it keeps, and its one-line errors."""

import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from mpcourse.common import launch
from mpcourse.common.errors import UserError
from mpcourse.course.bench import NAMES, benchmark
from mpcourse.course.check import monitor, supervisor
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.cli import main
from mpcourse.course.forkserver import ADDRESS, ForkServer, offered
from tests.conftest import ROOT, imported_by


@pytest.fixture
def course(small_course, cli):
    """Return the small course, its exercise written as a stub; progress is in the test's own folder."""
    assert cli("reset", "e90").returncode == 0
    return small_course


def solve(course):
    shutil.copy(course / "solutions" / "e90_mean.py", course / "exercises" / "e90_mean.py")


def assert_one_line_error(done, *phrases):
    """`done` ended with status 2 and said one line, without a traceback."""
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("mpcourse: "), done.stderr
    for phrase in phrases:
        assert phrase in lines[0]


def test_list_shows_what_is_done(cli, course):
    assert "0 of 1 done" in cli("list").stdout
    solve(course)
    assert cli("check", "e90").returncode == 0
    shown = cli("list").stdout
    assert "1 of 1 done" in shown and "done" in shown and "e90_mean" in shown
    (row,) = json.loads(cli("list", "--json").stdout)
    assert row["exercise"] == "e90_mean" and row["passed"] and row["tries"] == 1


def test_an_untouched_exercise_is_told_so_where_the_solutions_were_taken_away(cli, course):
    shutil.rmtree(course / "solutions")
    done = cli("check", "e90")
    said = " ".join(done.stdout.split())  # where lines break depends on the path
    assert done.returncode == 1 and "e90_mean: not written yet" in said and "is as it was at line" in said


def test_check_without_a_name_takes_the_next_exercise(cli, course):
    done = cli("check")
    assert done.returncode == 1 and "e90_mean: not written yet" in done.stdout
    assert "(exercises/e90_mean.py)" in cli("check", cwd=course).stdout
    solve(course)
    passed = cli("check")
    assert passed.returncode == 0
    assert "mpcourse solution e90" in passed.stdout and "all exercises have passed" in passed.stdout
    assert "all exercises have passed" in cli("check").stdout


def test_progress_survives_a_reset(cli, course):
    solve(course)
    cli("check", "e90")
    done = cli("reset", "e90")
    assert done.returncode == 0 and "Your text is in" in done.stdout
    assert json.loads(cli("list", "--json").stdout)[0]["passed"]
    assert json.loads(cli("next", "--json").stdout)["exercise"] is None


def test_next_names_lesson_file_and_command(cli):
    shown = cli("next").stdout
    assert (
        "lessons/00_start_here.ipynb" in shown and "exercises/e00_hello.py" in shown and "mpcourse check e00" in shown
    )


def test_hints_come_one_by_one_and_stay(cli):
    first, second, third, fourth = (cli("hint", "e00", "--json") for _ in range(4))
    counts = [len(json.loads(done.stdout)["hints"]) for done in (first, second, third, fourth)]
    assert counts == [1, 2, 3, 3]
    assert "--spoil" in cli("hint", "e00").stdout


def test_the_solution_is_shown_after_passing_or_on_demand(cli, course):
    assert_one_line_error(cli("solution", "e90"), "has not passed yet", "--spoil")
    shown = cli("solution", "e90", "--spoil").stdout
    assert "comm.allreduce" in shown and "# solution:" not in shown
    solve(course)
    cli("check", "e90")
    assert "comm.allreduce" in cli("solution", "e90").stdout


@pytest.mark.parametrize(
    "text", ["x = " + "-" * 100_000 + "1\n", "x = " + "[0]" * 50_000 + "\n", "x = 1" + "+1" * 99_999 + "\n"]
)
def test_a_file_that_python_cannot_compile_for_its_depth_is_a_syntax_error(cli, course, tmp_path, text):
    file = tmp_path / "e90_mean.py"
    file.write_text(text)
    done = cli("check", "e90", "--file", file)
    assert done.returncode == 1 and "nested too deep" in done.stdout and not done.stderr


def test_a_file_that_is_named_like_a_library_hides_none(cli, course, tmp_path):
    file = tmp_path / "wave.py"  # of the standard library, and imported by nothing before
    text = (course / "solutions" / "e90_mean.py").read_text()
    file.write_text(
        text.replace('"""', '"""\nimport wave\n\nwave.open\n', 2).replace('"""\nimport wave\n\nwave.open\n', '"""', 1)
    )
    done = cli("check", "e90", "--file", file)
    assert "import wave" in file.read_text() and done.returncode == 0, done.stdout + done.stderr


def test_a_link_to_itself_and_a_full_device_are_one_line(cli, course, tmp_path):
    link = tmp_path / "e90_mean.py"
    link.symlink_to(link)
    assert_one_line_error(cli("check", link), "leads back to itself")
    if os.path.exists("/dev/full"):
        done = cli("check", "e90", "--file", course / "solutions" / "e90_mean.py", "--junit", "/dev/full")
        assert done.returncode == 2 and "No space left" in done.stderr and "Traceback" not in done.stderr


def test_json_and_junit_are_for_teachers(cli, course, tmp_path):
    done = cli("check", "--all", "--json", "--junit", tmp_path / "report.xml")
    (verdict,) = json.loads(done.stdout)
    assert done.returncode == 1 and verdict["passed"] is False and verdict["kind"] == "not written yet"
    assert verdict["file"].endswith("e90_mean.py")
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert suite.get("tests") == suite.get("failures") == "1"
    assert suite.find("testcase/failure").get("type") == "not written yet"


def test_a_report_that_cannot_be_written_is_known_before_anything_is_checked(cli, course, tmp_path):
    done = cli("check", "--all", "--junit", tmp_path / "nowhere" / "report.xml")
    assert_one_line_error(done, "report.xml cannot be written")
    assert done.stdout == ""
    refused = cli("check", "e90", "-np", "0", "--junit", tmp_path / "report.xml")
    assert refused.returncode == 2 and not (tmp_path / "report.xml").exists()


@pytest.mark.skipif(not offered(), reason="this system has no fork server")
def test_several_exercises_share_a_fork_server(course, monkeypatch, capsys):
    """Where there is none already: to start one takes most of a check's time."""
    begun = []

    class Counted(ForkServer):
        def __init__(self, modules, environment):
            begun.append(modules)
            super().__init__(modules, environment)

    monkeypatch.setattr(supervisor, "ForkServer", Counted)
    monkeypatch.setenv(ADDRESS, "")
    solve(course)
    with pytest.raises(SystemExit) as end:
        main(["check", "e90", "e90"])
    assert end.value.code == 0
    assert capsys.readouterr().out.count("e90_mean passed") == 2
    assert [modules.count("e90_cases") for modules in begun] == [2]


def test_what_has_passed_is_followed_by_what_is_next(cli, course, tmp_path):
    manifest = course / "exercises" / "manifest.toml"
    table = manifest.read_text()
    manifest.write_text(table + table[table.index("[[exercise]]") :].replace("e90_mean", "e91_more"))
    solve(course)
    shown = cli("check", "e90").stdout
    assert "mpcourse solution e90" in shown and "next: e91_more, see `mpcourse next`" in shown
    assert "next:" not in cli("check", "e90", "--file", course / "solutions" / "e90_mean.py").stdout


def test_next_is_what_follows_the_exercise_that_passed_last_and_then_what_was_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCOURSE_HOME", str(tmp_path))
    course = load_course()
    order = [e.name for e in course.exercises]
    fourth = order.index("e04_gpipe")

    def next_after(**passed):
        rows = {name: {"passed_at": moment} for name, moment in passed.items()}
        (tmp_path / "progress.json").write_text(json.dumps(rows))
        upcoming = Progress(course).next(course)
        return upcoming and upcoming.name

    assert next_after() == order[0]
    assert next_after(e04_gpipe="2026-01-01T10:00:00+01:00") == order[fourth + 1]
    # Times in two zones: the second is the later one. What has passed already is left out.
    times = {"e04_gpipe": "2026-01-01T10:00:00+01:00", "e00_hello": "2026-01-01T09:30:00+00:00"}
    assert next_after(**times) == order[1]
    assert next_after(**times, **{order[1]: "2026-01-01T09:40:00+00:00"}) == order[2]
    assert next_after(**{name: times["e04_gpipe"] for name in order[fourth:]}) == order[0]
    assert next_after(**dict.fromkeys(order, times["e04_gpipe"])) is None
    assert next_after(**dict.fromkeys(order[:2], times["e04_gpipe"])) == order[2]
    with pytest.raises(UserError, match="is damaged"):
        next_after(e00_hello="yesterday")


def test_a_copy_under_a_longer_name_is_known_as_its_exercise(cli, course, tmp_path, mpirun):
    mine = tmp_path / "e90_mean_mine.py"
    shutil.copy(course / "solutions" / "e90_mean.py", mine)
    assert "e90_mean passed with 2 ranks" in cli("check", mine).stdout
    done = mpirun(2, mine)
    assert done.returncode == 0 and "e90_mean passed with 2 ranks" in done.stdout
    assert_one_line_error(cli("check", tmp_path / "mine.py"), "a file's name begins with its exercise's")


def test_checking_another_file_leaves_progress_alone(cli, course):
    done = cli("check", "e90", "--file", course / "solutions" / "e90_mean.py")
    assert done.returncode == 0
    assert not json.loads(cli("list", "--json").stdout)[0]["passed"]


def test_watch_checks_again_on_save_and_ends_when_it_passes(course, tmp_path):
    environment = {**os.environ, "MPCOURSE_HOME": str(tmp_path / "home")}
    watching = subprocess.Popen(
        [sys.executable, "-u", "-m", "mpcourse.course.cli", "watch", "e90"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        seen = ""
        while "not written yet" not in seen:
            line = watching.stdout.readline()
            assert line, "watch ended too early"
            seen += line
        solve(course)
        rest, _ = watching.communicate(timeout=20)
    finally:
        watching.kill()
    assert watching.returncode == 0 and "e90_mean passed" in rest


def test_watch_is_ended_by_ctrl_c_without_a_traceback(course, tmp_path):
    environment = {**os.environ, "MPCOURSE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-u", "-m", "mpcourse.course.cli", "watch", "e90"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    while "not written yet" not in watching.stdout.readline():
        pass
    time.sleep(0.5)
    watching.send_signal(signal.SIGINT)
    rest, _ = watching.communicate(timeout=10)
    assert watching.returncode == 130 and "Traceback" not in rest


def test_an_unknown_exercise_suggests_a_near_one(cli):
    assert_one_line_error(cli("check", "nosuch"), "no exercise 'nosuch'", "mpcourse list")
    assert_one_line_error(cli("check", "e00_helo"), "did you mean e00_hello?")


@pytest.mark.parametrize("number", ["0", "-1", "999"])
def test_an_impossible_number_of_ranks_is_refused(cli, number):
    assert_one_line_error(cli("check", "e00", "-np", number), f"-np {number}", "between 1 and 32")


@pytest.mark.parametrize("arguments", [["check", "e00", "-np", "two"], ["nosuch"], ["hint"], ["list", "--nosuch"]])
def test_a_wrong_command_line_is_one_line(cli, arguments):
    assert_one_line_error(cli(*arguments), "--help")


def test_no_command_lists_the_commands(cli):
    done = cli()
    assert done.returncode == 2
    assert all(f"  {name} " in done.stderr for name in ("doctor", "list", "check", "hint", "next", "lab"))


def test_no_mpirun_is_one_line(cli, tmp_path):
    assert_one_line_error(
        cli("check", "e00", env={"MPCOURSE_MPIRUN": str(tmp_path / "mpirun")}), "MPCOURSE_MPIRUN", "unset"
    )


def test_no_mpirun_anywhere_is_one_line(tmp_path, monkeypatch, capsys):
    from mpcourse.course import cli as command_line

    monkeypatch.setenv("MPCOURSE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(launch, "sys", SimpleNamespace(executable=str(tmp_path / "python")))
    with pytest.raises(SystemExit) as ended:
        command_line.main(["check", "e00"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "mpirun was not found" in said and "make setup" in said


def test_a_foreign_mpirun_is_named_as_a_mismatch(cli, tmp_path):
    fake = tmp_path / "mpirun"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 5.0.11" && exit\n'
        'while [ "$1" != -np ]; do shift; done\nshift 2\n"$@" &\n"$@" &\nwait\n'
    )
    fake.chmod(0o755)
    done = cli("check", "e00", "-np", "2", env={"MPCOURSE_MPIRUN": str(fake)})
    assert_one_line_error(done, "2 ranks, but each says that it is one of 1", "mpcourse doctor")


def test_a_folder_that_cannot_be_written_is_one_line(cli, tmp_path):
    (tmp_path / "file").write_text("")
    for command in (["check", "e00"], ["hint", "e00"]):
        assert_one_line_error(cli(*command, env={"MPCOURSE_HOME": str(tmp_path / "file" / "x")}), "MPCOURSE_HOME")


def test_a_read_only_clone_is_one_line(tmp_path):
    """As an ordinary user, for nothing is read-only to root."""
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "exercises", clone / "exercises")
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and os.geteuid() == 0 and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    (clone / "exercises").chmod(0o555)
    clone.chmod(0o555)
    drop = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    if subprocess.run([*drop, sys.executable, "-c", "import mpcourse"], capture_output=True, cwd="/").returncode:
        pytest.skip("this Python cannot be run by another user")
    environment = {k: v for k, v in os.environ.items() if k != "MPCOURSE_HOME"} | {"MPCOURSE_ROOT": str(clone)}
    done = subprocess.run(
        [*drop, sys.executable, "-m", "mpcourse.course.cli", "check", "e00"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert_one_line_error(done, "Permission denied", "MPCOURSE_HOME")


def test_a_missing_exercise_file_says_how_to_get_it_back(cli, course):
    (course / "exercises" / "e90_mean.py").unlink()
    assert_one_line_error(cli("check", "e90"), "mpcourse reset e90_mean")


def test_damaged_progress_is_named_and_not_overwritten(cli, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "progress.json").write_text("{")
    assert_one_line_error(cli("check", "e00"), "progress.json is damaged")
    assert (home / "progress.json").read_text() == "{"


def test_a_busy_port_is_one_line(cli):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_one_line_error(cli("lab", f"--port={port}"), f"port {port} is in use", "LAB_ARGS=--port=")
        assert_one_line_error(cli("lab", "--port", port), f"port {port} is in use")


@pytest.mark.parametrize("port", ["abc", "70000", "-1"])
def test_a_port_that_is_none_is_one_line(cli, port):
    assert_one_line_error(cli("lab", f"--port={port}"), "a port is a number")


def test_no_course_here_is_one_line(cli, tmp_path):
    assert_one_line_error(cli("list", env={"MPCOURSE_ROOT": str(tmp_path)}), "no exercises/manifest.toml")


def test_importing_the_library_starts_neither_mpi_nor_matplotlib():
    library = (
        "mpcourse",
        *(f"mpcourse.{name}" for name in ("models", "models.training", "data", "models.step_memory", "course.check")),
    )
    assert imported_by(library, "mpi4py.MPI", "matplotlib") == []


def test_an_old_python_is_refused_with_the_command_that_cures_it(tmp_path):
    code = "import sys; sys.version_info = (3, 9, 1); import mpcourse"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 1 and "Python 3.11 or newer" in done.stderr and "make setup PYTHON=" in done.stderr


def test_bench_says_what_it_measured_where_and_whether_the_promise_was_kept(monkeypatch, capsys):
    whole = load_course()
    some = [whole.find(name) for name in ("e00_hello", "e05_exchange", "e06_evaluate")]
    course = importlib.import_module("mpcourse.course.bench.course")
    monkeypatch.setattr(course, "load_course", lambda: replace(whole, exercises=some))
    # What takes seconds of computing, and only makes the figures larger: an endless loop, and all those images.
    monkeypatch.setattr(monitor, "STILL", 1.0)
    monkeypatch.setattr(course, "GLYPHS", 1_000)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "course", "--runs", "1", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {"date", "torch", "cores", "python"} <= set(told["machine"])
    assert all(len(record["runs"]) in (1, 2) and record["median"] > 0 for record in told["records"])
    assert ended.value.code == (0 if all(record["kept"] for record in told["records"]) else 1)


def test_bench_of_virtual_gpus_compares_steps_of_the_same_bits(cli):
    # One thread: two that wait for each other on a busy machine make a step ten times as long.
    done = cli("bench", "virtual", "--runs", "1", "--json", env={"OMP_NUM_THREADS": "1"})
    *steps, dry = json.loads(done.stdout)["records"]
    for plain, boxed, ratio, differing in (steps[:4], steps[4:]):
        assert ratio["median"] == pytest.approx(boxed["median"] / plain["median"]) and ratio["promise"] == 1.5
        assert differing["runs"] == [0] and differing["kept"]
    assert dry["median"] > 0 and dry["promise"] == 1.0
    assert done.returncode == (0 if all(record["kept"] for record in [*steps, dry]) else 1)


def test_bench_finds_every_benchmark():
    assert all(callable(benchmark(name)) for name in NAMES)


def test_bench_without_runs_is_one_line(cli):
    assert_one_line_error(cli("bench", "course", "--runs", "0"), "at least one run")


def test_a_path_checks_that_very_file(cli, course):
    done = cli("check", course / "solutions" / "e90_mean.py")
    assert done.returncode == 0 and "e90_mean passed" in done.stdout  # while the exercise itself is a stub
    assert_one_line_error(cli("check", course / "nowhere" / "e90_mean.py"), "is not a file")


def test_a_file_that_is_not_there_does_not_suggest_a_reset(cli):
    done = cli("check", "e00", "--file", "nosuch.py")
    assert_one_line_error(done, "nosuch.py is not a file")
    assert "reset" not in done.stderr


def test_an_unwritten_exercise_counts_no_try(cli, course):
    assert cli("check", "e90").returncode == 1
    assert json.loads(cli("list", "--json").stdout)[0]["tries"] == 0


def test_a_launcher_that_fails_is_told_with_its_error_and_not_with_its_last_line(cli, tmp_path):
    fake = tmp_path / "mpirun"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] || printf "Error: no slots\\nSee the manual\\n-----\\n"\nexit 1\n')
    fake.chmod(0o755)
    assert_one_line_error(
        cli("check", "e00", env={"MPCOURSE_MPIRUN": str(fake)}), "(Error: no slots)", "mpcourse doctor"
    )
