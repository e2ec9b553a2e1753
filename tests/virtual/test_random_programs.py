"""Random programs on virtual ranks and on real ones: the same bits, or no end on either.

New ones in each run; a test that fails says its seed. MPCOURSE_SEED=12345 runs those of that seed again, and
MPCOURSE_PROGRAMS=400 as many on each number of ranks.
"""

import json
import os
import secrets
import subprocess
import time
from pathlib import Path

import pytest

from mpcourse.common.launch import mpirun_command, rank_environment
from mpcourse.virtual import MPI, Deadlock, run
from tests.conftest import load_script, python

FILE = Path(__file__).parents[1] / "programs" / "random_programs.py"
programs = load_script(FILE)
SEED = int(os.environ.get("MPCOURSE_SEED") or 1000 * secrets.randbelow(10**6))
EACH = int(os.environ.get("MPCOURSE_PROGRAMS") or 100)  # programs, on 2, 3 and 4 ranks
HANGING, UNCERTAIN, FOR_REAL = 60, 3 * EACH, 3
SECONDS = 4  # that real ranks are given to end


@pytest.mark.parametrize("size", [2, 3, 4])
def test_random_programs_give_the_same_bits_on_virtual_ranks_and_under_mpirun(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", FILE, SEED, EACH, timeout=max(120, EACH))
    real = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(real) == EACH, f"MPCOURSE_SEED={SEED + len(real)}: {done.stderr[-2000:]}"
    for seed, expected in enumerate(real, SEED):
        text = programs.source(seed, size)
        found = run(lambda comm, text=text: programs.play(text, "program", comm, MPI), size).results
        assert json.loads(json.dumps(found)) == expected, f"MPCOURSE_SEED={seed}, {size} ranks:\n{text}"


def test_random_programs_that_hang_are_deadlocks_with_the_line_of_each_rank_that_waits():
    for seed in range(SEED, SEED + HANGING):
        size = 2 + seed % 3
        text, last = programs.hanging(seed, size)
        with pytest.raises(Deadlock) as told:
            run(lambda comm, text=text: programs.play(text, "program", comm, MPI), size)
        lines = {wait.rank: wait.line for wait in told.value.waits}
        assert lines == {r: f"program:{n}" for r, n in last.items()}, f"MPCOURSE_SEED={seed}, {size} ranks:\n{text}"


def test_programs_that_may_hang_end_or_are_deadlocks_as_a_simulation_of_their_calls_says():
    hanging = 0
    for seed in range(SEED, SEED + UNCERTAIN):
        size = 2 + seed % 4
        text, waits = programs.uncertain(seed, size)
        try:
            run(lambda comm, text=text: programs.play(text, "program", comm, MPI), size)
            found = {}
        except Deadlock as deadlock:
            found = {wait.rank: wait.line for wait in deadlock.waits}
        assert found == {r: f"program:{n}" for r, n in waits.items()}, f"MPCOURSE_SEED={seed}, {size} ranks:\n{text}"
        hanging += bool(waits)
    assert 0.1 < hanging / UNCERTAIN < 0.9


@pytest.mark.ranks
def test_some_of_them_hang_on_real_ranks_too():
    """Side by side, for each takes all the time that it is given."""
    begun = [
        subprocess.Popen(
            mpirun_command(2 + seed % 3, python("-m", "mpi4py", FILE, "hang", seed)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=rank_environment(),
        )
        for seed in range(SEED, SEED + FOR_REAL)
    ]  # fmt: skip
    try:
        for process in begun:
            assert process.stdout.readline().strip() == "begun"
        time.sleep(SECONDS)
        for seed, process in enumerate(begun, SEED):
            assert process.poll() is None, f"MPCOURSE_SEED={seed} ended: {process.communicate()}"
    finally:
        for process in begun:
            process.terminate()  # mpirun ends its ranks
            process.communicate(timeout=20)
