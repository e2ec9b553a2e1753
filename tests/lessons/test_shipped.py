"""The studies that come with the course, and what is read out of them."""

import json
import math
import re
import subprocess
import tomllib
from dataclasses import asdict
from statistics import mean

import nbformat
import pytest
import torch

from lessons.studies.noise_along import COLUMNS, measure
from mpcourse.common.errors import UserError
from mpcourse.common.quiet import BUSY, Noise, refuse_if_busy
from mpcourse.data import digits
from mpcourse.large_batch.critical import Critical, critical_batch, noise_until, tuned
from mpcourse.studies import StackedRuns
from mpcourse.studies.grid import read_study
from mpcourse.studies.shipped import FOLDER, names, shipped, shipped_noise
from mpcourse.studies.tables import as_csv, read_curves, read_rows
from tests.conftest import ROOT, python

SIZES = [32 * 2**i for i in range(10)]
STUDIES = [
    "digits-epochs",
    "digits-steps",
    "glyphs-epochs",
    "glyphs-lars",
    "glyphs-rules",
    "glyphs-small",
    "glyphs-steps",
    "glyphs-time",
    "glyphs-warmup",
]


def row(batch, rate, seed, steps, accuracy=0.9):
    settings = {"batch": batch, "optimizer": "sgd", "rule": "none", "rate": rate, "warmup": 0.0, "seed": seed}
    return settings | {"steps_to_target": steps, "final_accuracy": accuracy}


# -- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(as_csv(["run", "rule", "rate", "reached"], [[0, "none", 0.1234567, None], [1, "sqrt", 1.0, 25]]))
    assert path.read_text() == "run,rule,rate,reached\n0,none,0.123457,\n1,sqrt,1,25\n"
    assert read_rows(path) == [
        {"run": 0, "rule": "none", "rate": 0.123457, "reached": None},
        {"run": 1, "rule": "sqrt", "rate": 1, "reached": 25},
    ]


def test_curves_are_told_apart_by_their_run(tmp_path):
    path = tmp_path / "curves.csv"
    columns = ["run", "step", "epoch", "seconds", "train_loss", "test_accuracy"]
    path.write_text(
        as_csv(columns, [[3, 10, 0.5, 1.0, 2.3, 0.1], [3, 20, 1.0, 2.0, math.nan, 0.2], [7, 10, 0, 0, 0, 1]])
    )
    found = read_curves(path)
    assert list(found) == [3, 7]
    assert found[3].step == [10, 20] and math.isnan(found[3].train_loss[1]) and found[7].test_accuracy == [1]


# -- reading a study out ---------------------------------------------------------------------------------------------


def test_the_best_setting_is_that_of_the_best_mean_over_seeds():
    rows = [row(32, 0.1, 0, 10, 0.95), row(32, 0.1, 1, 30, 0.85), row(32, 0.2, 0, 15, 0.91), row(32, 0.2, 1, 15, 0.91)]
    assert [r["rate"] for r in tuned(rows, "final_accuracy")[32]] == [0.2, 0.2]
    assert [r["steps_to_target"] for r in tuned(rows, "steps_to_target", least=True)[32]] == [15, 15]


def test_a_setting_of_which_one_seed_never_arrives_is_not_the_best():
    rows = [row(64, 0.1, 0, 40), row(64, 0.1, 1, 50), row(64, 0.2, 0, 10), row(64, 0.2, 1, None), row(32, 0.1, 0, None)]
    found = tuned(rows, "steps_to_target", least=True)
    assert list(found) == [64] and [r["rate"] for r in found[64]] == [0.1, 0.1]


def test_the_critical_batch_of_an_exact_curve_is_found():
    exact = Critical(150.0, 420.0)
    found = critical_batch({batch: exact.steps(batch) for batch in (32, 64, 512, 4096, 16384)})
    assert found.batch == pytest.approx(420, rel=1e-3) and found.least_steps == pytest.approx(150, rel=1e-3)
    assert exact.steps(420) == 300


def test_steps_that_do_not_bend_have_their_critical_batch_at_an_edge():
    assert critical_batch({32: 100, 64: 100}).batch == pytest.approx(0.032)
    assert critical_batch({32: 100, 64: 50}).batch == pytest.approx(64_000)


@pytest.mark.parametrize("steps", [{}, {32: 100}, {32: 100, 64: 0}])
def test_a_critical_batch_needs_points(steps):
    with pytest.raises(ValueError, match="two batches or more"):
        critical_batch(steps)


# -- the noise scale along a run -------------------------------------------------------------------------------------


def test_the_measured_noise_is_that_of_all_examples():
    data = digits()
    runs = StackedRuns((64, 16, 10), data, 64, [0, 1], torch.full((8, 2), 0.1, dtype=torch.float64), record_every=8)
    runs.advance()
    found = measure(runs, data.train, torch.Generator().manual_seed(0), small=32, parts=400)
    images, labels = data.train.flat(), data.train.labels
    for i, (square, trace) in enumerate(found):
        each = []
        for image, label in zip(images, labels, strict=True):  # of one example each
            _, gradients = runs.models.gradients(image.expand(2, 1, -1), label.expand(2, 1))
            each.append(torch.cat([g[i].flatten() for g in gradients]).double())
        rows = torch.stack(each)
        assert square == pytest.approx(float(rows.mean(0).square().sum()), rel=0.05)
        assert trace == pytest.approx(float(rows.var(0, correction=0).sum()), rel=0.05)


def test_a_noise_study_writes_a_row_for_each_record(tmp_path):
    study = tmp_path / "s.toml"
    study.write_text("batch = 256\nrate = [0.1, 0.2]\nseed = 2\nsteps = 4\nrecord_every = 2\n")
    command = python("-m", "lessons.studies.noise_along", study, tmp_path / "out")
    subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=ROOT)
    rows = read_rows(tmp_path / "out" / "noise.csv")
    assert list(rows[0]) == list(COLUMNS)
    assert [(r["run"], r["rate"], r["seed"], r["step"]) for r in rows if r["seed"] == 1] == [
        *((1, 0.1, 1, 2), (3, 0.2, 1, 2)),
        *((1, 0.1, 1, 4), (3, 0.2, 1, 4)),
    ]
    study.write_text("batch = 256\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 2 and done.stderr == f"mpcourse: {study}: rate is missing, e.g. rate = [32, 128]\n"


def test_noise_counts_until_a_run_arrives():
    def told(run, step, accuracy, square, trace):
        return {"run": run, "step": step, "test_accuracy": accuracy, "gradient_square": square, "trace": trace}

    rows = [told(0, 10, 0.5, 2.0, 100.0), told(0, 20, 0.9, 1.0, 300.0), told(0, 30, 0.9, 1.0, 9e9)]
    rows += [told(1, 10, 0.5, 2.0, 300.0), told(1, 20, 0.6, 1.0, 100.0), told(1, 30, 0.9, 1.0, 600.0)]
    assert noise_until(rows, 0.9) == pytest.approx((400 / 4 + 400 / 2 + 600) / 3)
    with pytest.raises(ValueError, match="no rows"):
        noise_until([], 0.9)
    with pytest.raises(ValueError, match="lost in the noise after 10 updates"):
        noise_until([told(0, 10, 0.5, -1.0, 100.0)], 0.9)


# -- what is shipped -------------------------------------------------------------------------------------------------


def test_all_studies_are_there():
    assert names() == STUDIES


@pytest.mark.parametrize("name", STUDIES)
def test_the_results_are_those_of_the_study_beside_them(name):
    found = shipped(name)
    assert found.manifest["study"] == json.loads(json.dumps(asdict(found.study)))
    assert f"{name}.toml" in found.manifest["sessions"][-1]["command"]
    runs = found.study.runs()
    assert [[r[axis] for axis in vars(runs[0])] for r in found.rows] == [[*vars(run).values()] for run in runs]
    assert list(found.curves) == list(range(len(runs))) and len(found.study.seed) >= 5
    for told, curve in zip(found.rows, found.curves.values(), strict=True):
        assert curve.test_accuracy[-1] == pytest.approx(told["final_accuracy"])
        assert curve.step[-1] == told["steps"]


def test_a_part_of_a_shipped_study_made_again_comes_out_the_same():
    """Within rounding, which another machine does in another order: three of 360 examples."""
    from mpcourse.studies.run import train_task

    found = shipped("digits-epochs")
    numbers = [r["run"] for r in found.chosen(batch=1024, rate=0.32)][:3]
    curves = train_task(found.study, digits(), numbers).finish()
    for number, curve in zip(numbers, curves, strict=True):
        assert curve.test_accuracy[-1] == pytest.approx(found.curves[number].test_accuracy[-1], abs=0.009)
        assert curve.train_loss[0] == pytest.approx(found.curves[number].train_loss[0], rel=1e-3)


def mean_accuracy(rows):
    return 100 * mean(r["final_accuracy"] for r in rows)


def soonest():
    """Each batch of glyphs at the rate that takes it to 95 % in the fewest updates, and these."""
    studies = [shipped(name).rows for name in ("glyphs-steps", "glyphs-small")]
    best = {batch: rows for each in studies for batch, rows in tuned(each, "steps_to_target", least=True).items()}
    return {b: (rows[0]["rate"], mean(r["steps_to_target"] for r in rows)) for b, rows in sorted(best.items())}


def test_after_equal_epochs_large_batches_are_behind_and_after_equal_updates_they_are_not():
    epochs = {b: mean_accuracy(rows) for b, rows in tuned(shipped("glyphs-epochs").rows, "final_accuracy").items()}
    updates = {b: mean_accuracy(rows) for b, rows in tuned(shipped("glyphs-steps").rows, "final_accuracy").items()}
    assert epochs[512] > epochs[32] - 1 and epochs[16384] < epochs[32] - 20
    assert updates[32] < 90 and min(updates[b] for b in updates if b >= 512) > 96


def test_the_linear_rule_breaks_at_1024_and_with_warmup_at_2048():
    rules = shipped("glyphs-rules")
    reached = {w: {b: mean_accuracy(rules.chosen(batch=b, rule="linear", warmup=w)) for b in SIZES} for w in (0, 2)}
    assert reached[0][256] > 97 and reached[0][1024] < 60
    assert reached[2][1024] > 97 and reached[2][2048] < 60


def test_seconds_are_of_a_quiet_machine(monkeypatch):
    monkeypatch.delenv(BUSY, raising=False)
    timed = shipped("glyphs-time")
    for session in timed.manifest["sessions"]:
        refuse_if_busy(Noise(**session["noise"]))
    assert [16 * batch for batch in timed.study.batch] == SIZES and timed.study.together == 1


def test_updates_to_the_target_have_three_regimes():
    needed = {batch: count for batch, (_, count) in soonest().items()}
    assert list(needed) == SIZES
    saved = {b: 1 - needed[2 * b] / needed[b] for b in SIZES[:-1]}
    assert min(saved[b] for b in (32, 64, 128)) > 0.4 and 0.2 < saved[512] < 0.4
    assert max(saved[b] for b in SIZES[5:-1]) < 0.15


def test_the_noise_scale_predicts_the_critical_batch_within_a_factor_of_two():
    best, noise = soonest(), shipped_noise()
    critical = critical_batch({batch: count for batch, (_, count) in best.items()})
    for batch in (128, 256, 512, 1024):
        own = [r for r in noise if r["batch"] == batch and r["rate"] == best[batch][0]]
        assert {r["seed"] for r in own} == set(range(5))
        assert 0.5 < noise_until(own, 0.95) / critical.batch < 2, batch


def test_so_it_does_on_the_digits():
    best, noise = tuned(shipped("digits-steps").rows, "steps_to_target", least=True), shipped_noise("digits-noise")
    # An epoch's last batch is what is left: updates have this many examples on average.
    shares = {b: 1437 / -(-1437 // b) for b in best}
    critical = critical_batch({shares[b]: mean(r["steps_to_target"] for r in rows) for b, rows in best.items()})
    for batch in (32, 64, 128, 256):
        own = [r for r in noise if r["batch"] == batch and r["rate"] == best[batch][0]["rate"]]
        assert 0.5 < noise_until(own, 0.95) / critical.batch < 2, batch


@pytest.mark.parametrize("name", ["digits-noise", "glyphs-noise"])
def test_the_noise_is_that_of_the_study_beside_it(name):
    manifest, study = json.loads((FOLDER / name / "manifest.json").read_text()), read_study(FOLDER / f"{name}.toml")
    assert manifest["study"] == json.loads(json.dumps(asdict(study)))
    assert f"{name}.toml" in manifest["sessions"][-1]["command"]
    assert {(r["run"], r["batch"], r["rate"], r["seed"]) for r in shipped_noise(name)} == {
        (number, run.batch, run.rate, run.seed) for number, run in enumerate(study.runs())
    }


def test_the_curves_of_rows_are_theirs():
    found = shipped("digits-steps")
    rows = found.chosen(batch=64, seed=3)
    assert [curve.test_accuracy[-1] for curve in found.curves_of(rows)] == [row["final_accuracy"] for row in rows]


def test_the_package_brings_the_studies_along():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    globs = table["tool"]["setuptools"]["package-data"]["mpcourse"]
    library = ROOT / "mpcourse"
    studies = [path for path in (library / "studies").rglob("*") if path.suffix in (".toml", ".csv", ".json")]
    files = [path.relative_to(library) for path in studies]
    assert len(files) > 20 and not [str(file) for file in files if not any(file.match(glob) for glob in globs)]


def test_a_study_that_is_not_there_is_named():
    with pytest.raises(UserError, match="no study is called 'mnist': there are digits-epochs, "):
        shipped("mnist")


# -- measurements in a notebook as it is shipped ---------------------------------------------------------------------


def printed(lesson):
    """All text that the cells of a notebook printed."""
    cells = nbformat.read(ROOT / "lessons" / f"{lesson}.ipynb", 4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") for output in outputs)


def test_two_real_ranks_of_the_shipped_pipeline_computed_what_one_process_computes():
    """On a busy machine they take half as long again: such a run is not shipped."""
    text = printed("04_pipeline")
    told = re.search(
        r"(\d+) ms by one process, (\d+) ms by both ranks.*\n"
        r"step: \d+ ms by one process, (\d+) ms by two ranks: speedup ([\d.]+), predicted ([\d.]+)\n"
        r"the whole batch at once, by one process: (\d+) ms",
        text,
    )
    alone, together, step, at_once = (int(told[i]) for i in (1, 2, 3, 6))
    assert 0.95 < together / alone < 1.25
    assert together / 2 < step < alone and 1 < float(told[4]) < float(told[5]) and at_once < alone
    bubble, equal = re.search(
        r"Bubble: measured ([\d.]+) %.* ([\d.]+) % if all stages", " ".join(text.split())
    ).groups()
    assert float(equal) < float(bubble) < 2 * float(equal)


def test_real_ranks_of_the_shipped_all_reduces_are_off_the_formula_and_beside_mpi_as_the_lesson_says():
    text = printed("appendix/05_this_machine")
    lines = re.findall(r"^(doubling|ring) +measured / formula: (.*)$", text, re.MULTILINE)
    factors = [float(part.split()[-1]) for _, line in lines for part in line.split(", ")]
    assert len(factors) == 2 * 11 and 1 / 3.3 < min(factors) < max(factors) < 3.3  # "up to about three"
    ratios = re.findall(r"^ *(\d+ (?:B|KiB|MiB)) +([\d.]+) \(.*\) +([\d.]+) \(", text, re.MULTILINE)
    mpi = {size: float(ratio) for size, ratio, _ in ratios}
    short = ["16 B", "64 B", "256 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB"]
    assert list(mpi)[:8] == short and all(1 / 2.55 < mpi[size] < 1 / 1.35 for size in short)
    assert all(float(gloo) > 1 for *_, gloo in ratios)
