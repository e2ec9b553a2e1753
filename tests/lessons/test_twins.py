"""The course's library and what torch ships train the same model to the same parameters, as one process does."""

import subprocess
import sys

import pytest
import torch

from mpcourse.virtual import run
from tests.conftest import ROOT, load_script, torchrun

TWINS = ROOT / "lessons" / "twins"
CLOSE = 1e-10  # of float64: all add up the same gradients, in other orders


@pytest.fixture(scope="module")
def model():
    sys.path.insert(0, str(TWINS))
    yield load_script(TWINS / "model.py")
    sys.path.remove(str(TWINS))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Return the results of torchrun's ranks; one start serves all twins."""
    file = tmp_path_factory.mktemp("twins") / "theirs.pt"
    done = subprocess.run(
        torchrun("--standalone", "--nproc-per-node", 4, TWINS / "theirs.py", "--save", file),
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(file)


@pytest.fixture(scope="module")
def ours(model):
    return load_script(TWINS / "ours.py")


def difference(found, want):
    assert found.keys() == want.keys()
    return max((found[name] - want[name]).abs().max().item() for name in want)


NAMES = ("data_parallel", "zero_1", "fully_sharded", "tensor_parallel", "grid", "pipeline")


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_under_torchrun_learns_what_one_process_does(name, theirs, model):
    assert difference(theirs[name], model.one_process()) < CLOSE


@pytest.mark.parametrize("name", NAMES)
def test_ours_learns_what_its_twin_does(name, ours, theirs, model):
    for found in run(ours.WAYS[name], 4).results:
        assert difference(found, theirs[name]) < CLOSE


def test_ours_on_real_ranks_learns_what_its_twin_does(mpirun, theirs, tmp_path):
    done = mpirun(4, TWINS / "ours.py", "--save", tmp_path / "ours.pt", timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(tmp_path / "ours.pt")
    assert list(found) == list(NAMES)
    for name, parameters in found.items():
        assert difference(parameters, theirs[name]) < CLOSE
