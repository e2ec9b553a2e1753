"""A pipeline over real MPI ranks equals the whole model, and what goes wrong on one rank ends them all."""

import argparse
import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.course import forkserver
from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.pipeline import PipelineCase, _bubbles, _speeds
from mpcourse.course.examples.pipeline_options import check_batches, check_files
from mpcourse.course.examples.pipeline_report import EPS, compare, difference, durations
from mpcourse.pipeline import Execution, interleaved_one_f_one_b, one_f_one_b

PROGRAM = Path(__file__).parents[1] / "programs" / "pipeline_ranks.py"
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
    "tied alone": "tied parameter 'w' is named on rank {last} alone, so its gradients would be added to no others",
    "other name": "is named on rank",
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
    done = mpirun(2, "-m", "mpcourse.course.examples.pipeline", *asked, "--save", picture, "--json", told)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "One process alone learns the same" in done.stdout and str(picture) in done.stdout
    assert "<svg" in picture.read_text()
    found = json.loads(told.read_text())
    assert found["difference"] < found["rounding"] < 1e-5 and found["losses"][-1] < 0.85 * found["losses"][0]
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
        (["--batch", 5000], "mpcourse: --batch 5000: there are only 1437 examples to train on"),
        (["--json", "/nowhere/out.json"], "mpcourse: /nowhere/out.json cannot be written (No such file"),
        (["--schedule", "gpip"], "invalid choice: 'gpip'"),
    ],
)
def test_the_demonstration_refuses_once_what_cannot_be(mpirun, asked, said):
    done = mpirun(2, "-m", "mpcourse.course.examples.pipeline", *asked)
    assert done.returncode == 2 and done.stderr.count(said) == 1 and "Traceback" not in done.stderr
    assert done.stdout == ""  # no one waits for a training, to be told then


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"epochs": 0}, "--epochs 0: 1 or more is needed"),
        ({"batch": 5000}, "--batch 5000: there are only 1437 examples to train on"),
        ({"batch": 1437, "microbatches": 1438}, "--batch 1437: 1437 examples cannot make 1438 micro-batches"),
        ({"batch": 1, "microbatches": 2}, "--batch 1: 1 example cannot make 2 micro-batches"),
        ({"batch": 700, "microbatches": 38}, "of 1437 examples it leaves 37 for the last batch of an epoch, which"),
        ({"lr": float("nan")}, "--lr nan: a number of float32 above 0 is needed"),
        ({"lr": 1e39}, "--lr 1e+39: a number of float32 above 0 is needed"),
        ({"save": Path("out.foo")}, "out.foo: its ending names no image format: choose one of"),
        ({"save": Path("/nowhere/out.svg")}, "/nowhere/out.svg cannot be written (No such file"),
        ({"json": Path("/")}, "/ cannot be written (Is a directory)"),
    ],
)
def test_what_cannot_be_is_told_before_the_training(tmp_path, asked, said):
    usual = {"epochs": 1, "batch": 512, "width": 8, "lr": 0.02, "microbatches": 8, "json": tmp_path / "out.json"}
    usual |= {"save": tmp_path / "out.SVG"}
    for options in (usual, usual | {"batch": 1437, "microbatches": 1437}, usual | {"batch": 700, "microbatches": 37}):
        check_batches(argparse.Namespace(**options), 1437)
    check_files(argparse.Namespace(**usual))
    with pytest.raises(UserError) as told:
        check_batches(argparse.Namespace(**usual | asked), 1437)
        check_files(argparse.Namespace(**usual | asked))
    assert said in str(told.value) and "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_after_all_ends_all_ranks_with_one_line(mpirun, tmp_path):
    asked = ["--epochs", 1, "--width", 16, "--save", tmp_path / "out.svg", "--json", "/dev/full"]
    done = mpirun(2, "-m", "mpcourse.course.examples.pipeline", *asked)
    assert done.returncode == 2 and done.stderr.count("mpcourse: ") == 1 and "Traceback" not in done.stderr
    assert "/dev/full cannot be written" in done.stderr


@pytest.mark.parametrize(
    ("size", "asked"),
    # Narrower networks are trained sooner, and learn in more epochs.
    [
        (1, ["--width", 256, "--epochs", 10]),
        (2, []),
        (3, ["--width", 128, "--epochs", 10]),
        (4, ["--width", 192, "--epochs", 8]),
    ],
)
def test_the_demonstration_learns_well_as_it_stands_on_1_to_4_ranks(mpirun, tmp_path, size, asked):
    told = tmp_path / "told.json"
    asked = [*asked, "--save", tmp_path / "out.svg", "--json", told]
    done = mpirun(size, "-m", "mpcourse.course.examples.pipeline", *asked, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"1f1b: {size} rank{'s' * (size > 1)}, 8 micro-batches" in done.stdout
    right = float(done.stdout.split(" % of the test digits")[0].split()[-1])
    found = json.loads(told.read_text())
    assert right > 90 and found["losses"] == sorted(found["losses"], reverse=True)
    assert found["difference"] < 0.2 * found["rounding"] and "That is rounding" in " ".join(done.stdout.split())
    assert "It grew" not in done.stdout
    step = found["measured"]["makespan"]
    computed = size * step - sum(found["measured"]["idle"])
    assert f"A step takes {step:.0f} ms" in done.stdout and f"compute {computed:.0f} ms of a step" in done.stdout


def test_where_training_diverges_all_ranks_say_so_and_fail(mpirun, tmp_path):
    picture = tmp_path / "out.svg"
    done = mpirun(2, "-m", "mpcourse.course.examples.pipeline", "--lr", 1e38, "--width", 64, "--save", picture)
    assert done.returncode == 1 and done.stderr.count("mpcourse: ") == 1, done.stderr[-3000:]
    assert "training diverged: in step 2 the loss is " in done.stderr and "A lower --lr helps" in done.stderr
    assert "learns" not in done.stdout and "Traceback" not in done.stderr and not picture.exists()


def test_where_training_is_unstable_the_demonstration_claims_no_equality(mpirun, tmp_path):
    told = tmp_path / "told.json"
    asked = ["--lr", 50, "--epochs", 3, "--width", 64, "--save", tmp_path / "out.svg", "--json", told]
    done = mpirun(2, "-m", "mpcourse.course.examples.pipeline", *asked)
    found = json.loads(told.read_text())
    assert done.returncode == 0 and found["losses"][-1] > found["losses"][0] and "It grew: a lower --lr" in done.stdout
    assert found["difference"] > found["rounding"] and f"differ by up to {found['difference']:.1e}" in done.stdout
    assert "same" not in done.stdout.split("A step takes")[0] and "That is rounding" not in " ".join(
        done.stdout.split()
    )


def test_only_what_rounding_of_each_step_explains_is_called_rounding():
    whole, parts = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
    for off, same in ((39 * EPS, True), (41 * EPS, False)):  # the largest parameter is 4
        with torch.no_grad():
            whole.weight.copy_(torch.tensor([-4.0, 0.5]))
            parts.weight.copy_(torch.tensor([-4.0, 0.5 + off]))
        told = compare(whole, parts, steps=10)
        assert told == {"steps": 10, "difference": pytest.approx(off), "rounding": pytest.approx(40 * EPS)}
        assert ("learns the same" in difference(told), "That is rounding" in difference(told)) == (same, same)
    for nothing in (float("nan"), float("inf")):
        assert "learns the same" not in difference(told | {"difference": nothing})


def test_a_step_is_told_beside_one_process_with_the_whole_batch_and_with_the_same_micro_batches():
    options = argparse.Namespace(microbatches=8, batch=512)
    said = durations(1000, options, 175.2, 148.1, 290.4)
    assert said.startswith("A step takes 175 ms on 1000 ranks, which share ")
    assert "148 ms for the whole batch at once, and 290 ms for the same micro-batches" in said
    assert "products of 64 rows take longer, row by row, than of 512" in said
    assert "longer" not in durations(1, options, 175, 148, 150) and "on 1 rank." in durations(1, options, 175, 148, 150)
    options.microbatches = 1
    assert durations(1, options, 175, 148, 149) == "A step takes 175 ms on 1 rank. One process alone takes 148 ms."


def test_the_benchmark_compares_gradients_with_torchs_pipeline():
    cases = [PipelineCase("gpipe", 1, 16, 16, 1, 2), PipelineCase("1f1b", 1, 16, 16, 1, 2, True)]
    cases += [PipelineCase("gpipe", 1, 8, 8, 1, 1, True, ticks=0.002)]
    speed, bubble, ticking = measured("mpcourse.course.bench.pipeline_ranks", cases, 2, starter=forkserver.python())
    (by_clock,) = list(_bubbles(PipelineCase(*ticking["case"]), ticking, 2))[1:]
    assert by_clock.what == "gpipe, stages of 2 and 4 ms: bubble / (p-1)/(m+p-1)" and by_clock.promise == 1.15
    assert by_clock.runs == [pytest.approx(9 * ticking["bubbles"][0][0])] and by_clock.runs[0] < 9
    assert speed["difference"] < 1e-5 and [len(v) for v in speed["seconds"].values()] == [1, 1]
    assert len(speed["ratios"]) == 1 and len(bubble["bubbles"]) == 2
    assert [r.unit for r in _speeds(PipelineCase(*speed["case"]), speed)] == [
        "examples/s",
        "examples/s",
        "times",
        "millionths",
    ]


def test_bench_asks_for_ranks_only_where_there_are_some(cli):
    done = cli("bench", "course", "--np", 2)
    assert done.returncode == 2 and "--np only works with allreduce, context, crossovers" in done.stderr
    done = cli("bench", "pipeline", "--np", 1)
    assert done.returncode == 2 and "needs 2 ranks or more" in done.stderr
