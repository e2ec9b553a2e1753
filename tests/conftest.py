"""What all tests share: the command line in a subprocess with a deadline, and the proof that nothing is left behind."""

import atexit
import contextlib
import functools
import gc
import importlib.util
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from xdist.scheduler import LoadScopeScheduling

from mpcourse.common.shared_memory import tidy
from mpcourse.course.check.seeding import SEED
from mpcourse.course.forkserver import ADDRESS, ForkServer, offered
from mpcourse.course.forkserver.descent import children, subreaper
from tests import forked_kernels
from tests.explanations import Reached

ROOT = Path(__file__).resolve().parents[1]
# Only who names them runs them, as `make test-browser` and `make test ALSO=browser` do.
collect_ignore = sorted({"browser", "doors"} - set(os.environ.get("MPCOURSE_ALSO", "").split()))
BEGAN = time.time()
FROZEN = {"file": None, "modules": 0}  # when objects were last frozen: the file of the test, the number of modules
KEPT = {}  # by number, processes that serve several tests; whether those that they start are theirs, and no test's
# What most processes of tests import, but never MPI, which no fork survives. (Nor scikit-learn, which is imported once
# a machine, for the digits: its hundreds of libraries make each fork a quarter slower.)
PRELOADED = (
    *("torch", "torch._dynamo", "numpy", "matplotlib.pyplot", "rich.console", "tqdm"),
    *(
        "mpcourse.course.cli",
        "mpcourse.course.commands.check",
        "mpcourse.course.check.single_process",
        "mpcourse.course.check.rank",
        "mpcourse.data",
    ),
    *(
        "mpcourse.course.check.virtual_run",
        "mpcourse.data_parallel",
        "mpcourse.pipeline",
    ),
    *("mpcourse.plot", "mpcourse.predict"),
)

# What fails fails again. Other numbers: MPCOURSE_CHECK_SEED=7 make test
os.environ.setdefault(SEED, "1")

JUDGED = ("test_a_wrong_answer_is_named", "test_a_right_answer_passes")
ONE_BY_ONE = ("test_answers", "test_checker", "test_cli", "test_exercises", "test_odd_values", "test_pipeline_ranks")
# Files that share what takes long to make: the site's pages, the Dockerfile's image.
TOGETHER = {"test_site": "site", "test_site_pages": "site", "test_image": "image", "test_colab_run": "image"}

if offered():
    subreaper()  # what a test leaves behind becomes this process's child, wherever it hides
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of `make test &`, whose processes would never hear of Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def load_script(path):
    """Import a Python file outside of any package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pytest_addoption(parser):
    help_text = "judge one answer of N to the exercises, drawn by MPCOURSE_SEED"
    parser.addoption("--answers-one-in", type=int, default=1, metavar="N", help=help_text)


def pytest_report_header(config):
    if (n := config.getoption("--answers-one-in")) > 1:
        return f"one answer of {n} is judged; MPCOURSE_SEED={os.environ['MPCOURSE_SEED']} makes the same choice again"
    return None


def pytest_configure(config):
    """Register the plugins. The process that gathers the results of all workers looks at what they say together."""
    if config.getoption("--answers-one-in") > 1:  # workers inherit it
        os.environ.setdefault("MPCOURSE_SEED", str(random.randrange(10**6)))
    config.pluginmanager.register(ForkedKernels())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reached(ROOT))


def pytest_sessionstart(session):
    """Let the server import while tests are collected. The process that only hands tests to workers needs no server."""
    if (
        offered()
        and getattr(session.config.option, "dist", "no") != "no"
        and not hasattr(session.config, "workerinput")
    ):
        return
    gc.disable()  # what is imported until tests are collected stays
    if offered() and not session.config.option.collectonly:
        forks()


def pytest_collection_modifyitems(config, items):
    """Mark the tests that start ranks, which `make test-openmpi` runs, and draw the answers that are judged."""
    if (n := config.getoption("--answers-one-in")) > 1:
        draw = random.Random(os.environ["MPCOURSE_SEED"])
        answers = [item for item in items if getattr(item, "originalname", "") in JUDGED]
        left_out = set(draw.sample(answers, len(answers) - len(answers) // n))
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
    for item in items:
        if "mpirun" in getattr(item, "fixturenames", ()):
            item.add_marker("ranks")


def pytest_collection_finish(session):
    freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Remove what tests of another file made, and new modules, such as torch._dynamo, made by the first optimizer."""
    if FROZEN["file"] != item.path or len(sys.modules) > FROZEN["modules"] + 20:
        freeze()
    FROZEN["file"] = item.path


def freeze():
    """Python looks no more at the 400,000 objects of imported modules, when it collects garbage or a box is left."""
    gc.collect()
    gc.freeze()
    FROZEN["modules"] = len(sys.modules)


class ByFile(LoadScopeScheduling):
    """A worker takes the tests of a file one after the other, or of files that go together, and the cells of a lesson.

    Those of some long files, which share nothing, are handed out one by one, and fill up the end of a run.
    """

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        stem = Path(file).stem
        return nodeid if stem in ONE_BY_ONE else TOGETHER.get(stem, file)


class ForkedKernels:
    """A plugin, for hooks of this file do not concern lessons, which lie elsewhere.

    A lesson's first cell starts its kernel, which is forked, as are the ranks that its cells start.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        cell = type(item).__name__ == "IPyNbCell" and offered()
        with forked_kernels.found_by_jupyter(kernels()) if cell else contextlib.nullcontext():
            return (yield)


@functools.cache
def kernels():
    """Return a folder with the kernel of notebooks, which this run's fork server starts."""
    folder = Path(tempfile.mkdtemp(prefix="mpcourse-kernels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    forked_kernels.write_spec(folder, python())
    return folder


def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)


def pytest_sessionfinish():
    """Remove what MPI leaves of runs that tests let abort, because no other process does."""
    tidy(BEGAN)


@functools.cache
def forks():
    """Start the fork server of this run. Processes that it starts have imported all that most of them need."""
    cases = (ROOT / "mpcourse" / "course" / "check" / "cases").glob("*.py")
    names = (f"mpcourse.course.check.cases.{case.stem}" for case in cases if case.stem != "__init__")
    modules = [*PRELOADED, *forked_kernels.MODULES, *names]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | {"OMP_NUM_THREADS": "1"}
    server = ForkServer(modules, environment)
    atexit.register(server.close)
    os.environ[ADDRESS] = server.listening()  # what a test starts may use it, too
    return server


def python(*arguments):
    """Return a command that runs Python with these arguments, as sys.executable does, but begins at once."""
    return forks().command(*map(str, arguments)) if offered() else [sys.executable, *map(str, arguments)]


def imported_by(names, *suspects):
    """Which of the modules `suspects` a process imports that imports those of `names`, and none of the course before.

    That process begins with torch, which takes longer than all the rest, and forgets what else it comes with.
    """
    packages = {name.partition(".")[0] for name in (*names, *suspects)}
    code = (
        f"import sys, torch\nfor name in list(sys.modules):\n    if name.partition('.')[0] in {packages}:\n"
        f"        del sys.modules[name]\nimport {', '.join(names)}\n"
        f"print(*(name for name in {suspects} if name in sys.modules))"
    )
    done = subprocess.run(python("-c", code), capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def torchrun(*arguments):
    """Return a command that runs torch's launcher with these arguments; its ranks begin at once, too."""
    program = [str(kernels() / "bin" / "torchrun")] if offered() else python("-m", "torch.distributed.run")
    return [*program, *map(str, arguments)]


def started_here():
    """Return the living processes that tests of this run started, and their descendants, except those in KEPT."""
    servers = {forks().pid} if forks.cache_info().currsize else set()
    found, asked = [], [os.getpid(), *servers]
    while asked:
        for child in children(asked.pop()):
            if child in servers:
                continue
            if not KEPT.get(child):
                asked.append(child)
            if child not in KEPT:
                found.append(child)
    return [process for pid in found if (process := _alive(pid))]


def keep(and_what_they_start):
    """All processes that are alive now serve several tests: a fixture has started them, and ends them."""
    KEPT.update(dict.fromkeys((process.pid for process in started_here()), and_what_they_start))


@pytest.fixture(scope="module")
def time_to_end():
    """End what a fixture has kept for a file's tests, soon after it is asked to."""
    yield
    KEPT.clear()
    deadline = time.monotonic() + 20
    while (left := started_here()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def _alive(pid):
    """Return the process, unless it has ended; reap an orphan that came to this process and has ended."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return process
        if process.ppid() == os.getpid():
            os.waitpid(pid, os.WNOHANG)
    except (psutil.Error, OSError):
        pass
    return None


@pytest.fixture
def one_thread():
    """Let torch use one thread, as the programs do whose results are shipped."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """After each test no process that it started is alive."""
    yield
    deadline = time.monotonic() + 2  # what was forked ends a moment after whoever asked for it
    while (left := started_here()) and all(was_forked(p) for p in left) and time.monotonic() < deadline:
        time.sleep(0.005)
    told = [f"{p.pid} {' '.join(p.cmdline()[:6])}" for p in left]
    for process in left:
        process.kill()
    assert not told, f"left behind: {told}"


def was_forked(process):
    """Whether a fork server is it or has made it, and ends it when nobody wants it; or whether it is ending already."""
    with contextlib.suppress(psutil.Error):
        return not (command := process.cmdline()) or "mpcourse.course.forkserver.server" in command
    return True


@pytest.fixture
def cli(tmp_path):
    """Run `mpcourse ARGS` as a subprocess; progress goes to a folder of the test's own."""

    def run(*args, env=None, cwd=ROOT, timeout=60):
        environment = {**os.environ, "MPCOURSE_HOME": str(tmp_path / "home"), **(env or {})}
        return subprocess.run(
            python("-m", "mpcourse.course.cli", *args),
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
    """Copy tests/small_course for a test that changes it; return its path. The ranks of a check find its cases."""
    folder = tmp_path / "course"
    shutil.copytree(ROOT / "tests" / "small_course", folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("MPCOURSE_ROOT", str(folder))
    return folder


@pytest.fixture
def mpirun(tmp_path):
    """Run a Python file under the real mpirun; a deadline ends it. Its output is without colours."""
    from mpcourse.common.launch import mpirun_command, rank_environment
    from mpcourse.course.check.verdict import clean

    def run(size, *command, timeout=60):
        done = subprocess.run(
            mpirun_command(size, python(*command)),
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
    """Start a JupyterLab by `command`, which prints to the file `log`; return its address and its token."""
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
        started = []
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(server.pid).children(recursive=True)
        server.terminate()  # make hands it on to JupyterLab, which ends its kernels
        server.wait(timeout=20)
        psutil.wait_procs(started, timeout=10)  # a terminal's shell ends when it hears that its terminal has gone
