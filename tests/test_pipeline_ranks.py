"""A pipeline over real MPI ranks equals the whole model, and what goes wrong on one rank ends them all."""

import json
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "pipeline_ranks.py"
EQUAL_CASES = 5 * (4 + 9)  # for each schedule, numbers of micro-batches, and kinds of model


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_training_on_ranks_equals_the_whole_models(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", PROGRAM, "equal", timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(set(json.loads(done.stdout))) == EQUAL_CASES


# What rank 1 does wrong, or all do, and what then every rank says.
REFUSED = {
    "stages": "needs one rank a stage: this schedule has {more}, this run {p}. Start it with -np {more}",
    "fewer": "this schedule has {less}, this run {p}",
    "chunks": "rank {last} was given 2 of the model's parts: this schedule needs 1 a rank",
    "other": "rank 1 was given another schedule, seed or checkpoint setting than rank 0",
    "seed": "rank 1 was given another schedule, seed",
    "illegal": "IllegalAction: stage {last}, action 0, B0: the gradient before its forward",
    "tied": "tied parameter 'w' is not the same on all ranks: {{0: ((2,)",
    "x": "rank 0 needs x",
    "target": "rank {last} needs target",
    "lengths": "x has 7 examples on rank 0, target has 8 on rank {last}",
    "short": "a batch of 3 examples cannot make 4 micro-batches",
    "works": "nothing",
    "broken": "ZeroDivisionError",
    "again": "this pipeline stopped in the middle of a step: rank 1 raised ZeroDivisionError('this layer cannot')",
    "anew": "nothing",
}


@pytest.mark.parametrize("size", [2, 3])
def test_what_is_wrong_on_one_rank_every_rank_says_and_none_waits(mpirun, size):
    done = mpirun(size, PROGRAM, "refused")
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said.keys() == REFUSED.keys()
    for case, phrase in REFUSED.items():
        told = phrase.format(p=size, more=size + 1, less=size - 1, last=size - 1)
        assert [told in rank for rank in said[case]] == [True] * size, (case, said[case])
    assert [rank.split(":")[0] for rank in said["broken"]] == ["RankFailed", "ZeroDivisionError", "RankFailed"][:size]


def test_ranks_end_by_themselves_while_messages_wait_for_a_rank_that_raised(mpirun):
    done = mpirun(3, PROGRAM, "breaks_with_large_messages", timeout=40)
    assert done.returncode != 0
    assert done.stderr.count("RankFailed: rank 2 raised ZeroDivisionError") == 2
