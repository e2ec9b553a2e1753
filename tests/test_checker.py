"""Nothing that a learner writes can hang the checker, and every mishap is named with its rank and line."""

import os
import signal
import subprocess
import sys
import time
from textwrap import dedent

import psutil
import pytest

from mpcourse.check import watch
from mpcourse.check.manifest import load_course
from mpcourse.check.supervisor import check

SECONDS = 10  # the promise: a verdict within this time, whatever the answer does


@pytest.fixture
def impatient(monkeypatch):
    """Call a rank stuck after one second instead of five, where the test is about something else than that time."""
    monkeypatch.setattr(watch, "STILL", 1.0)


@pytest.fixture
def verdict_on(small_course, tmp_path):
    """Check the body of `mean(comm, x)` at two ranks; the verdict."""

    def judge(body, size=2):
        file = tmp_path / "e90_mean.py"
        file.write_text("import os, sys, time\nimport numpy as np\n\n\ndef mean(comm, x):\n" + _indented(body))
        course = load_course()
        start = time.monotonic()
        verdict = check(course.exercises[0], file, [size])
        assert time.monotonic() - start < SECONDS
        return verdict

    return judge


def _indented(body):
    return "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())


FIRST = 6  # the line of the file at which a body begins


def test_a_right_answer_passes(verdict_on):
    assert verdict_on("return comm.allreduce(x) / comm.size").kind == "passed"


def test_a_syntax_error_names_its_line(verdict_on):
    verdict = verdict_on("y = x\nreturn (y")
    assert verdict.kind == "syntax error"
    assert verdict.line == FIRST + 1
    assert "never closed" in verdict.headline


def test_an_exception_on_one_rank_names_rank_line_and_message(verdict_on):
    verdict = verdict_on("if comm.rank == 1:\n    raise ValueError('too small')\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank, verdict.line) == ("exception", 1, FIRST + 1)
    assert "ValueError: too small" in verdict.headline


def test_an_exception_below_the_answer_names_the_answers_line(verdict_on):
    verdict = verdict_on("y = np.zeros(3)\nreturn comm.allreduce(x + y)")
    assert (verdict.kind, verdict.rank, verdict.line) == ("exception", 0, FIRST + 1)
    assert "could not be broadcast" in verdict.headline


@pytest.mark.parametrize("code", ["sys.exit(0)", "sys.exit(3)", "exit()"])
def test_leaving_on_one_rank_names_rank_and_line(verdict_on, code):
    verdict = verdict_on(f"if comm.rank == 1:\n    {code}\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank, verdict.line) == ("early exit", 1, FIRST + 1)


def test_a_rank_that_vanishes_is_named(verdict_on):
    verdict = verdict_on(
        "comm.Barrier()\nif comm.rank == 1:\n    time.sleep(0.3)\n    os._exit(0)\nreturn comm.allreduce(x) / comm.size"
    )
    assert (verdict.kind, verdict.rank) == ("vanished", 1)


def test_a_crash_names_rank_and_line(verdict_on):
    verdict = verdict_on(
        "import ctypes\nif comm.rank == 1:\n    ctypes.string_at(0)\nreturn comm.allreduce(x) / comm.size"
    )
    assert (verdict.kind, verdict.rank, verdict.line) == ("vanished", 1, FIRST + 2)


@pytest.mark.parametrize("loop", ["while True:\n        pass", "while True:\n        time.sleep(0.01)"])
def test_an_endless_loop_on_one_rank_names_rank_and_line(verdict_on, loop):
    verdict = verdict_on(f"if comm.rank == 1:\n    {loop}\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank) == ("no progress", 1)
    assert verdict.line in (FIRST + 1, FIRST + 2)
    assert any("rank 0 waits in allreduce" in line for line in verdict.details)


def test_an_endless_loop_inside_c_code_is_ended_too(verdict_on, impatient):
    verdict = verdict_on("if comm.rank == 0:\n    sum(range(10**12))\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank, verdict.line) == ("no progress", 0, FIRST + 1)


def test_an_endless_loop_while_the_file_is_imported_is_ended(small_course, impatient, tmp_path):
    file = tmp_path / "e90_mean.py"
    file.write_text("import time\nwhile True:\n    time.sleep(0.1)\n")
    verdict = check(load_course().exercises[0], file, [2])
    assert verdict.kind == "no progress" and verdict.line in (2, 3)
    assert verdict.seconds < SECONDS


def test_talking_for_ever_is_told_from_being_stuck(verdict_on):
    verdict = verdict_on("while True:\n    comm.Barrier()")
    assert verdict.kind == "endless" and verdict.line in (FIRST, FIRST + 1)


def test_a_deadlock_of_two_receives_names_both_sides(verdict_on):
    verdict = verdict_on("other = comm.recv(source=1 - comm.rank)\ncomm.send(x, 1 - comm.rank)\nreturn (x + other) / 2")
    assert (verdict.kind, verdict.rank, verdict.line) == ("deadlock", 0, FIRST)
    assert verdict.details[0].startswith("rank 0 waits in recv(source=1)")
    assert verdict.details[1].startswith("rank 1 waits in recv(source=0)")
    assert "receives before anyone sends" in verdict.why


def test_a_deadlock_of_two_synchronous_sends_is_named(verdict_on):
    verdict = verdict_on("comm.ssend(x, 1 - comm.rank)\nreturn (x + comm.recv(source=1 - comm.rank)) / 2")
    assert verdict.kind == "deadlock" and "Every rank sends" in verdict.why


def test_a_collective_that_one_rank_skips_is_named(verdict_on):
    verdict = verdict_on("if comm.rank == 0:\n    return comm.allreduce(x) / comm.size\nreturn x")
    assert verdict.kind == "deadlock" or "wrong answer" == verdict.kind
    assert verdict.kind == "wrong answer" or "allreduce is a collective call" in verdict.why


def test_different_collectives_are_named(verdict_on):
    verdict = verdict_on("total = comm.allreduce(x) if comm.rank else comm.gather(x)\ncomm.Barrier()\nreturn total")
    assert verdict.kind in ("deadlock", "exception")  # some MPIs let the first call through and fail later
    assert verdict.rank is not None


def test_a_receive_from_oneself_is_named(verdict_on):
    verdict = verdict_on("y = sum(comm.recv(source=r) for r in range(comm.size))\nreturn y", size=1)
    assert verdict.kind == "deadlock" and "receives from itself" in verdict.why


def test_a_wait_for_a_rank_that_has_returned_is_named(verdict_on):
    verdict = verdict_on("if comm.rank == 0:\n    return comm.recv(source=1, tag=7)\nreturn np.arange(5.0) + 0.5")
    assert verdict.kind == "deadlock"
    assert "recv(source=1, tag=7)" in verdict.details[0]
    assert "rank 1, which has returned without sending" in verdict.why


def test_a_wait_on_a_request_is_ended_with_its_line(verdict_on, impatient):
    verdict = verdict_on("request = comm.irecv(source=1 - comm.rank)\ny = request.wait()\nreturn (x + y) / 2")
    assert verdict.kind == "no progress" and verdict.line == FIRST + 1


def test_an_output_flood_is_stopped_and_named(verdict_on):
    verdict = verdict_on("while comm.rank == 1:\n    print('x' * 1000)\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank) == ("output flood", 1)
    assert verdict.line in (FIRST, FIRST + 1)
    assert sum(len(text) for _, text in verdict.printed) < 5000


def test_a_changed_argument_names_the_line_that_changed_it(verdict_on):
    verdict = verdict_on("y = x\ny += 1\ny -= 0\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank, verdict.line) == ("wrong answer", 0, FIRST + 1)
    assert "leave its arguments as they are" in verdict.details[0]


def test_nan_is_named_with_rank_line_and_element(verdict_on):
    verdict = verdict_on("y = comm.allreduce(x) / comm.size\nif comm.rank == 1:\n    y[3] = np.nan\nreturn y")
    assert (verdict.kind, verdict.rank, verdict.line) == ("wrong answer", 1, FIRST + 3)
    assert "element 3 of the mean" in verdict.details[0] and "NaN" in verdict.details[1]


def test_the_first_wrong_element_is_named(verdict_on):
    verdict = verdict_on("return comm.allreduce(x)")
    assert verdict.details[:2] == ["asked: element 0 of the mean to be 0.5", "got:   1.0 (5 of 5 elements differ)"]


def test_a_message_that_nobody_receives_is_named(verdict_on):
    verdict = verdict_on("if comm.rank == 1:\n    comm.send(x, 0, tag=5)\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank) == ("message left over", 0)
    assert "from rank 1 (tag 5)" in verdict.headline


def test_the_wrong_number_of_parameters_is_named(small_course, tmp_path):
    file = tmp_path / "e90_mean.py"
    file.write_text("def mean(comm):\n    return 0\n")
    verdict = check(load_course().exercises[0], file)
    assert (
        verdict.kind == "wrong answer" and verdict.line == 1 and "too many positional arguments" in verdict.details[1]
    )


def test_a_missing_function_is_named(small_course, tmp_path):
    file = tmp_path / "e90_mean.py"
    file.write_text("def average(comm, x):\n    return x\n")
    verdict = check(load_course().exercises[0], file)
    assert verdict.kind == "nothing to call" and "no function mean" in verdict.headline


def test_reading_the_keyboard_does_not_wait(verdict_on):
    verdict = verdict_on("input('your name? ')\nreturn x")
    assert verdict.kind == "exception" and "EOF" in verdict.headline


def test_what_ranks_print_is_shown_without_control_characters(verdict_on):
    verdict = verdict_on("print('\\x1b[2J\\x1b[31mred\\x07', comm.rank)\nreturn comm.allreduce(x) / comm.size")
    assert verdict.kind == "passed" and verdict.printed == [(0, "red 0"), (1, "red 1")]


def test_a_process_that_the_answer_starts_is_ended_with_it(verdict_on, tmp_path):
    verdict = verdict_on(
        f"""
        import subprocess
        child = subprocess.Popen(["sleep", "60"], start_new_session=True)
        open({str(tmp_path)!r} + f"/child{{comm.rank}}", "w").write(str(child.pid))
        return comm.allreduce(x) / comm.size
        """
    )
    assert verdict.kind == "passed"
    children = [int((tmp_path / f"child{r}").read_text()) for r in range(2)]
    assert not any(psutil.pid_exists(c) and psutil.Process(c).status() != "zombie" for c in children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_check_takes_its_ranks_with_it(small_course, tmp_path, number):
    file, started = tmp_path / "e90_mean.py", tmp_path / "started"
    file.write_text(f"import time\ndef mean(comm, x):\n    open({str(started)!r}, 'w').close()\n    time.sleep(60)\n")
    command = [sys.executable, "-m", "mpcourse.cli", "check", "e90", "--file", str(file)]
    checker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    _await(started.exists)
    checker.send_signal(number)
    said, _ = checker.communicate(timeout=10)
    assert checker.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert "Traceback" not in said  # and nothing_left_behind sees that the ranks are gone


def test_a_killed_check_leaves_ranks_that_end_themselves(small_course, tmp_path):
    (small_course / "exercises" / "manifest.toml").write_text(
        (small_course / "exercises" / "manifest.toml").read_text().replace("seconds = 6.0", "seconds = -8.0")
    )  # ranks outlive their limit by ten seconds at most: here two
    file, started = tmp_path / "e90_mean.py", tmp_path / "started"
    file.write_text(f"open({str(started)!r}, 'w').close()\nwhile True:\n    pass\n")
    command = [sys.executable, "-m", "mpcourse.cli", "check", "e90", "--file", str(file)]
    checker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    _await(started.exists)
    below = psutil.Process(checker.pid).children(recursive=True)
    assert below
    os.kill(checker.pid, signal.SIGKILL)
    checker.wait()
    _, alive = psutil.wait_procs(below, timeout=15)
    assert not alive


def _await(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the ranks did not start"
        time.sleep(0.02)
