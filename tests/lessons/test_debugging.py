"""docs/debugging.md: its programs do what it says."""

import re
import socket
import subprocess
import sys
import threading
import time

import pytest

from mpcourse.common.launch import mpirun_command, rank_environment
from tests.conftest import ROOT

PROGRAMS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/debugging.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def program(tmp_path):
    """Write a program to a file."""

    def write(text):
        file = tmp_path / "program.py"
        file.write_text(text)
        return file

    return write


def test_a_breakpoint_on_a_virtual_rank_reads_the_terminal(program):
    command = [sys.executable, program(PROGRAMS[0])]
    done = subprocess.run(command, input="p total\nc\n", capture_output=True, text=True, timeout=60)
    assert "(Pdb) [1]" in done.stdout and "[[0, 1], [0, 1]]" in done.stdout


@pytest.mark.ranks
def test_a_breakpoint_on_a_real_rank_listens_on_a_port(program):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    printed = []

    def debug():
        for _ in range(300):
            time.sleep(0.1)
            try:
                with socket.create_connection(("127.0.0.1", port)) as terminal:
                    terminal.sendall(b"p total\nc\n")
                    while data := terminal.recv(4096):
                        printed.append(data.decode())
                return
            except ConnectionRefusedError:
                continue

    debugger = threading.Thread(target=debug)
    debugger.start()
    file = program(PROGRAMS[1].replace("4444", str(port)))
    command = mpirun_command(2, [sys.executable, str(file)])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=rank_environment())
    debugger.join()
    assert "(Pdb) [1]" in "".join(printed)
    assert done.stdout.count("[0, 1]") == 2


@pytest.mark.ranks
def test_each_rank_that_hangs_prints_its_stack(program, mpirun):
    hangs = "comm.recv(source=1 - comm.rank)"
    assert hangs in PROGRAMS[2]
    done = mpirun(2, program(PROGRAMS[2].replace("(20)", "(1)").replace(hangs, "import time; time.sleep(4)")))
    assert done.stderr.count("Timeout") == done.stderr.count("program.py") == 2
