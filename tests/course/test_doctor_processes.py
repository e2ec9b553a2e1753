"""The doctor and processes: it ends all that it starts, and names what others left behind."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mpcourse.common import launch
from mpcourse.course.doctor import leftovers, mpi, subprocesses
from mpcourse.course.forkserver.descent import subreaper

HANGS = 'sleep 1000 & echo $$ $! >> "$0.pids"; wait'


def launcher(folder: Path, body: str) -> Path:
    """Write a script called mpirun that answers --version with nothing and else does `body`."""
    path = folder / "mpirun"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\n{body}\n')
    path.chmod(0o755)
    return path


def gone(pid: int) -> bool:
    """Whether the process has ended; one that its parent has not waited for yet has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(true, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


@contextmanager
def orphan(command: list[str]) -> Iterator[int]:
    """Return the pid of `command` as a killed kernel leaves it, in its own session without its parent; end it later."""
    program = (
        "import subprocess as s, sys;"
        "print(s.Popen(sys.argv[1:], stdout=s.DEVNULL, stderr=s.DEVNULL, start_new_session=True).pid)"
    )
    starter = [sys.executable, "-c", program, *command]
    done = subprocess.run(starter, capture_output=True, text=True, check=True, env=launch.rank_environment())
    pid = int(done.stdout)
    try:
        yield pid
    finally:
        tree = [] if gone(pid) else [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for one in tree:
            if not gone(one.pid):
                one.kill()
        assert wait_until(lambda: all(gone(one.pid) for one in tree))


@pytest.fixture(autouse=True)
def orphans_leave_this_process(monkeypatch):
    """Let orphans go where they go outside of a test run, or to the process that distributes its tests."""
    subreaper(False)
    with orphan(["sleep", "1000"]) as pid:
        adopter = psutil.Process(pid).ppid()
    monkeypatch.setattr(leftovers, "adopters", lambda: {adopter})
    yield
    subreaper()


def tree_of(pid: int, ranks: int) -> list[psutil.Process]:
    """Return the launcher and all its descendants, once `ranks` of them are `sleep`."""

    def tree() -> list[psutil.Process]:
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]

    assert wait_until(lambda: [one.name() for one in tree()].count("sleep") == ranks)
    return tree()


def test_a_launcher_that_hangs_is_a_problem_and_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(mpi, "DEADLINE", 1.0)
    path = launcher(tmp_path, HANGS)
    monkeypatch.setenv("MPCOURSE_MPIRUN", str(path))
    finding = mpi.ranks("unknown")
    assert finding.status == "problem"
    assert finding.value.endswith("two ranks said: nothing (no end within the deadline)")
    assert finding.command == "mpirun -np 2 hostname"
    pids = [int(pid) for pid in path.with_suffix(".pids").read_text().split()]
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_real_ranks_that_hang_are_ended_too(tmp_path):
    program = f"import os, time; open(r'{tmp_path}/' + str(os.getpid()), 'w'); time.sleep(1000)"
    command = launch.mpirun_command(2, [sys.executable, "-c", program])
    done = subprocesses.run(command, 3, launch.rank_environment())
    ranks = [int(path.name) for path in tmp_path.iterdir()]
    assert done.status is None
    assert len(ranks) == 2
    assert all(gone(pid) for pid in ranks)


def test_a_process_that_outlives_its_command_is_ended():
    program = "import subprocess as s; print(s.Popen(['sleep', '1000'], start_new_session=True).pid)"
    done = subprocesses.run([sys.executable, "-c", program], 10)
    assert done.status == 0
    assert gone(int(done.output))


def test_a_launcher_left_by_a_killed_run_is_named_with_the_kill_that_ends_it(tmp_path):
    path = launcher(tmp_path, "sleep 1000")
    with orphan([str(path), "-np", "2"]) as pid:
        tree_of(pid, ranks=1)
        finding = leftovers.processes()
        assert finding.status == "note"
        assert re.search(rf"\b{pid} /bin/sh /", finding.value)
        assert re.fullmatch(rf"kill (\d+ )*{pid}( \d+)*", finding.command)


def test_a_plain_kill_of_what_is_named_ends_the_ranks_of_a_real_run():
    with orphan(launch.mpirun_command(2, ["sleep", "1000"])) as pid:
        tree = tree_of(pid, ranks=2)
        named = leftovers.orphans()
        assert pid in named
        for one in tree:
            if one.pid in named:
                one.terminate()
        assert wait_until(lambda: all(gone(one.pid) for one in tree))


def test_a_rank_whose_launcher_is_gone_is_left_over():
    with orphan(["env", "PMI_SIZE=2", "sleep", "1000"]) as pid:
        tree_of(pid, ranks=1)
        assert pid in leftovers.orphans()


def test_an_orphan_that_has_nothing_to_do_with_mpi_is_not_left_over():
    with orphan(["env", "-u", "PMI_SIZE", "-u", "OMPI_COMM_WORLD_SIZE", "sleep", "1000"]) as pid:
        tree_of(pid, ranks=1)
        assert pid not in leftovers.orphans()


def test_a_live_run_is_not_left_over():
    command = launch.mpirun_command(2, ["sleep", "1000"])
    live = subprocess.Popen(command, env=launch.rank_environment(), start_new_session=True)
    try:
        tree = tree_of(live.pid, ranks=2)
        assert leftovers.orphans().keys().isdisjoint(one.pid for one in tree)
    finally:
        live.terminate()
        live.wait(10)
    assert wait_until(lambda: all(gone(one.pid) for one in tree))


def test_a_command_has_an_input_that_says_nothing_and_does_not_end():
    """At its end MPICH's mpirun dies of SIGPIPE, if the first ranks have ended already."""
    looks = "import select; print(select.select([0], [], [], 0.2)[0])"
    assert subprocesses.run([sys.executable, "-c", looks], 20).output == "[]\n"
