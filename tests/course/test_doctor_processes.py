"""The doctor and processes: it ends all that it starts, and names what others left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from mpcourse.common import launch
from mpcourse.course.doctor import examine, start, strays, subprocesses
from mpcourse.course.forkserver.descent import subreaper

# Its child keeps nothing of the environment by which the doctor knows its own processes.
HANGS = 'env -i sleep 1000 & echo $$ $! >> "$0.pids"; wait'


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


@pytest.fixture(autouse=True)
def orphans_are_adopted_by_the_system():
    """As anywhere but under this test run, to which what a test leaves behind comes."""
    subreaper(False)
    yield
    subreaper()


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


def tree_of(pid: int, ranks: int) -> list[psutil.Process]:
    """Return the launcher and all its descendants, once `ranks` of them are `sleep`."""

    def tree() -> list[psutil.Process]:
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]

    assert wait_until(lambda: [one.name() for one in tree()].count("sleep") == ranks)
    return tree()


def test_a_launcher_that_hangs_is_fatal_and_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "DEADLINE", 1.0)
    path = launcher(tmp_path, HANGS)
    monkeypatch.setenv("MPCOURSE_MPIRUN", str(path))
    (match,) = (finding for finding in examine() if finding.topic == "match")
    assert match.fatal
    assert match.value.startswith("0 of 2 ranks answered within 1 s")
    assert "mpirun -np 2 hostname" in match.advice
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


def test_a_stray_launcher_is_named_with_its_pid_and_the_kill_that_ends_it(tmp_path):
    path = launcher(tmp_path, "sleep 1000")
    with orphan([str(path), "-np", "2"]) as pid:
        tree = tree_of(pid, ranks=1)
        finding = strays.strays()
        assert (finding.status, finding.fatal) == ("problem", False)
        assert re.search(rf"\b{pid} \(\d+ s old, \d+% CPU\) /bin/sh /", finding.value)
        assert {str(one.pid) for one in tree} <= set(re.findall(r"\d+", finding.advice))
        assert finding.advice.startswith("`kill ")


def test_the_ranks_of_a_real_stray_run_are_named_and_a_plain_kill_ends_them():
    with orphan(launch.mpirun_command(2, ["sleep", "1000"])) as pid:
        tree = tree_of(pid, ranks=2)
        assert {one.pid for one in tree} <= {one.pid for one in strays.leftover()}
        for one in tree:
            with suppress(ProcessLookupError):  # the launcher ends its ranks
                os.kill(one.pid, signal.SIGTERM)
        assert wait_until(lambda: all(gone(one.pid) for one in tree))


def test_a_rank_whose_launcher_is_gone_is_a_stray():
    with orphan(["env", "PMI_SIZE=2", "sleep", "1000"]) as pid:
        tree_of(pid, ranks=1)
        assert pid in {one.pid for one in strays.leftover()}


def test_an_orphan_that_has_nothing_to_do_with_mpi_is_no_stray():
    with orphan(["env", "-u", "PMI_SIZE", "-u", "OMPI_COMM_WORLD_SIZE", "sleep", "1000"]) as pid:
        tree_of(pid, ranks=1)
        assert pid not in {one.pid for one in strays.leftover()}


def test_a_live_run_is_no_stray():
    command = launch.mpirun_command(2, ["sleep", "1000"])
    live = subprocess.Popen(command, env=launch.rank_environment(), start_new_session=True)
    try:
        tree = tree_of(live.pid, ranks=2)
        assert {one.pid for one in tree}.isdisjoint(one.pid for one in strays.leftover())
    finally:
        live.terminate()
        live.wait(10)
    assert wait_until(lambda: all(gone(one.pid) for one in tree))


def test_a_command_has_an_input_that_says_nothing_and_does_not_end():
    """At its end MPICH's mpirun dies of SIGPIPE, if the first ranks have ended already."""
    looks = "import select; print(select.select([0], [], [], 0.2)[0])"
    assert subprocesses.run([sys.executable, "-c", looks], 20).output == "[]\n"
