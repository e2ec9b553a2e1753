"""Ranks of one machine exchange flags, and all-reduce, in memory that all of them see."""

from pathlib import Path

import pytest

TRUTH = Path(__file__).parents[1] / "programs" / "shared_memory_truth.py"


@pytest.mark.parametrize("size", [2, 3, 4])
def test_flags_and_sums_in_shared_memory_are_what_ranks_brought_in(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", TRUTH)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["equal"] * size
