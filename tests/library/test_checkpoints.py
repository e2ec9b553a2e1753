"""A job that goes on: from the newest checkpoint that is whole, on any number of ranks, after its ranks were killed."""

import errno
import json
import os
import random
import subprocess
import sys
import threading

import pytest
import torch

from mpcourse.data_parallel.resilience import Checkpoints
from tests.conftest import ROOT
from tests.programs import elastic_job


def state(number):
    return {"weights": torch.full((3,), float(number)), "of": {"step": number, "name": "a"}}


def test_the_newest_is_loaded_and_two_generations_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path / "new")
    assert checkpoints.load() is None
    for step in (3, 6, 12):
        checkpoints.save(step, state(step))
    found = Checkpoints(tmp_path / "new").load()
    assert found.step == 12 and found.state["weights"].tolist() == [12.0] * 3 and found.damaged == []
    assert sorted(path.name[:12] for path in (tmp_path / "new").iterdir()) == ["step00000006", "step00000012"]


@pytest.mark.parametrize("spoil", ["one bit", "cut", "emptied"])
def test_a_damaged_file_is_passed_over_and_named(tmp_path, spoil):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, state(step))
    newest = max(tmp_path.iterdir())
    contents = bytearray(newest.read_bytes())
    contents[len(contents) // 2] ^= 4
    newest.write_bytes({"one bit": bytes(contents), "cut": contents[:-10], "emptied": b""}[spoil])
    found = checkpoints.load()
    assert found.step == 1 and found.damaged == [newest]
    checkpoints.save(3, state(3))
    assert checkpoints.load().step == 3
    for path in tmp_path.iterdir():
        path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"all checkpoints in .* are damaged: step00000003"):
        checkpoints.load()


def test_a_damaged_file_is_no_generation(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        checkpoints.save(number, state(number))
    max(tmp_path.iterdir()).write_bytes(b"nothing")
    assert checkpoints.load().step == 1
    checkpoints.save(3, state(3))
    assert sorted(path.name[:12] for path in tmp_path.iterdir()) == ["step00000001", "step00000003"]


def test_of_two_checkpoints_of_one_step_the_later_stays(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in range(8):  # whatever their checksums are
        checkpoints.save(5, state(number))
        assert checkpoints.load().state["of"]["step"] == number


def test_a_full_disk_leaves_the_earlier_ones(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state(1))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, state(2))
    checkpoints.save_later(3, state(3))
    with pytest.raises(OSError, match="No space left"):
        checkpoints.wait()
    checkpoints.wait()  # it was told once
    assert checkpoints.load().step == 1 and len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_writer_left_is_no_checkpoint_and_is_removed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state(1))
    half = tmp_path / "step00000002-00000000.pt.abc.part"
    half.write_bytes(b"half of it")
    assert checkpoints.load().step == 1
    checkpoints.save(2, state(2))
    assert not half.exists()


def test_a_state_that_is_written_later_is_that_of_the_call(tmp_path, monkeypatch):
    go, write = threading.Event(), Checkpoints._write

    def slowly(self, step, given):
        go.wait(20)
        write(self, step, given)

    monkeypatch.setattr(Checkpoints, "_write", slowly)
    checkpoints, weights = Checkpoints(tmp_path), torch.ones(2)
    checkpoints.save_later(1, {"weights": weights})
    assert checkpoints.load() is None  # the job goes on meanwhile
    weights.add_(5)
    go.set()
    checkpoints.wait()
    assert checkpoints.load().state["weights"].tolist() == [1.0, 1.0]


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep=0"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match="step=-1"):
        Checkpoints(tmp_path).save(-1, {})


# -- real processes --


def in_one_process(steps):
    model, optimizer = elastic_job.make()
    sampler = elastic_job.StepSampler(elastic_job.EXAMPLES, elastic_job.BATCH, 0, 1)
    x, y = elastic_job.data()
    for step in range(steps):
        chosen = sampler.of_all(step)
        optimizer.zero_grad()
        (model(x[chosen])[:, 0] - y[chosen]).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.ranks
def test_a_job_whose_ranks_are_killed_and_that_goes_on_with_other_ranks_sees_each_example_once(tmp_path):
    draw, program = random.Random(os.getpid()), ROOT / "tests" / "programs" / "elastic_job.py"
    half = elastic_job.STEPS // 2
    kills = [
        f"{draw.randrange(half)} {draw.randrange(2)}",
        f"{draw.randrange(half, elastic_job.STEPS)} {draw.randrange(3)}",
    ]
    (tmp_path / "kills").write_text("\n".join(kills))
    for ranks, steps in ((2, half), (3, elastic_job.STEPS)):
        options = ("--standalone", "--local-addr", "localhost", "--max-restarts", 3, "--monitor-interval", 0.1)
        # The launcher itself, for the ranks that the tests keep ready do not begin twice.
        command = [sys.executable, "-m", "torch.distributed.run", *options, "--nproc-per-node", ranks, program]
        done = subprocess.run(
            [*map(str, [*command, tmp_path, steps])], capture_output=True, text=True, timeout=55,
            stdin=subprocess.DEVNULL, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, (kills, done.stderr[-2000:])
    assert not (tmp_path / "kills").read_text(), kills

    seen = {}  # the last time that a step was trained counts: what came before was lost with the ranks
    rows = [json.loads(line) for file in tmp_path.glob("seen-*.jsonl") for line in file.read_text().splitlines()]
    runs = {}
    for row in sorted(rows, key=lambda row: row["at"]):
        runs.setdefault(row["step"], []).append(row)
    for step, all_rows in runs.items():
        wanted = sorted(elastic_job.StepSampler(elastic_job.EXAMPLES, elastic_job.BATCH, 0, 1).of_all(step))
        last: list[int] = []
        for row in reversed(all_rows):
            if len(last) < len(wanted):
                last += row["chosen"]
        seen[step] = sorted(last)
        assert seen[step] == wanted, (kills, step)
    assert sorted(seen) == list(range(elastic_job.STEPS))
    epoch = -(-elastic_job.EXAMPLES // elastic_job.BATCH)
    for first in (0, epoch):
        examples = [example for step in range(first, first + epoch) for example in seen[step]]
        assert sorted(examples) == list(range(elastic_job.EXAMPLES))

    found = torch.tensor(json.loads((tmp_path / "parameters.json").read_text()), dtype=torch.float64)
    assert (found - in_one_process(elastic_job.STEPS)).abs().max() < 1e-12, kills
