"""Nothing that a learner writes can hang the checker, and every mishap is named with its rank and line."""

import os
import signal
import subprocess
import sys
import time
from textwrap import dedent

import psutil
import pytest

from mpcourse.common.launch import mpirun
from mpcourse.course.check import monitor, status_page
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.monitor import Ending
from mpcourse.course.check.rank import Job
from mpcourse.course.check.rank_exit import exit_of
from mpcourse.course.check.status_page import Entry, Noted, StatusPage
from mpcourse.course.check.supervisor import check

SECONDS = 30  # ten are promised, whatever the answer does (`mpcourse bench course`); a busy machine takes longer


@pytest.fixture
def impatient(monkeypatch):
    """Call ranks stuck or blocked after less time than usual, where the test is about something else than that time."""
    monkeypatch.setattr(monitor, "STILL", 1.0)
    monkeypatch.setattr(monitor, "BLOCKED", 0.7)


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


def test_what_a_rank_writes_while_it_is_looked_at_and_ends_is_read(tmp_path, monkeypatch):
    page = StatusPage(tmp_path, 0, 0)
    page.write("running", 0)

    def ends(pid):
        page.write("running", 0, status_page.Noted("os._exit(3)", 3))
        return False

    monkeypatch.setattr(monitor, "_lives", ends)
    ending = monitor.Monitor(Job("e90", "answer.py", [], "", str(tmp_path), 10.0), 1).look()
    assert (ending.kind, ending.entries[0].last.text) == ("died", "os._exit(3)")


@pytest.mark.parametrize(
    ("code", "did", "there"),
    [
        ("os._exit(3)", "called os._exit(3)", True),
        ("__import__('ctypes').string_at(0)", "crashed (Segmentation fault)", True),
        ("__import__('mpi4py.MPI').MPI.COMM_SELF.Abort(3)", "called Abort(3)", False),
    ],
)
def test_a_rank_that_vanishes_is_named_with_what_it_did(verdict_on, code, did, there):
    body = f"comm.Barrier()\nif comm.rank == 1:\n    {code}\nsum(range(10**8))\nreturn comm.allreduce(x) / comm.size"
    verdict = verdict_on(body, size=3)  # the other two are in code of their own when the launcher ends them
    assert (verdict.kind, verdict.rank) == ("vanished", 1)
    assert did in verdict.headline or (did == "called Abort(3)" and mpirun().implementation != "MPICH")
    if there:
        assert verdict.line == FIRST + 2 and f"line {FIRST + 2}" in verdict.headline
    else:  # where exactly is not known, so the headline does not say
        assert "line" not in verdict.headline and "last call" in verdict.details[0]


def test_a_rank_that_is_killed_while_the_others_wait_for_it_is_named(verdict_on):
    # The others say that they come: who is still under way cannot be told from who was killed first.
    comes = "if comm.rank != 1:\n    comm.send(0, 1)\nelse:\n    comm.recv(source=0), comm.recv(source=2)\n"
    verdict = verdict_on(comes + "    time.sleep(0.3)\n    os.kill(os.getpid(), 9)\ncomm.Barrier()", size=3)
    assert (verdict.kind, verdict.rank) == ("vanished", 1)
    assert "signal 9" in verdict.headline or "signal" in verdict.why


PIDS = {0: 900, 1: 901, 2: 902}
MPICH_SAYS = """
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 901 RUNNING AT node
=   EXIT CODE: 9
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""
OPEN_MPI_SAYS = """
prterun noticed that process rank 1 with PID 901 on node node exited on
signal 9 (Killed).
"""
OPEN_MPI_SAYS_STATUS = """
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-node-900@1,1]
   Exit code:    3
"""
OPEN_MPI_SAYS_ABORT = """
MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
  Proc: [[1051,1],1]
  Errorcode: 3
"""


@pytest.mark.parametrize(
    ("said", "did"),
    [
        (MPICH_SAYS, "or another rank was ended by signal 9 (Killed)"),  # MPICH itself ends others by signal 9
        (MPICH_SAYS.replace("Killed (signal 9)", "Bus error (signal 7)"), "was ended by signal 7 (Bus error)"),
        (OPEN_MPI_SAYS, "was ended by signal 9 (Killed)"),
        (OPEN_MPI_SAYS_STATUS, "ended with status 3"),
        (OPEN_MPI_SAYS_ABORT, "called Abort(3)"),
    ],
)
def test_where_all_ranks_are_gone_the_launcher_is_believed(tmp_path, said, did):
    entries = {i: Entry(5, pid, i, "running", Noted("Barrier()", 7)) for i, pid in PIDS.items()}
    ending = Ending("died", 3, entries=entries, gone=[0, 1, 2])
    (tmp_path / "mpirun.out").write_text(said)
    assert (exit_of(ending, tmp_path).rank, exit_of(ending, tmp_path).did) == (1, did)


def test_a_launcher_that_names_a_rank_it_killed_itself_is_not_believed(tmp_path):
    stages = {0: "waiting", 1: "waiting", 2: "running"}
    entries = {i: Entry(5, pid, i, stages[i], Noted("Barrier()", 7)) for i, pid in PIDS.items()}
    (tmp_path / "mpirun.out").write_text(MPICH_SAYS)
    assert exit_of(Ending("died", 3, entries=entries, gone=[0, 1, 2]), tmp_path).rank == 2


def test_a_process_that_the_answer_forks_may_leave_by_os_exit(verdict_on):
    verdict = verdict_on(
        "child = os.fork()\nif not child:\n    os._exit(0)\nos.waitpid(child, 0)\nreturn comm.allreduce(x) / comm.size"
    )
    assert verdict.kind == "passed"


def test_an_endless_loop_on_one_rank_names_rank_and_line(verdict_on, impatient):
    verdict = verdict_on("if comm.rank == 1:\n    while True:\n        pass\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank) == ("no progress", 1)
    assert verdict.line in (FIRST + 1, FIRST + 2)
    assert [line.partition(",")[0] for line in verdict.details] == ["rank 0 waits in allreduce()"]  # rank 1 only above


def test_an_endless_loop_that_sleeps_names_rank_and_line(verdict_on, impatient):
    verdict = verdict_on("while comm.rank == 1:\n    time.sleep(0.01)\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank) == ("no progress", 1) and verdict.line in (FIRST, FIRST + 1)


def test_an_endless_loop_inside_c_code_is_ended_too(verdict_on, impatient):
    verdict = verdict_on("if comm.rank == 0:\n    sum(range(10**12))\nreturn comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.rank, verdict.line) == ("no progress", 0, FIRST + 1)


def test_an_endless_loop_while_the_file_is_imported_is_ended(small_course, impatient, tmp_path):
    file = tmp_path / "e90_mean.py"
    file.write_text("import time\nwhile True:\n    time.sleep(0.1)\n")
    verdict = check(load_course().exercises[0], file, [2])
    assert verdict.kind == "no progress" and verdict.line in (2, 3)
    assert verdict.seconds < SECONDS


def _slow_cases(small_course, seconds):
    """Let the check itself take `seconds` before it calls the answer."""
    cases = small_course / "e90_cases.py"
    cases.write_text(cases.read_text().replace("import", "import time\nimport", 1))
    lines = cases.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("def check("))
    cases.write_text("\n".join([*lines[: at + 1], f"    time.sleep({seconds})", *lines[at + 1 :]]) + "\n")


def test_time_that_the_check_itself_takes_is_not_the_answers(small_course, verdict_on, impatient):
    _slow_cases(small_course, 2.5)
    assert verdict_on("return comm.allreduce(x) / comm.size").kind == "passed"


def test_a_check_that_takes_longer_than_its_limit_blames_no_line(small_course, verdict_on, impatient):
    _slow_cases(small_course, 30)
    verdict = verdict_on("return comm.allreduce(x) / comm.size")
    assert (verdict.kind, verdict.line) == ("out of time", None) and "busy" in verdict.why


def test_talking_for_ever_is_told_from_being_stuck(verdict_on):
    verdict = verdict_on("while True:\n    comm.Barrier()")
    assert verdict.kind == "endless" and verdict.line in (FIRST, FIRST + 1)


def test_a_deadlock_of_two_receives_names_both_sides(verdict_on):
    verdict = verdict_on("other = comm.recv(source=1 - comm.rank)\ncomm.send(x, 1 - comm.rank)\nreturn (x + other) / 2")
    assert (verdict.kind, verdict.rank, verdict.line) == ("deadlock", 0, FIRST)
    assert verdict.details[0].startswith("rank 0 waits in recv(source=1)")
    assert verdict.details[1].startswith("rank 1 waits in recv(source=0)")
    assert "Each of them receives before it sends" in verdict.why


@pytest.mark.parametrize("call", ["recv()", "recv(source=0, tag=3)", "Probe(0, 3)", "mprobe(tag=3)"])
def test_a_rank_that_waits_for_a_message_leaves_the_core_to_others(verdict_on, call):
    verdict = verdict_on(f"""
        if comm.rank == 0:
            time.sleep(1)
            comm.send(1, 1, tag=3)
        else:
            began = time.process_time()
            got = comm.{call}
            assert time.process_time() - began < 0.5
            if got is True:
                comm.recv()
            elif got != 1:
                got.recv()
        return comm.allreduce(x) / comm.size
    """)
    assert verdict.kind == "passed", verdict.why


SHM = """
import re
names = set(re.findall(r"/dev/shm/\\S+", open("/proc/self/maps").read()))
open(SEEN, "a").writelines(f"{name}\\n" for name in names)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="lists shared memory as Linux does")
@pytest.mark.parametrize("end", ["comm.recv(source=1 - comm.rank)", "comm.Abort(3)", "os._exit(3)"])
def test_a_run_that_is_ended_leaves_no_shared_memory(verdict_on, impatient, tmp_path, end):
    seen = tmp_path / "seen"
    verdict = verdict_on(SHM.strip().replace("SEEN", repr(str(seen))) + f"\ncomm.Barrier()\n{end}")
    assert not verdict.passed
    names = set(seen.read_text().split())
    if mpirun().implementation == "MPICH":
        assert names
    assert not [name for name in names if os.path.exists(name)]


def test_a_deadlock_of_two_synchronous_sends_is_named(verdict_on, impatient):
    verdict = verdict_on("comm.ssend(x, 1 - comm.rank)\nreturn (x + comm.recv(source=1 - comm.rank)) / 2")
    assert verdict.kind == "deadlock" and "Each of them sends first" in verdict.why


def test_a_collective_that_one_rank_skips_is_named(verdict_on, impatient):
    verdict = verdict_on("if comm.rank == 0:\n    return comm.allreduce(x) / comm.size\nreturn x")
    assert verdict.kind in ("deadlock", "wrong answer")
    assert verdict.kind == "wrong answer" or "allreduce is a collective call" in verdict.why


def test_different_collectives_are_named(verdict_on, impatient):
    verdict = verdict_on("total = comm.allreduce(x) if comm.rank else comm.gather(x)\ncomm.Barrier()\nreturn total")
    assert verdict.kind in ("deadlock", "exception")  # some MPIs let the first call through and fail later
    assert verdict.rank is not None


def test_a_receive_from_oneself_is_named(verdict_on, impatient):
    verdict = verdict_on("y = sum(comm.recv(source=r) for r in range(comm.size))\nreturn y", size=1)
    assert verdict.kind == "deadlock" and "receives from itself" in verdict.why


def test_a_wait_for_a_rank_that_has_returned_is_named(verdict_on, impatient):
    verdict = verdict_on("if comm.rank == 0:\n    return comm.recv(source=1, tag=7)\nreturn np.arange(5.0) + 0.5")
    assert verdict.kind == "deadlock"
    assert "recv(source=1, tag=7)" in verdict.details[0]
    assert "rank 1, which has returned without sending" in verdict.why


@pytest.mark.parametrize(
    "body",
    [
        "request = comm.irecv(source=1 - comm.rank)\ny = request.wait()\nreturn (x + y) / 2",
        "y = np.empty(5)\nMPI.Request.Waitall([comm.Irecv(y, 1 - comm.rank)])\nreturn (x + y) / 2",
        "y = np.empty(5)\nMPI.Request.Waitany([comm.Irecv(y, 1 - comm.rank, tag=3)])\nreturn (x + y) / 2",
    ],
)
def test_a_wait_for_a_request_names_the_call_that_began_it(verdict_on, impatient, body):
    verdict = verdict_on(body.replace("y = np", "from mpi4py import MPI; y = np"))
    assert verdict.kind == "deadlock" and verdict.line == FIRST + 1
    assert verdict.details[0].lower().startswith("rank 0 waits in the wait for irecv(source=1")
    assert "Each of them receives before it sends" in verdict.why


def test_requests_that_are_waited_for_do_what_they_do(verdict_on):
    body = (
        "from mpi4py import MPI\n"
        "y, other = np.empty(5), 1 - comm.rank\n"
        "requests = [comm.Irecv(y, other), comm.Isend(x, other)]\n"
        "assert all(isinstance(r, MPI.Request) for r in requests)\n"
        "MPI.Request.Waitall(requests)\n"
        "assert all(r == MPI.REQUEST_NULL for r in requests)\n"
        "sent = comm.isend({'x': x}, other, tag=2)\n"
        "status = MPI.Status()\n"
        "told = comm.irecv(source=other, tag=2).wait(status)\n"
        "sent.wait()\n"
        "assert status.source == other and (told['x'] == y).all()\n"
        "pair = [comm.isend(1, other), comm.irecv(source=other)]\n"
        "assert MPI.Request.waitall(pair)[1] == 1\n"
        "comm.Ibarrier().Wait()\n"
        "return (x + y) / 2"
    )
    assert verdict_on(body).kind == "passed"


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


RIGHT = "def mean(comm, x):\n    return comm.allreduce(x) / comm.size  # caf\u00e9\n"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (RIGHT.encode(), None),
        (RIGHT.encode("utf-8-sig"), None),
        (RIGHT.replace("\n", "\r\n").encode(), None),
        (b"# coding: latin-1\n" + RIGHT.encode("latin-1"), None),
        (RIGHT.encode("latin-1"), 2),
        (b"# caf\xe9\n" + RIGHT.encode(), 1),
        (RIGHT.encode() + b"name = 'caf\xe9'\n", 3),
        (b"# coding: nosuch\n" + RIGHT.encode(), None),
        (RIGHT.encode("utf-16"), 1),
    ],
    ids=["utf-8", "bom", "crlf", "latin-1", "comment", "line-1", "string", "nosuch", "utf-16"],
)
def test_a_file_can_be_checked_if_python_can_run_it(small_course, tmp_path, data, line):
    file = tmp_path / "e90_mean.py"
    file.write_bytes(data)
    python_runs_it = subprocess.run([sys.executable, str(file)], capture_output=True).returncode == 0
    verdict = check(load_course().exercises[0], file, [1])
    assert verdict.passed == python_runs_it
    if not python_runs_it:
        assert verdict.kind == "syntax error"
        assert line is None or verdict.line in (line, None)


def test_a_null_byte_is_a_syntax_error(small_course, tmp_path):
    """Some versions of Python run such a file up to the byte."""
    file = tmp_path / "e90_mean.py"
    file.write_bytes(RIGHT.encode() + b"x = 1\0\n")
    assert check(load_course().exercises[0], file, [1]).kind == "syntax error"


def test_a_text_saved_in_another_encoding_is_told_what_to_do(small_course, tmp_path):
    file = tmp_path / "e90_mean.py"
    file.write_bytes(RIGHT.encode("latin-1"))
    verdict = check(load_course().exercises[0], file)
    assert verdict.headline == "bytes that are not UTF-8 at line 2" and "UTF-8" in verdict.why


def test_an_answer_changed_within_a_second_is_read_anew(verdict_on):
    """A compiled file of before, which Python keeps beside an imported one, would pass for it."""
    assert verdict_on("return comm.allreduce(x) / 2").passed
    assert not verdict_on("return comm.allreduce(x) / 3").passed


def test_the_path_of_the_answer_is_told_from_the_current_folder(small_course, tmp_path, monkeypatch):
    monkeypatch.chdir(small_course / "exercises")
    for name, shown in (
        ("own.py", "own.py"),
        ("../other.py", "../other.py"),
        ("../../far.py", str(tmp_path / "far.py")),
    ):
        file = (small_course / "exercises" / name).resolve()
        file.write_text(RIGHT + "(")
        assert check(load_course().exercises[0], file).file == shown


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
    command = [sys.executable, "-m", "mpcourse.course.cli", "check", "e90", "--file", str(file)]
    checker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    _await(started.exists)
    checker.send_signal(number)
    said, _ = checker.communicate(timeout=10)
    assert checker.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert "Traceback" not in said  # and nothing_left_behind sees that the ranks are gone


def test_a_killed_check_leaves_ranks_that_end_themselves(small_course, tmp_path):
    file, started = tmp_path / "e90_mean.py", tmp_path / "started"
    file.write_text(
        "import os, time\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank:\n    time.sleep(600)\n"
        f"open({str(tmp_path / 'new')!r}, 'w').write(str(os.getpid()))\nos.rename({str(tmp_path / 'new')!r}, "
        f"{str(started)!r})\nwhile True:\n    pass\n"
    )
    command = [sys.executable, "-m", "mpcourse.course.cli", "check", "e90", "--file", str(file)]
    checker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    _await(started.exists)
    computing = psutil.Process(int(started.read_text()))
    below = [computing, *psutil.Process(checker.pid).children(recursive=True)]
    os.kill(checker.pid, signal.SIGKILL)
    checker.wait()
    granted, most = computing.rlimit(psutil.RLIMIT_CPU)
    assert granted == 2 * 6 + 1  # seconds: twice as long as its check would have waited
    computing.rlimit(psutil.RLIMIT_CPU, (1, most))  # as if it had computed most of them already
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive


def _await(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the ranks did not start"
        time.sleep(0.02)
