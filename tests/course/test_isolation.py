"""Answers that hang, flood, kill or spoil what they can reach, with harmless ones between them, from one fork server.

Each is told as what it is, and no answer touches the next one.
"""

import os
import random
from unittest.mock import ANY

import pytest

from mpcourse.course.check import monitor, supervisor
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.supervisor import check
from mpcourse.course.forkserver import ADDRESS, Forks, offered
from tests.answers import head_of
from tests.conftest import ROOT, forks, started_here

COURSE = load_course(ROOT)
E03 = COURSE.find("e03_balance")  # one process, without MPI
E05 = COURSE.find("e05_exchange")  # virtual ranks, then real ones
pytestmark = pytest.mark.skipif(not offered(), reason="this system has no fork server")

# What a function does before it returns: the kind of verdict on it, and words of that.
NASTY = {
    "while True: pass": ("no progress", "endless loop"),
    "import time; time.sleep(1000)": ("no progress", "has not come further"),
    "while True: print('x' * 1000)": ("output flood", "more than 1 MB"),
    "import os; os.kill(os.getpid(), 9)": ("vanished", "signal 9"),
    "import os; os.kill(0, 9)": ("vanished", "signal 9"),  # its whole process group
    "import os; os._exit(0)": ("vanished", "os._exit(0)"),
    "import ctypes; ctypes.string_at(0)": ("vanished", "Segmentation fault"),
    "raise SystemExit(0)": ("early exit", "SystemExit|sys.exit"),
    "import os; os.closerange(0, 1000); raise ValueError": ("exception", "ValueError"),
}
# What they do to the interpreter, to the machine's files of the process, and to those that come after them.
SPOILS = (
    "import builtins; builtins.len = lambda x: 0; builtins.isinstance = lambda x, y: False",
    "import sys; sys.modules.clear()",
    "import sys, os; sys.stdout = None; os.chdir('/'); os.environ.clear()",
    "import numpy as np; np.array = np.isclose = None",
    "import random; random.random = lambda: 0.5; import time; time.monotonic = time.sleep = None",
    "import signal; [signal.signal(n, signal.SIG_IGN) for n in range(1, 32) if n not in (9, 19)]",
    "import gc; gc.disable(); import sys; sys.setrecursionlimit(50)",
    "import mpcourse.course.check.cases.e03_balance as c; c.check = None",
    "import threading, time; threading.Thread(target=lambda: time.sleep(1000)).start()",
    "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "import os; os.fork() or os.setsid() or os.fork() or __import__('time').sleep(1000)",
)
BALANCE = "def balance(costs, stages):\n    {}\n    return [1] * stages\n"
SERVER = "import os, time; os.kill(os.getppid(), 9); time.sleep(1000)"


@pytest.fixture
def verdict_on(tmp_path, monkeypatch):
    """Return the verdict on e03_balance's text, or on e05_exchange's."""

    def judged(exercise, text, sizes=None):
        monkeypatch.setattr(monitor, "STILL", 1.0)
        file = tmp_path / f"{exercise.name}.py"
        file.write_text(text)
        return check(exercise, file, sizes, forks())

    return judged


def solution(exercise):
    return COURSE.solution_file(exercise).read_text()


def test_the_nastiest_answers_touch_no_other_whatever_their_order(verdict_on):
    order = [*NASTY, *SPOILS, *["harmless"] * 8]
    seed = random.randrange(10**6)
    random.Random(seed).shuffle(order)
    head = head_of(COURSE, E03)
    for number, what in enumerate(order):
        place = f"{what!r}, the {number}th with seed {seed}"
        if what == "harmless":
            verdict = verdict_on(E03, solution(E03))
            assert verdict.passed, (place, verdict)
            continue
        verdict = verdict_on(E03, head + BALANCE.format(what))
        assert not verdict.passed and verdict.kind != "fault of the checker", (place, verdict)
        if what in NASTY:
            kind, words = NASTY[what]
            said = "\n".join([verdict.headline, *verdict.details, verdict.why])
            assert verdict.kind == kind and any(word in said for word in words.split("|")), (place, verdict)
        assert not started_here(), place


def test_an_answer_that_kills_the_server_is_told_and_the_next_one_finds_another(verdict_on):
    before, named = forks().pid, os.environ[ADDRESS]
    verdict = verdict_on(E03, head_of(COURSE, E03) + BALANCE.format(SERVER))
    assert verdict.kind == "vanished"
    assert verdict_on(E03, solution(E03)).passed
    assert forks().pid != before
    assert Forks(named).current()  # so does everyone who knows it from the environment


def test_what_mpi_leaves_in_shared_memory_is_looked_for_where_it_was_started(verdict_on, monkeypatch):
    looked, tidy = [], supervisor.tidy
    monkeypatch.setattr(supervisor, "tidy", lambda since: looked.append(tidy(since)))
    assert verdict_on(E03, solution(E03)).passed and not looked
    assert verdict_on(E03, "from mpi4py import MPI\n" + solution(E03)).passed and looked == [ANY]
    assert not verdict_on(E03, head_of(COURSE, E03) + BALANCE.format("import os; os._exit(0)")).passed and looked == [
        ANY,
        ANY,
    ]


def test_ranks_are_as_isolated(verdict_on):
    hangs = "def exchange(comm, send, recv):\n    while True: pass\n"
    leaves = "import os\n\n\ndef exchange(comm, send, recv):\n    os._exit(0)\n"
    for text in (hangs, leaves):
        assert not verdict_on(E05, head_of(COURSE, E05) + text).passed
        assert verdict_on(E05, solution(E05), [2]).passed
        assert not started_here()
