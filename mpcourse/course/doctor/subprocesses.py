"""Run a command with a deadline, and leave no process of it behind."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

MARK = "MPCOURSE_DOCTOR_RUN"


@dataclass(frozen=True)
class CompletedCommand:
    """How a command ended: its exit status (None: the deadline passed), and what it printed, both streams together."""

    status: int | None
    output: str

    @property
    def reason(self) -> str:
        """Return the line of the output that says what went wrong."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip(" =-\t")]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        # A Python traceback ends with its error, but launchers go on talking; their own complaint comes first.
        return errors[-1] if errors else lines[0] if lines else "it printed nothing"


class Unanswered(Exception):
    """A Python program that was asked for facts gave none. The message is its error, or that it took too long."""


def run(command: list[str], seconds: float, environment: Mapping[str, str] | None = None) -> CompletedCommand:
    """Run `command` for at most `seconds`, and kill whatever is left of it then, or when it ends by itself.

    environment: as it is here, unless given (`launch.rank_environment()` for what starts ranks).
    """
    mark = uuid.uuid4().hex
    # An input that says nothing, and has no end: MPICH's mpirun passes the end of its input on to its first proxy, and
    # dies of SIGPIPE where that has gone already, as it may have with a program as short as `true`.
    reading, writing = os.pipe()
    # A file and not a pipe: a process that outlives the command would hold a pipe open, and reading it would hang.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=reading,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**(os.environ if environment is None else environment), MARK: mark},
            start_new_session=True,  # Ctrl-C comes to us alone, and we end the tree
        )
        status: int | None = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(process, mark)
            os.close(reading)
            os.close(writing)
        output.seek(0)
        return CompletedCommand(status, output.read().decode(errors="replace"))


def ask(program: str, seconds: float) -> dict[str, Any]:
    """Run the Python source `program` in a process of its own, and return the JSON object that it prints last."""
    # -P: a torch.py that happens to lie in the current folder is not torch.
    done = run([sys.executable, "-P", "-c", program], seconds)
    if done.status is None:
        raise Unanswered(f"no answer within {seconds:g} s")
    if done.status != 0:
        raise Unanswered(done.reason)
    return json.loads(done.output.splitlines()[-1])


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    # Hydra gives every rank a session of its own, so killing mpirun's process group is not enough. And once mpirun is
    # dead its ranks have another parent, so the tree is read first, and then the mark in each environment.
    left = _descendants(process.pid)
    if process.poll() is None:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 5
    left += _marked(mark)
    while left and time.monotonic() < deadline:
        for one in left:
            with contextlib.suppress(psutil.Error):
                one.kill()
        time.sleep(0.02)
        left = [one for one in left if _alive(one)] or _marked(mark)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _marked(mark: str) -> list[psutil.Process]:
    processes = []
    for one in psutil.process_iter():
        try:
            if one.environ().get(MARK) == mark and _alive(one):
                processes.append(one)
        except (psutil.Error, OSError):  # it ended meanwhile, or it is another user's
            pass
    return processes


def _alive(one: psutil.Process) -> bool:
    try:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
