"""What a new learner waits for: `make setup` in an empty folder, and JupyterLab's address, twice."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.bench.record import Record
from mpcourse.course.check.manifest import load_course

ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|localhost):\d+\S*token=")
PATIENCE = 120.0  # seconds for JupyterLab to print it


def setup(runs: int = 3) -> Iterator[Record]:
    """Install the course into new virtual environments, each 1.3 GB that are removed again. Needs the network."""
    root = load_course().root
    if not (root / "Makefile").is_file() or not shutil.which("make"):
        raise UserError("`bench setup` runs `make setup`: start it in the course's folder, with make installed")
    installed, first, second = [], [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="mpcourse-setup-") as folder:
            venv = f"VENV={folder}/venv"
            start = time.perf_counter()
            done = subprocess.run(["make", "setup", venv], cwd=root, capture_output=True, text=True)
            if done.returncode:
                raise UserError(f"`make setup` failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
            installed.append(time.perf_counter() - start)
            first.append(_address(root, Path(folder), venv))
            second.append(_address(root, Path(folder), venv))
    yield Record("make setup, a new virtual environment", installed, promise=45.0)
    yield Record("make lab, the first: until JupyterLab prints its address", first)
    yield Record("make lab, the second", second, promise=3.0)


def _address(root: Path, folder: Path, venv: str) -> float:
    """Measure the seconds until `make lab` has printed the address. Ends JupyterLab."""
    log = folder / "lab.log"
    start = time.perf_counter()
    with log.open("w") as output:
        lab = subprocess.Popen(
            ["make", "lab", venv, "LAB_ARGS=--port=0 --no-browser"], cwd=root, stdout=output, stderr=output,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        while not ADDRESS.search(log.read_text()):
            seconds = time.perf_counter() - start
            if lab.poll() is not None or seconds > PATIENCE:
                raise UserError(f"`make lab` printed no address: {log.read_text()[-300:]}")
            time.sleep(0.01)
        return time.perf_counter() - start
    finally:
        _end(lab)


def _end(lab: subprocess.Popen) -> None:
    """End JupyterLab, which misses a signal that reaches it just after it has printed its address."""
    for number in (*[signal.SIGTERM] * 10, signal.SIGKILL):
        os.killpg(lab.pid, number)
        try:
            lab.wait(2)
            return
        except subprocess.TimeoutExpired:
            continue
