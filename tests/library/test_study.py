"""A study: its grid, its folder, and ranks that share the work, are killed, and go on."""

import csv
import functools
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
import torch

from mpcourse.common.errors import UserError
from mpcourse.common.launch import mpirun_command, rank_environment
from mpcourse.common.quiet import BUSY, Noise
from mpcourse.models import mlp
from mpcourse.models.training import train
from mpcourse.studies import run as program
from mpcourse.studies.grid import make_study, read_study
from mpcourse.studies.results import Folder
from mpcourse.studies.run import noise_beside, run_study, work
from mpcourse.studies.task_pool import run_tasks
from mpcourse.virtual import compute, run
from tests.conftest import python

SMALL = {"batch": [64, 256], "rate": [0.05, 0.1], "rule": ["none", "linear"], "seed": 2, "epochs": 3, "together": 3}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.setenv(BUSY, "yes")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def toml(table):
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())


def whole(table, folder):
    """Return the rows and curves of a study that is not stopped."""
    study = make_study(table)
    run(lambda comm: run_study(comm, study, Folder(folder)), 1)
    return Folder(folder).read_rows(), Folder(folder).read_curves()


@functools.cache
def never_killed():
    """Return the rows of LONG."""
    with tempfile.TemporaryDirectory() as folder:
        return whole(LONG, Path(folder) / "whole")[0]


def without_seconds(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


# -- the grid --------------------------------------------------------------------------------------------------------


def test_every_combination_is_one_run_and_every_run_is_in_one_task():
    study = make_study(SMALL | {"optimizer": ["sgd", "lars"]})
    runs, tasks = study.runs(), study.tasks()
    assert len(set(runs)) == len(runs) == 2 * 2 * 2 * 2 * 2
    assert sorted(n for task in tasks for n in task) == list(range(len(runs)))
    for task in tasks:
        assert 1 <= len(task) <= 3
        assert len({(runs[n].batch, runs[n].optimizer) for n in task}) == 1
    assert [runs[task[0]].batch for task in tasks] == [64] * 6 + [256] * 6  # the longest first


def test_of_equal_updates_the_largest_batches_come_first():
    study = make_study({name: value for name, value in SMALL.items() if name != "epochs"} | {"steps": 7})
    assert [study.runs()[task[0]].batch for task in study.tasks()] == [256] * 3 + [64] * 3
    assert {study.length(each, 1000) for each in study.runs()} == {7}


def test_rates_are_scaled_from_the_base_batch_and_warmed_up_by_the_step():
    study = make_study({"batch": 128, "rate": 0.1, "warmup": [0, 2], "base_batch": 32, "epochs": 5, "decay": "cosine"})
    cold, warm = (study.rates(each, 640) for each in study.runs())
    assert len(cold) == len(warm) == 25
    assert cold[0] == pytest.approx(0.4) and cold[12] == pytest.approx(0.2 * (1 + math.cos(math.pi * 12 / 25)))
    assert warm[:11].tolist() == pytest.approx([0.1 + 0.03 * step for step in range(11)])


def test_a_rate_of_the_batchs_own_is_warmed_up_to_from_a_quarter_at_four_times_the_base_batch():
    study = make_study({"batch": [16, 128], "rate": 0.4, "rule": "none", "warmup": 2, "base_batch": 32, "epochs": 5})
    smaller, larger = (study.rates(each, 640) for each in study.runs())
    assert larger[:11].tolist() == pytest.approx([0.1 + 0.03 * step for step in range(11)])
    assert set(smaller.tolist()) == {0.4}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bath": [1]}, "a study has no 'bath': it has batch, rate"),
        ({"batch": []}, "batch is empty"),
        ({"batch": [0]}, "batch: 0 is below 1"),
        ({"batch": [2.5]}, "batch: 2.5 is not what belongs there"),
        ({"batch": [32, 32]}, r"batch: \[32, 32\] names one of them twice"),
        ({"batch": [True]}, "batch: True is not what"),
        ({"rate": [0.0]}, "are above 0"),
        ({"rule": ["cubic"]}, "rule: 'cubic' is none of linear, sqrt, none"),
        ({"optimizer": "adam"}, "optimizer: 'adam' is none of sgd, lars"),
        ({"steps": 5}, "epochs or steps: name one of them, and not both"),
        ({"epochs": 0}, "a run has 1 or more"),
        ({"target": 90}, "target above 0 and at most 1"),
        ({"momentum": 1.0}, "momentum is from 0"),
        ({"seed": [-1]}, "seed, warmup and weight_decay are 0 or more"),
        ({"record_every": 0}, "record_every: 0 is below 1"),
        ({"widths": 64}, "at least an input and an output"),
    ],
)
def test_what_makes_no_sense_in_a_study_is_told_in_one_line(change, said, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(toml(SMALL | change))
    with pytest.raises(UserError, match=said) as error:
        read_study(file)
    assert str(error.value).startswith(f"{file}: ") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": "letters"}, "no dataset is called 'letters'"),
        ({"data_options": {"size": 3}}, "data_options: "),
        ({"widths": [64, 10, 9]}, "digits has 64 inputs and 10 classes"),
        ({"batch": [1438]}, "digits has 1437 examples to train on, not 1438"),
    ],
)
def test_a_study_that_does_not_fit_its_data_is_told(change, said):
    with pytest.raises(UserError, match=said):
        make_study(SMALL | change).load_data()


def test_files_that_are_no_studies_are_told(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("batch = [")
    with pytest.raises(UserError, match="is not TOML"):
        read_study(tmp_path / "bad.toml")
    (tmp_path / "short.toml").write_text("rate = 0.1\n")
    with pytest.raises(UserError, match="batch is missing"):
        read_study(tmp_path / "short.toml")


# -- the pool of tasks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 30])
def test_each_task_is_done_once_and_told_once(size, count):
    told = []

    def body(comm):
        own = []

        def work(task):
            for _ in range(task % 4):
                compute(comm, 1.0)
                yield
            own.append(task)

        run_tasks(comm, list(range(count)), work, told.append)
        return own

    done = run(body, size).results
    assert sorted(task for own in done for task in own) == list(range(count))
    assert sorted(told) == list(range(count))
    assert count < 30 or all(done)  # nobody is left out


# -- results ---------------------------------------------------------------------------------------------------------


def test_a_row_tells_what_the_plain_loop_finds(tmp_path):
    table = SMALL | {"target": 0.8, "record_every": 5}
    rows, curves = whole(table, tmp_path / "out")
    study = make_study(table)
    data = study.load_data()
    for row in rows[::5]:
        each = study.runs()[row["run"]]
        torch.manual_seed(each.seed)
        model = mlp(study.widths)
        optimizer = torch.optim.SGD(model.parameters(), lr=row["scaled_rate"], momentum=0.9)
        curve = train(model, data, optimizer, 3, each.batch, each.seed, record_every=5, progress=False)
        assert row["scaled_rate"] == each.rate * (each.batch / 32 if each.rule == "linear" else 1)
        assert (row["steps"], row["epochs"]) == (curve.step[-1], 3)
        assert row["final_accuracy"] == pytest.approx(curve.test_accuracy[-1], abs=0.01)
        reached = [s for s, accuracy in zip(curve.step, curve.test_accuracy, strict=True) if accuracy >= 0.8]
        assert row["steps_to_target"] == (reached[0] if reached else None)
        assert curves[row["run"]].step == curve.step
        assert curves[row["run"]].train_loss == pytest.approx(curve.train_loss, rel=1e-3)
    assert {row["steps_to_target"] is None for row in rows} == {True, False}


def test_the_tables_are_tidy_and_the_manifest_says_where_they_were_made(tmp_path):
    rows, curves = whole(SMALL, tmp_path / "out")
    with (tmp_path / "out" / "runs.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [int(row["run"]) for row in table] == list(range(16))
    assert {(row["batch"], row["rule"], row["rate"], row["seed"]) for row in table} == {
        (str(row["batch"]), row["rule"], str(row["rate"]), str(row["seed"])) for row in rows
    }
    assert all(None not in row and None not in row.values() for row in table)
    with (tmp_path / "out" / "curves.csv").open() as file:
        records = list(csv.DictReader(file))
    assert len(records) == sum(len(curve.step) for curve in curves.values()) == 16 * 3
    manifest = Folder(tmp_path / "out").manifest()
    (session,) = manifest["sessions"]
    assert manifest["study"]["batch"] == [64, 256] and session["ranks"] == 1
    assert session["versions"]["torch"] == version("torch") and session["hardware"]["cores"] == psutil.cpu_count()
    assert session["date"][:2] == "20" and session["command"] == shlex.join(sys.orig_argv)


def test_the_noise_is_measured_once_while_the_other_ranks_sleep(monkeypatch):
    asked = []
    monkeypatch.setattr(program, "noise", lambda: asked.append(1) or Noise(0.02, 0.1))
    assert run(noise_beside, 3).results == [Noise(0.02, 0.1)] * 3 and asked == [1]


def test_each_session_tells_its_noise_and_one_that_did_not_measure_it_says_so(tmp_path):
    study, folder = make_study(SMALL), Folder(tmp_path / "out")
    for measured in (Noise(0.02, 0.1), Noise(None, 0.1), None):
        folder.begin(study, 1, "", measured)
    told = [session["noise"] for session in folder.manifest()["sessions"]]
    assert told == [{"others": 0.02, "spread": 0.1}, {"others": None, "spread": 0.1}, "not recorded"]


def test_a_folder_of_another_study_is_refused_on_every_rank(tmp_path):
    whole(SMALL, tmp_path / "out")
    other = make_study(SMALL | {"momentum": 0.5})

    def body(comm):
        with pytest.raises(UserError, match=r"holds another study \(momentum was 0.9\): name a new folder"):
            run_study(comm, other, Folder(tmp_path / "out"))

    run(body, 3)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        Folder(tmp_path / "file" / "out").begin(other, 1, "")


def test_what_was_in_hand_goes_on_from_its_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "SNAPSHOT_SECONDS", 0.0)
    study = make_study(SMALL | {"epochs": 6})
    data, folders = study.load_data(), [Folder(tmp_path / name) for name in ("whole", "stopped")]
    for folder in folders:
        folder.begin(study, 1, "")
    assert len(list(work(study, data, folders[0], 0))) == 6
    first = work(study, data, folders[1], 0)
    for _ in range(4):
        next(first)
    first.close()  # as a kill does: nothing is written any more
    assert not folders[1].finished(0) and folders[1].read_rows() == []
    assert len(list(work(study, data, folders[1], 0))) == 2
    found, want = (folder.read_curves() for folder in folders)
    for number, curve in found.items():
        assert (curve.step, curve.train_loss) == (want[number].step, want[number].train_loss)
    assert [path.name for path in folders[1].tasks.iterdir()] == ["00000.json"]


def test_runs_that_diverge_have_a_row_as_well(tmp_path):
    rows, curves = whole(SMALL | {"rate": [1e20], "rule": "none"}, tmp_path / "out")
    assert {row["final_loss"] for row in rows} == {None}
    assert not math.isfinite(curves[0].train_loss[-1])
    assert "nan" not in (tmp_path / "out" / "runs.csv").read_text()


# -- real ranks ------------------------------------------------------------------------------------------------------

LONG = {"batch": [16, 32], "rate": [0.01, 0.02], "seed": 4, "epochs": 12, "together": 1}  # 16 runs


def command(size, *args):
    own = python("-m", "mpcourse.studies.run", *args)
    return mpirun_command(size, own) if size else own


def go(size, *args, timeout=100):
    return subprocess.run(
        command(size, *args), capture_output=True, text=True, timeout=timeout, env=rank_environment(),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def kill_when(ready, size, *args):
    """Start a study, and end all its processes by SIGKILL as soon as `ready()`."""
    process = subprocess.Popen(
        command(size, *args), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=rank_environment(),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    try:
        while not ready():
            assert process.poll() is None and time.monotonic() < deadline, "it ended before it was to be killed"
            time.sleep(0.01)
    finally:
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            try:
                os.kill(each.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait(10)


@pytest.mark.parametrize(("first", "second"), [(0, 3), (1, 2), (2, 1), (3, 2)])
def test_a_study_that_is_killed_goes_on_with_any_number_of_ranks(first, second, tmp_path):
    """0: without mpirun. A finished run is never made again, and all results are those of one that nobody killed."""
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(toml(LONG))

    def finished():
        return {path.name: path.stat().st_mtime_ns for path in (out / "tasks").glob("*.json")}

    kill_when(lambda: len(finished()) >= 4, first, file, out)
    before = finished()
    assert 4 <= len(before) < 16
    assert not (out / "runs.csv").exists()
    done = go(second, file, out)
    assert done.returncode == 0, done.stderr
    after = finished()
    assert len(after) == 16 and before.items() <= after.items()
    rows = Folder(out).read_rows()
    assert [row["run"] for row in rows] == list(range(16))
    for found, other in zip(without_seconds(rows), without_seconds(never_killed()), strict=True):
        assert found.pop("final_loss") == pytest.approx(other.pop("final_loss"), rel=1e-3)
        assert found == other
    assert [session["ranks"] for session in Folder(out).manifest()["sessions"]] == [max(first, 1), max(second, 1)]
    assert sorted(path.name for path in out.iterdir()) == ["curves.csv", "manifest.json", "runs.csv", "tasks"]


def test_the_bar_counts_all_runs_and_a_complete_study_is_left_alone(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(toml(SMALL))
    environment = rank_environment()
    environment.pop("TQDM_DISABLE", None)
    done = subprocess.run(
        command(3, file, tmp_path / "out"), capture_output=True, text=True, timeout=100, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0 and "16/16" in done.stderr, done.stderr
    before = (tmp_path / "out" / "runs.csv").read_text()
    assert go(2, file, tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "runs.csv").read_text() == before


def test_mistakes_are_one_line_whatever_the_number_of_ranks(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(toml(SMALL | {"batch": [5000]}))
    for size in (0, 2):
        done = go(size, file, tmp_path / "out")
        assert done.returncode == 2
        told = [line for line in done.stderr.splitlines() if line.startswith("mpcourse: ")]
        assert told == ["mpcourse: batch: digits has 1437 examples to train on, not 5000"]
    done = go(2, file)
    assert done.returncode == 2 and done.stderr.count("usage: ") == 1


ON_A_BUSY_MACHINE = """
from mpcourse.common.quiet import Noise
from mpcourse.studies import run

run.noise = lambda: Noise(0.9, 0.0)
run.main()
"""


@pytest.mark.parametrize("size", [0, 2])
def test_a_busy_machine_is_refused_in_one_line_unless_the_environment_allows_it(size, tmp_path):
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(toml(SMALL | {"batch": [256], "epochs": 1}))
    own = python("-c", ON_A_BUSY_MACHINE, file, out)
    for busy in ("", "yes"):
        done = subprocess.run(
            mpirun_command(size, own) if size else own, capture_output=True, text=True, timeout=100,
            env=rank_environment() | {BUSY: busy}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        told = [line for line in done.stderr.splitlines() if line.startswith("mpcourse: the machine is busy")]
        assert (done.returncode, len(told), out.exists()) == ((0, 0, True) if busy else (2, 1, False)), done.stderr
    (session,) = Folder(out).manifest()["sessions"]
    assert session["noise"] == {"others": 0.9, "spread": 0.0}
