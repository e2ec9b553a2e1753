"""What all tests share: the command line in a subprocess with a deadline, and the proof that nothing is left behind."""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from mpcourse.shared_memory import tidy

ROOT = Path(__file__).resolve().parents[1]
collect_ignore = ["browser"]  # only who names that folder runs it, as `make test-browser` does
BEGAN = time.time()
MARK = uuid.uuid4().hex
os.environ["MPCOURSE_TEST_RUN"] = MARK  # every process that a test starts inherits it


def load_script(path):
    """A Python file outside of any package, imported."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pytest_collection_modifyitems(items):
    """`make test-openmpi` runs those that start ranks by `mpirun`, which they take as a fixture."""
    for item in items:
        if "mpirun" in item.fixturenames:
            item.add_marker("ranks")


def pytest_sessionfinish():
    """What MPI leaves of the runs that tests let abort, which no other process cleans up."""
    tidy(BEGAN)


def started_here():
    """The processes alive that tests of this run started, and those that these started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("MPCOURSE_TEST_RUN") == MARK:
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """After each test no process that it started is alive."""
    yield
    left = started_here()
    told = [f"{p.pid} {' '.join(p.cmdline()[:6])}" for p in left]
    for process in left:
        process.kill()
    assert not told, f"left behind: {told}"


@pytest.fixture
def cli(tmp_path):
    """Run `mpcourse ARGS` as a subprocess; progress goes to a folder of the test's own."""

    def run(*args, env=None, cwd=ROOT, timeout=60):
        environment = {**os.environ, "MPCOURSE_HOME": str(tmp_path / "home"), **(env or {})}
        return subprocess.run(
            [sys.executable, "-m", "mpcourse.cli", *map(str, args)],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture
def small_course(tmp_path, monkeypatch):
    """A copy of tests/course that a test may change. Its path; the ranks of a check find its cases."""
    folder = tmp_path / "course"
    shutil.copytree(ROOT / "tests" / "course", folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("MPCOURSE_ROOT", str(folder))
    return folder


@pytest.fixture
def mpirun(tmp_path):
    """Run a Python file under the real mpirun; a deadline ends it. Its output is without colours."""
    from mpcourse.check.verdict import clean
    from mpcourse.launch import mpirun_command, rank_environment

    def run(size, *command, timeout=60):
        done = subprocess.run(
            mpirun_command(size, [sys.executable, *map(str, command)]),
            capture_output=True,
            text=True,
            timeout=timeout,
            env=rank_environment(),
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
        )
        done.stdout = clean(done.stdout)  # Open MPI lets ranks believe that they write to a terminal
        return done

    return run


@contextlib.contextmanager
def jupyterlab(command, environment, log):
    """A JupyterLab that `command` starts, which prints to the file `log`: its address and its token."""
    with log.open("w") as output:
        server = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT
        )
    try:
        deadline, address = time.monotonic() + 60, None
        while not address:
            assert time.monotonic() < deadline and server.poll() is None, log.read_text()
            address = re.search(r"(http://(?:127\.0\.0\.1|localhost):\d+)\S*\?token=(\w+)", log.read_text())
            time.sleep(0.1)
        yield address[1], address[2]
    finally:
        server.terminate()  # make hands it on to JupyterLab, which ends its kernels
        server.wait(timeout=20)
