"""A pipeline over real MPI ranks equals the whole model, and what goes wrong on one rank ends them all."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from mpcourse.bench import Record
from mpcourse.bench.pipeline import Case, _measured, _speeds
from mpcourse.pipeline import Execution, interleaved_one_f_one_b, one_f_one_b

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


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b"])
def test_the_demonstration_learns_digits_equals_one_process_and_draws(mpirun, tmp_path, name):
    picture, told = tmp_path / "pipeline.svg", tmp_path / "pipeline.json"
    asked = ["--schedule", name, "--microbatches", 4, "--epochs", 4, "--width", 64, "--batch", 240, "--lr", 0.02]
    done = mpirun(2, "-m", "mpcourse.pipeline.ranks", *asked, "--save", picture, "--json", told)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "One process alone learns the same" in done.stdout and str(picture) in done.stdout
    assert "<svg" in picture.read_text()
    found = json.loads(told.read_text())
    assert found["difference"] < 1e-4 and found["losses"][-1] < 0.85 * found["losses"][0]
    schedule = one_f_one_b(2, 4) if name == "1f1b" else interleaved_one_f_one_b(2, 4, 2)
    for run in ("measured", "predicted"):
        ran = Execution.from_dict(found[run])
        assert [[t.action for t in row] for row in ran.stages] == schedule
        assert all(a.end <= b.start + 1e-6 for row in ran.stages for a, b in pairwise(row))
    # A stage's forward begins only after that of the stage before has ended: the ranks' clocks agree.
    measured = Execution.from_dict(found["measured"])
    ends = {t.action: t.end for t in measured.stages[0] if t.action.kind == "F"}
    assert all(t.start >= ends[t.action] for t in measured.stages[1] if t.action.kind == "F")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--microbatches", 0], "mpcourse: microbatches must be a whole number, 1 or more: got 0"),
        (["--epochs", 0], "mpcourse: --epochs 0: 1 or more is needed"),
        (["--batch", 700, "--microbatches", 60], "leaves a batch of 37: it must be 60 micro-batches or more"),
        (["--schedule", "gpip"], "invalid choice: 'gpip'"),
    ],
)
def test_the_demonstration_refuses_once_what_cannot_be(mpirun, asked, said):
    done = mpirun(2, "-m", "mpcourse.pipeline.ranks", *asked)
    assert done.returncode == 2 and done.stderr.count(said) == 1 and "Traceback" not in done.stderr


def test_the_benchmark_compares_gradients_with_torchs_pipeline():
    speed, bubble = _measured([Case("gpipe", 1, 16, 16, 1, 2), Case("1f1b", 1, 16, 16, 1, 2, True)], 2)
    assert speed["difference"] < 1e-5 and [len(v) for v in speed["seconds"].values()] == [1, 1]
    assert len(speed["ratios"]) == 1 and len(bubble["bubbles"]) == 2
    assert [r.unit for r in _speeds(Case(*speed["case"]), speed)] == ["examples/s", "examples/s", "times", "millionths"]


def test_a_promise_may_be_a_lower_bound():
    assert Record("faster", [1.3, 1.1, 1.2], promise=1.2, at_least=True).kept
    assert not Record("slower", [1.3, 1.1, 1.1], promise=1.2, at_least=True).kept
    assert not Record("longer", [1.3, 1.1, 1.3], promise=1.2).kept


def test_bench_asks_for_ranks_only_where_there_are_some(cli):
    done = cli("bench", "course", "--np", 2)
    assert done.returncode == 2 and "--np is of `mpcourse bench pipeline`" in done.stderr
    done = cli("bench", "pipeline", "--np", 1)
    assert done.returncode == 2 and "needs 2 ranks or more" in done.stderr
