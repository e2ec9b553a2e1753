"""The Makefile's own words: the list of targets, and one-line errors before anything is installed."""

import shutil
import subprocess

import pytest

from tests.conftest import ROOT


@pytest.fixture
def make(tmp_path):
    """Run make in a folder that holds only what `make setup` reads first."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def run(*arguments):
        return subprocess.run(["make", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    return run


def test_a_bare_make_lists_the_targets(make):
    listed = make().stdout
    for target in ("setup", "lab", "test", "lint", "lessons", "exercises", "clean"):
        assert f"make {target} " in listed


def test_an_old_python_is_one_line(make, tmp_path):
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")  # whatever it is asked, it is not new enough
    old.chmod(0o755)
    done = make("setup", f"PYTHON={old}")
    assert done.returncode == 2
    assert "older than Python 3.11" in done.stderr.splitlines()[0] and "make setup PYTHON=python3.11" in done.stderr


def test_a_missing_python_is_one_line(make):
    done = make("setup", "PYTHON=nosuchpython")
    assert done.returncode == 2 and "nosuchpython was not found" in done.stderr.splitlines()[0]


def test_an_unknown_mpi_is_one_line(make):
    done = make("setup", "MPI=nosuch")
    assert done.returncode == 2 and "choose mpich, openmpi or system" in done.stderr.splitlines()[0]


def test_torch_is_pinned():
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert {"torch", "mpi4py", "mpich", "jupyterlab", "nbval", "matplotlib", "pytest"} <= set(pins)
    assert "+" not in pins["torch"]  # so that a CPU and a CUDA build both answer to it


def test_ci_runs_the_commands_that_a_user_has():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make lint", "make test"]
