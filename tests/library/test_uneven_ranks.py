"""Ranks that are late, and look after what is under way, at times of their own still train as one process does."""

import functools
from pathlib import Path

import pytest
import torch

from mpcourse.virtual import run
from tests.conftest import load_script

PROGRAM = Path(__file__).parents[1] / "programs" / "uneven_ranks.py"
script = load_script(PROGRAM)
alone = functools.cache(script.alone)
WITHIN = 1e-12  # of numbers of about one, in double precision


@pytest.mark.parametrize("double_buffering", [False, True])
@pytest.mark.parametrize("kind", script.KINDS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_that_are_late_at_random_equal_one_process(size, kind, double_buffering):
    wanted = alone(double_buffering)
    for seed in range(script.SEEDS):
        for found in run(lambda comm, seed=seed: script.uneven(comm, kind, seed, double_buffering), size).results:
            torch.testing.assert_close(found, wanted, rtol=0, atol=WITHIN)


@pytest.mark.parametrize("size", [2, 3])
def test_real_ranks_do_too(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", PROGRAM)
    assert done.returncode == 0, done.stderr[-3000:]
    off = [float(told) for told in done.stdout.split()]
    assert len(off) == size and all(each < WITHIN for each in off)
