"""`make test-gpu` without a GPU: its lessons on a virtual GPU, its other parts on the CPU or with stand-ins."""

import datetime
import os
import re
import subprocess

import pytest
import torch

from mpcourse.virtual import virtual_gpus
from tests.conftest import ROOT, python
from tests.validation import on_gpu
from tests.validation.on_gpu import Row, page, rows_of, same
from tests.validation.test_truth import stand_in  # noqa: F401
from tests.validation.truth import PAIRS

CPU, VIRTUAL = torch.device("cpu"), torch.device("vgpu:0")


def wrong(rows):
    return [row for row in rows if not row.ok]


# -- the code of the lessons --


@pytest.mark.parametrize("check", ["training_loop", "copies", "layers", "pipeline", "attention", "mixture"])
def test_a_lesson_computes_on_a_device_what_it_computes_on_the_cpu(check):
    with virtual_gpus(1) as box:
        rows = list(getattr(on_gpu, check)(VIRTUAL))
        assert any(e.lane == "vgpu:0" and e.kind in ("compute", "copy") for e in box.events), "nothing ran there"
    assert rows and not wrong(rows)


@pytest.mark.parametrize("check", ["pipeline", "loss_scaling"])  # what a virtual GPU cannot run
def test_a_lesson_computes_the_same_again(check):
    rows = list(getattr(on_gpu, check)(CPU))
    assert rows and not wrong(rows)


@pytest.mark.parametrize(
    ("off", "ok"), [(0.0, True), (9e-10, True), (2e-9, False), (-2e-9, False), (float("nan"), False)]
)
def test_what_differs_by_more_than_the_bound_is_not_ok(off, ok):
    wanted = torch.ones(3, dtype=torch.float64)
    assert same("x", [wanted, wanted + off], [wanted, wanted]).ok is ok


def test_a_device_that_computes_slightly_wrong_is_seen(monkeypatch):
    monkeypatch.setattr(on_gpu, "copy", lambda x, device: 1.000001 * x.to(device))
    monkeypatch.setattr("mpcourse.split.parallel_mlp.copy", lambda x, d: x.to(d) * (1 if x.device == d else 1.000001))
    with virtual_gpus(1):
        first, second = on_gpu.copies(VIRTUAL)
    assert (first.ok, second.ok) == (False, False)


def test_an_error_is_a_row_and_the_other_lessons_run(monkeypatch):
    def fine(device):
        yield Row("fine", "1", "1", True)

    def fails(device):
        yield Row("fails", "1", "1", True)
        raise RuntimeError("CUDA error: out of luck\nmore lines")

    for name in ("training_loop", "layers", "pipeline", "loss_scaling", "attention", "mixture"):
        monkeypatch.setattr(on_gpu, name, fine)
    monkeypatch.setattr(on_gpu, "copies", fails)
    rows = list(on_gpu.lessons(CPU))
    assert [row.what for row in rows] == ["fine", "fails", "fails", *["fine"] * 5]
    assert wrong(rows) == [Row("fails", "RuntimeError: CUDA error: out of luck", "no error", False)]


# -- measurements --


@pytest.mark.parametrize(("off", "ok"), [(0, True), (5.5, False)])
def test_each_model_has_a_row_that_says_whether_its_memory_was_predicted(stand_in, off, ok):  # noqa: F811
    stand_in(off)
    *rows, last = on_gpu.memory(torch.device("cuda:0"))
    assert [row.what for row in rows] == [pair.name for pair in PAIRS] and len(rows) >= 10
    assert {row.ok for row in rows} == {ok} and "peak memory measured" in rows[0].result
    assert last.what == "NVIDIA H200" and last.ok is None and "CUDA context" in last.result


@pytest.mark.parametrize(
    ("faster", "frees", "overlap"), [(True, True, True), (False, True, True), (True, False, True), (True, True, False)]
)
def test_copies_are_judged_by_their_times(monkeypatch, faster, frees, overlap):
    """Pageable copies run at 4 GB/s, pinned ones at 10 or 2; the longest pinned copy takes as long as 3 products."""
    rate = {True: 10e9 if faster else 2e9, False: 4e9}

    def clocked(device, work, *given, wait=True, **named):
        if work.__name__ == "both":
            before = len(box.events)
            work(*given)
            assert not [e for e in box.events[before:] if e.kind == "wait"], "the host waited for the copy"
            parts = given[0] * 2**18 / rate[True], given[1] * 2**18 / rate[True] / 3
            return max(parts) if overlap else sum(parts)
        (host,) = (t for t in (work.__self__, *given) if t.device.type == "cpu")
        took = host.nbytes / rate[host.is_pinned()]
        return took if wait else (0.01 if frees and host.is_pinned() else 0.9) * took

    monkeypatch.setattr(on_gpu, "clocked", clocked)
    monkeypatch.setattr(on_gpu, "MiB", 2**10)
    monkeypatch.setattr(on_gpu, "SIDE", 64)
    with virtual_gpus(1) as box:
        *copies, share, waits, together = on_gpu.transfers(VIRTUAL)
    assert len(copies) == 6 and {row.ok for row in copies} == {faster}
    assert copies[0].result == f"pinned {10 if faster else 2}.0 GB/s, pageable 4.0 GB/s"
    assert (share.result, share.ok) == ("40%" if faster else "200%", None)
    assert waits.ok is frees and together.ok is overlap


def test_copies_and_products_run_on_two_streams(monkeypatch):
    for name, value in (("MiB", 2**10), ("SIDE", 64), ("RUNS", 2)):
        monkeypatch.setattr(on_gpu, name, value)
    with virtual_gpus(1) as box:
        rows = list(on_gpu.transfers(VIRTUAL))
        copied = [e.nbytes for e in box.copies]
    assert len(rows) == 9 and not [row for row in rows if "Error" in row.result]
    # 12 ways, two more for how long the host waits, each twice, and on the second stream alone and with products
    assert [copied.count(n * 2**10) for n in (1, 16, 256)] == [12, 12, 12 + 12 + 6]


def test_the_flight_recorder_keeps_the_last_calls():
    rows = rows_of("nccl", "cpu")
    assert len(rows) == 2 and not wrong(rows)
    assert rows[1].result.count("all_reduce [[3, 4]]") == 4


def test_a_trace_has_two_steps_and_shares_of_computing_and_gaps():
    (row,) = on_gpu.traces(CPU)
    assert row.ok and re.match(
        r"2 steps of [\d.]+ ms, operations on the CPU: computing \d+%, idle \d+%, 0% in", row.result
    )


# -- processes, the table and the command --


WRITES = """import os, time; open({1!r}, "w").write('{{"what": "a", "result": "b"}}\\n'); """


@pytest.mark.parametrize(
    ("then", "says"),
    [
        ("time.sleep(60)", "it had not ended after 3 s"),
        ("os.kill(os.getpid(), 9)", "its process ended with status -9"),
    ],
)
def test_rows_before_the_limit_or_a_crash_are_kept(monkeypatch, then, says):
    monkeypatch.setattr(on_gpu, "PROGRAM", WRITES + then)
    monkeypatch.setitem(on_gpu.PARTS, "nccl", (None, 3))
    assert rows_of("nccl") == [Row("a", "b"), Row("nccl", says, "no error", False)]


def test_all_limits_together_are_below_8_minutes():
    assert sum(limit for _, limit in on_gpu.PARTS.values()) < 8 * 60


@pytest.mark.parametrize("driver", ["580.65.06", None])
def test_the_machine_is_named_with_its_driver_where_that_is_known(monkeypatch, tmp_path, driver):
    if driver:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho {driver}\necho {driver}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + (os.pathsep + os.environ["PATH"] if driver else ""))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    (row,) = on_gpu.machine(torch.device("cuda:0"))
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    assert row.result == f"NVIDIA H200, driver {driver or 'unknown'}, {versions}"


def test_a_row_is_a_line_of_the_table():
    rows = [Row("a", "1", "1", True), Row("b|c", "2", "1", False), Row("d", "3")]
    lines = page("Head.", rows).splitlines()
    assert lines[:5] == ["# On a real GPU", "", "Head.", "", "| what | result | expected | ok |"]
    assert lines[6:] == ["| a | 1 | 1 | yes |", r"| b\|c | 2 | 1 | **no** |", "| d | 3 |  | measured |"]


@pytest.mark.parametrize("ok", [True, False, None])
def test_the_page_is_dated_and_the_exit_status_says_whether_all_is_as_expected(monkeypatch, tmp_path, capsys, ok):
    found = {"machine": [Row("machine", "NVIDIA H200, driver 1")], "nccl": [Row("nccl", "a result", "", ok)]}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(on_gpu, "rows_of", lambda part: found.get(part, []))
    assert on_gpu.main(["--save", str(tmp_path / "page.md")]) == (1 if ok is False else 0)
    text = (tmp_path / "page.md").read_text()
    assert (
        f"on {datetime.date.today().isoformat()}, on NVIDIA H200, driver 1." in text and "| nccl | a result |" in text
    )
    assert "has 1 rows" in (said := capsys.readouterr().out) and ("nccl: a result" in said) is (ok is False)


def test_without_a_gpu_one_sentence_says_so_and_nothing_is_written(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    command = python("-m", "tests.validation.on_gpu", "--save", tmp_path / "page.md")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0 and not list(tmp_path.iterdir())
    said = f"torch {torch.__version__} finds no CUDA GPU here, so nothing was run and nothing written.\n"
    assert (done.stdout, done.stderr) == (said, "")


def test_make_and_the_page_of_commands_name_it():
    target = re.search(r"^test-gpu:.*## .*\n\t(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target and target[1].endswith("-m tests.validation.on_gpu")
    assert "make test-gpu" in (ROOT / "docs/commands.md").read_text()
