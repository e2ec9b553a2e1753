"""Fork servers: one that lasts as long as a program, and one whose modules have been changed since."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpcourse.course.forkserver import ADDRESS, ForkServer, Plain, offered, python
from mpcourse.course.forkserver.start import Forks
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(not offered(), reason="this system has no fork server")

BECOMES_ANOTHER = """
import os, sys
from mpcourse.course.forkserver import attach
print(attach(["json"], os.environ), flush=True)
os.execvp("cat", ["cat"])
"""


def test_a_server_lasts_as_long_as_the_program_that_attached_it_has_become(monkeypatch):
    program = subprocess.Popen(
        [sys.executable, "-c", BECOMES_ANOTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    path = Path(program.stdout.readline().strip())
    monkeypatch.setenv(ADDRESS, str(path))
    deadline = time.monotonic() + 30
    while isinstance(python(), Plain) and time.monotonic() < deadline:
        time.sleep(0.02)  # it has yet to begin
    done = subprocess.run(
        python().command("-c", "import sys; print('json' in sys.modules)"), capture_output=True, text=True, timeout=20
    )
    assert (done.stdout, done.returncode) == ("True\n", 0)
    program.communicate(timeout=10)
    while path.parent.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not path.parent.exists()
    assert isinstance(python(), Plain)


def test_a_server_whose_files_were_changed_is_not_used(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "mpcourse", tmp_path / "mpcourse", ignore=shutil.ignore_patterns("measured", "__pycache__"))
    with ForkServer(["mpcourse.common.errors"], os.environ | {"PYTHONPATH": str(tmp_path)}) as server:
        monkeypatch.setenv(ADDRESS, server.listening())
        assert isinstance(python(), Forks)
        (tmp_path / "mpcourse" / "bound.py").touch()  # which it has not imported
        assert isinstance(python(), Forks)
        (tmp_path / "mpcourse" / "common" / "errors.py").touch()
        assert isinstance(python(), Plain)


def test_who_asks_and_does_not_wait_for_the_answer_harms_nobody():
    with ForkServer(["json"]) as server:
        first = server.pid
        for _ in range(20):
            server._ask({"whether_current": True}).close()
            server._ask({"wait_for": "nobody"}).close()
        assert server.current()
        assert server.pid == first


@pytest.mark.parametrize("end, status", [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1)])
def test_ranks_leave_mpi_at_their_end_however_they_come_to_it(mpirun, tmp_path, end, status):
    """mpi4py finalizes MPI at the interpreter's end. Where a rank did not, the launcher would complain of it."""
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n{end}\n")
    done = mpirun(2, program)
    assert done.returncode == status, done.stderr
    assert "BAD TERMINATION" not in done.stdout + done.stderr


ENDS = {
    "an exception": "def f():\n    {}['x']\n\n\nf()",
    "with its cause": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('so') from error",
    "a file that cannot be read": "def f(:",
    "a text for sys.exit": "import sys\nsys.exit('no')",
    "a hook": "import sys\nsys.excepthook = lambda kind, error, traceback: print('mine', error)\n1 / 0",
    "a hook that exits": "import sys\nsys.excepthook = lambda *_: sys.exit(7)\n1 / 0",
    "a hook that raises": "import sys\nsys.excepthook = lambda *_: [][1]\n1 / 0",
    "a thread that goes on": "import threading\nthreading.Timer(0.2, print, '5').start()\n1 / 0",
    "what is done at the end": "import atexit\natexit.register(print, 'end')\n1 / 0",
    "Ctrl-C": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)",
}


@pytest.mark.parametrize("how", ENDS)
def test_a_program_that_fails_says_and_returns_what_it_does_when_started_from_nothing(how, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"{ENDS[how]}\n")
    done = [
        subprocess.run(command, capture_output=True, text=True, timeout=60)
        for command in (python().command(str(program)), [sys.executable, program])
    ]
    here, there = ((each.returncode, each.stdout, each.stderr) for each in done)
    assert here == there and there[0] != 0


def test_a_rank_that_has_left_mpi_itself_and_fails_is_no_crash(mpirun, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys\nfrom mpi4py import MPI\nMPI.Finalize()\nsys.exit(3)\n")
    assert mpirun(4, program).returncode == 3


def test_a_module_that_starts_mpi_is_not_served(tmp_path):
    (tmp_path / "starts.py").write_text("from mpi4py import MPI\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "mpcourse.course.forkserver.server", tmp_path / "socket", "starts"]
    held, lifeline = os.pipe()
    told = subprocess.run(command, env=environment, stdin=held, capture_output=True, text=True, timeout=60)
    os.close(held)
    os.close(lifeline)
    assert told.returncode == 1 and "a module that a fork server imports has started MPI" in told.stderr


def test_bytes_that_are_no_text_arrive_and_what_is_no_request_harms_nobody():
    with ForkServer(["json"]) as server:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(server.listening())
            socket.send_fds(connection, [(9).to_bytes(8, "big")], [])
            connection.sendall(b"[\x09\0\0\0NNNN")  # of a list of nine the first four
            assert connection.recv(1) == b""
        command = server.command("-c", "import os, sys; print(os.environb[b'X'], os.fsencode(sys.argv[1]))")
        done = subprocess.run([*command, b"a\xff"], env={"X": b"b\xfe"}, capture_output=True, timeout=60, check=True)
        assert done.stdout == b"b'b\\xfe' b'a\\xff'\n"


@pytest.mark.parametrize("asked, status, said", [("", 0, ""), ("0", 0, ""), ("3", 3, ""), ("'no'", 1, "no\n")])
def test_a_process_that_asks_for_its_end_has_the_status_that_python_gives(asked, status, said):
    program = f"import atexit, sys; atexit.register(print, 'end'); print('begin'); sys.exit({asked})"
    with ForkServer(["json"]) as server:
        done = subprocess.run(server.command("-c", program), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (status, "begin\nend\n", said)


PASSES_A_PIPE = """
import os, subprocess, sys
reading, writing = os.pipe()
said = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, pass_fds=[writing], text=True).stdout
os.close(writing)
print(said.split() == [str(writing)], os.read(reading, 1))
"""


def test_a_process_has_the_open_files_that_it_was_given_and_no_copies_of_them():
    """A copy of a pipe's end that stays open keeps whoever reads the pipe from seeing its end."""
    told = (
        "import os, sys; sys.stdin.close(); print(*[n for n in range(3, 99) if os.path.exists(f'/proc/self/fd/{n}')])"
    )
    with ForkServer(["json"]) as server:
        # Each has a connection in the server, whose number becomes free in a process that is forked.
        waiting = [subprocess.Popen(server.command("-c", "input()"), stdin=subprocess.PIPE) for _ in range(4)]
        subprocess.run(server.command("-c", "0"), timeout=60, check=True)  # those that came before have begun
        passes = [sys.executable, "-c", PASSES_A_PIPE, *server.command("-c", told)]
        done = subprocess.run(passes, capture_output=True, text=True, timeout=60)
        for process in waiting:
            process.communicate(b"\n", timeout=60)
    assert (done.stdout, done.stderr) == ("True b''\n", "")
