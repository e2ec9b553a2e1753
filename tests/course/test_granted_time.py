"""How long ranks have had is counted on their own clocks: a machine that is busy with others changes nothing."""

import subprocess
import sys

import pytest

from mpcourse.course.check import granted_time, monitor, stacks
from mpcourse.course.check.cases import e03_balance
from mpcourse.course.check.facts import steps
from mpcourse.course.check.granted_time import GrantedTime
from mpcourse.course.check.rank import Job
from mpcourse.course.check.status_page import Entry, Noted


@pytest.fixture
def machine(monkeypatch):
    """Make a machine whose time passes when the test says so; what processes compute, and whether they are ready to."""

    class Machine:
        now, computed, ready = 100.0, {7: 1.0, 8: 1.0}, {7: True, 8: True}

        def passes(self, seconds, share):
            """`share` of each core is left for the ranks."""
            for _ in range(round(seconds / 0.2)):
                self.now += 0.2
                for pid, ready in self.ready.items():
                    self.computed[pid] += 0.2 * share * ready
                yield

    made = Machine()
    made.computed, made.ready = dict(made.computed), dict(made.ready)
    monkeypatch.setattr(granted_time.time, "monotonic", lambda: made.now)
    monkeypatch.setattr(granted_time, "_computed", made.computed.__getitem__)
    monkeypatch.setattr(granted_time, "_runs", made.ready.__getitem__)
    return made


@pytest.mark.parametrize("share", [1.0, 0.5, 0.2])
def test_a_rank_that_computes_has_had_what_it_computed_however_long_that_took(machine, share):
    asked = GrantedTime([7])
    for _ in machine.passes(10.0, share):
        seconds = asked.seconds()
    assert seconds == pytest.approx(10.0 * share)


def test_a_rank_that_sleeps_has_had_the_time_that_passed(machine):
    machine.ready[7] = False
    asked = GrantedTime([7])
    for _ in machine.passes(6.0, 1.0):
        seconds = asked.seconds()
    assert seconds == pytest.approx(6.0)


def test_the_rank_that_had_least_counts(machine):
    machine.ready[8] = False
    asked = GrantedTime([7, 8])
    for _ in machine.passes(6.0, 0.5):
        seconds = asked.seconds()
    assert seconds == pytest.approx(3.0)


def test_nobody_waits_for_ever_for_a_core(machine):
    asked = GrantedTime([7])
    for _ in machine.passes(40.0, 0.0):
        seconds = asked.seconds()
    assert seconds == pytest.approx(40.0 / granted_time.MOST)
    assert asked.seconds(2.0) == pytest.approx(20.0)


def test_what_is_known_to_take_long_is_told_before_an_endless_loop_is():
    """Both are counted in computed seconds, so the better reason comes first on any machine."""
    assert e03_balance.SECONDS < monitor.STILL and steps.SECONDS < monitor.STILL


def test_of_a_process_that_has_ended_what_passed_counts():
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    granted = GrantedTime([ended.pid])
    granted.since = granted.looked = granted.since - 1.0
    assert 1.0 <= granted.seconds() <= 61.0


def test_an_answer_is_waited_for_as_long_as_the_rank_is_not_granted_a_core(machine, monkeypatch, tmp_path):
    begun, passing = machine.now, machine.passes(60.0, 0.2)

    def sleep(seconds):
        next(passing)
        if machine.now - begun > 3.0:  # of which it was granted 0.6 s
            (tmp_path / "rank0.where").write_text('Thread 0x1:\n  File "a.py", line 7 in f\n')

    monkeypatch.setattr(stacks, "_ask", lambda folder, number: True)
    monkeypatch.setattr(stacks.time, "sleep", sleep)
    assert stacks.lines(tmp_path, {0: 7}, "a.py") == {0: 7}


@pytest.mark.parametrize("said, kind", [({0: 7}, "still"), ({}, "slow")])
def test_a_rank_that_does_not_get_on_is_told_so_though_it_says_where_it_is_at_the_last_moment_only(
    machine, monkeypatch, tmp_path, said, kind
):
    entry = Entry(0, 7, 0, "running", Noted())
    watching, answers = (
        monitor.Monitor(Job("e90", "a.py", [], "", str(tmp_path), monitor.STILL + 0.3), 1),
        iter([{}, said]),
    )
    monkeypatch.setattr(watching, "_entries", lambda: {0: entry})
    monkeypatch.setattr(monitor, "_lives", lambda pid: True)
    monkeypatch.setattr(monitor.stacks, "lines", lambda *arguments, ask: next(answers))
    ending = next(ending for _ in machine.passes(6.0, 1.0) if (ending := watching.look()))
    assert ending.kind == kind
