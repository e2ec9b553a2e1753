"""A rank can be asked where it is, as often as one likes and whatever it does, and goes on as if nobody had asked."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from mpcourse.course.check import stacks
from mpcourse.course.check.rank import Job

BUSY = """
import pathlib
import sys


def exchange(comm, send, recv):
    pathlib.Path(__file__).with_suffix(".began").touch()
    sys.settrace(None)  # else the check's time limit would be raised, and may leave the loop
    while True:
        try:
            comm.Recv(recv)
        except BaseException:
            pass
"""
# Holds Python's lock for ever: the rank's thread cannot answer.
IN_C = """
import itertools
import pathlib


def exchange(comm, send, recv):
    pathlib.Path(__file__).with_suffix(".began").touch()
    any(itertools.repeat(False))
"""
NOBODY = 2**30  # an id that no process has


@contextmanager
def rank(folder, code):
    """Start a rank that checks `code`; return its process id, as soon as it is in that code."""
    file = folder / "answer.py"
    file.write_text(code)
    job = Job("e05_exchange", str(file), ["exchange"], "mpcourse.course.check.cases.e05_exchange", str(folder), 100.0)
    process = subprocess.Popen([sys.executable, "-P", "-m", "mpcourse.course.check.rank", json.dumps(asdict(job))])
    try:
        deadline = time.monotonic() + 60
        while not file.with_suffix(".began").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        time.sleep(0.3)  # now it only goes round
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_busy_rank_is_asked_three_hundred_times_and_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "PATIENCE", 60.0)  # however busy the machine is: no signal
    with rank(tmp_path, BUSY) as process:
        for _ in range(300):
            lines = stacks.lines(tmp_path, {0: process.pid}, str(tmp_path / "answer.py"))
            assert lines and 9 <= lines[0] <= 13
        assert process.poll() is None


def test_a_rank_that_holds_pythons_lock_is_found_by_a_signal(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "PATIENCE", 0.3)
    with rank(tmp_path, IN_C) as process:
        for _ in range(3):
            assert stacks.lines(tmp_path, {0: process.pid}, str(tmp_path / "answer.py")) == {0: 8}
        assert not list(tmp_path.glob("*.where"))


def test_a_rank_that_can_have_no_pipe_is_found_by_a_signal(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "PATIENCE", 0.3)
    (tmp_path / "rank0.ask").touch()
    with rank(tmp_path, IN_C) as process:
        assert stacks.lines(tmp_path, {0: process.pid}, str(tmp_path / "answer.py")) == {0: 8}


def test_who_never_began_or_has_ended_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "PATIENCE", 60.0)
    start = time.monotonic()
    assert stacks.lines(tmp_path, {0: NOBODY}, "answer.py") == {}
    os.mkfifo(tmp_path / "rank0.ask")
    assert stacks.lines(tmp_path, {0: NOBODY}, "answer.py") == {}
    assert time.monotonic() - start < 50


@pytest.mark.parametrize("ask", [True, False])
def test_several_virtual_ranks_are_told_by_the_one_that_runs(tmp_path, monkeypatch, ask):
    waits = 'Thread 0x1:\n  File "/virtual/ranks/threads.py", line 30 in wait\n  File "a.py", line 7 in f\n'
    runs = 'Current thread 0x2:\n  File "/x.py", line 3 in g\n  File "a.py", line 9 in f\n'
    stack = waits + runs
    (tmp_path / "rank0.stack").write_text(stack)
    monkeypatch.setattr(stacks, "_ask", lambda folder, number: True)
    (tmp_path / "rank0.where").write_text(stack)
    assert stacks.lines(tmp_path, {0: NOBODY}, "a.py", ask) == {0: 9}
