"""The doctor: what it says of a healthy machine, and of machines broken in one way each."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from mpcourse.common import launch
from mpcourse.course.doctor import Finding, cgroup, examine, machine, mpi, report, slots, start, subprocesses, table

TOPICS = (
    *("Python", "torch", "CPU cores", "threads", "memory"),
    *("mpi4py", "mpirun", "match", "slots", "root", "round trip", "strays", "shared memory"),
)

# What a launcher does that knows nothing of the ranks' MPI: it starts the command N times.
EVERY_RANK_ALONE = """
while [ "$1" != -np ]; do shift; done
size=$2; shift 2
while [ $size -gt 0 ]; do "$@" & size=$((size - 1)); done
wait
"""


def by_topic(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings}


def answered(value: dict) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future


def fake_mpirun(folder: Path, monkeypatch, body: str) -> Path:
    """Write a script that calls itself Open MPI 5.0.11 and does `body`; the course is made to use it."""
    path = folder / "mpirun"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 5.0.11" && exit 0\n{body}\n')
    path.chmod(0o755)
    monkeypatch.setenv("MPCOURSE_MPIRUN", str(path))
    return path


@pytest.fixture(scope="module")
def here() -> list[Finding]:
    """Return this machine, which is fit for the course: other tests run ranks on it."""
    return examine()


def test_a_healthy_machine_has_no_problem_and_each_topic_once(here):
    assert tuple(finding.topic for finding in here) == TOPICS
    found = by_topic(here)
    found.pop("strays")  # another session's may be about
    assert [finding for finding in found.values() if finding.status == "problem"] == []
    assert "0 of 2 and 1 of 2" in found["match"].value
    assert re.fullmatch(r"[\d.]+ us each way \(8 bytes\), [\d.]+ GB/s \(4 MB\)", found["round trip"].value)


@pytest.fixture(scope="module")
def reported() -> subprocess.CompletedProcess[str]:
    """Return what a new process prints that reports, with, on standard error, whether that has made it a rank."""
    program = (
        "import sys; from mpcourse.course.doctor import report; status = report()\n"
        "print('mpi4py.MPI' in sys.modules, file=sys.stderr); sys.exit(status)"
    )
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", env=environment)


@pytest.fixture
def told_of_torch(monkeypatch):
    """Let a process say at once what torch would, which takes 1.5 s to import, and is not what the test is about."""
    facts = {"version": torch.__version__, "build": "CPU", "gpus": [], "threads": 1}
    monkeypatch.setattr(machine, "TORCH_PROGRAM", f"import json; print(json.dumps({facts!r}))")


def test_on_a_healthy_machine_the_report_exits_with_0_and_fits_80_columns_without_colour_codes(reported):
    assert reported.returncode == 0, reported.stdout + reported.stderr
    rows = [line for line in reported.stdout.splitlines() if line[:1] in set("┏┃┡│├└")]
    assert {len(row) for row in rows} == {80}
    assert tuple(cell for row in rows if row[0] == "│" and (cell := row.split("│")[1].strip())) == TOPICS
    assert "\x1b" not in reported.stdout


def test_importing_and_examining_does_not_make_this_process_a_rank(reported):
    assert reported.stderr.splitlines()[-1] == "False", reported.stderr


def test_json_has_the_findings_of_the_table_and_is_ok(here, capsys, monkeypatch):
    monkeypatch.setattr(table, "examine", lambda: here)
    assert report(json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is True
    assert [Finding(**each) for each in printed["findings"]] == here


def test_80_columns_lose_nothing(capsys, monkeypatch):
    finding = Finding("match", "found " * 30, "problem", "`export VARIABLE=" + "/a/long/path" * 10 + "`")
    monkeypatch.setattr(table, "examine", lambda: [finding])
    monkeypatch.setenv("COLUMNS", "80")
    report()
    cells = [line.split("│")[1:4] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    whole = ["".join("".join(cell.split()) for cell in column) for column in zip(*cells, strict=True)]
    assert whole == ["match", "problem:" + "found" * 30, finding.advice.replace(" ", "")]


def test_every_command_can_be_copied_in_one_piece(capsys, monkeypatch):
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)  # where the tests themselves were started in a notebook
    long = "export " + "LONG" * 40 + "=1"
    finding = Finding("a [red]path[/]", "x", "note", f"`mpirun`: `{long}`, or `b c`")
    monkeypatch.setattr(table, "examine", lambda: [finding])
    assert report() == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"  {long}" in lines
    assert any("a [red]path[/]" in line for line in lines)


def test_ranks_that_are_all_0_of_1_are_a_mismatch_named_with_its_cure(told_of_torch, tmp_path, monkeypatch, capsys):
    for name in launch.SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    fake_mpirun(tmp_path, monkeypatch, EVERY_RANK_ALONE)
    assert report(json=True) == 1
    printed = json.loads(capsys.readouterr().out)
    found = by_topic([Finding(**each) for each in printed["findings"]])
    assert printed["ok"] is False
    assert [topic for topic, finding in found.items() if finding.fatal] == ["match"]
    assert 'every rank says "0 of 1": mpirun is Open MPI 5.0.11, mpi4py uses' in found["match"].value
    assert "make setup MPI=mpich" in found["match"].advice
    assert "pip install --no-binary=mpi4py" in found["match"].advice
    assert found["round trip"].advice == "first mend `match`"


def test_the_cure_of_a_mismatch_names_the_right_mpirun(tmp_path, monkeypatch):
    path = fake_mpirun(tmp_path, monkeypatch, EVERY_RANK_ALONE)
    monkeypatch.setattr(launch, "rank_environment", lambda: {**os.environ, "PATH": f"{tmp_path / 'none'}:{tmp_path}"})
    assert mpi.mpirun_of("Open MPI") == str(path)
    assert mpi.mpirun_of("MPICH") is None


def test_ranks_that_abort_under_another_mpi_are_a_mismatch_with_the_reason(tmp_path, monkeypatch):
    fake_mpirun(tmp_path, monkeypatch, "echo 'Abort(1): unsupported PMI version'; echo 'more talk'; exit 16")
    library = answered({"library": "MPICH Version:      5.0.2"})
    finding = start.match(start.start(), launch.mpirun(), library)
    assert finding.fatal
    assert "mpirun is Open MPI 5.0.11, mpi4py uses MPICH 5.0.2" in finding.value
    assert finding.value.endswith("(exit status 16): Abort(1): unsupported PMI version")


def test_without_mpirun_the_report_exits_with_1_and_says_how_to_get_one(told_of_torch, monkeypatch, capsys):
    monkeypatch.delenv("MPCOURSE_MPIRUN", raising=False)
    monkeypatch.setattr("shutil.which", lambda *arguments, **keywords: None)
    assert report(json=True) == 1
    found = by_topic([Finding(**each) for each in json.loads(capsys.readouterr().out)["findings"]])
    assert tuple(found) == TOPICS
    assert found["mpirun"].fatal
    assert "not found" in found["mpirun"].value
    assert "make setup" in found["mpirun"].advice
    assert found["match"].advice == "first mend `mpirun`"


def test_two_ranks_between_which_no_message_passes_are_fatal():
    started = start.Start(subprocesses.CompletedCommand(None, ""), [(0, 2), (1, 2)], None)
    finding = start.round_trip(started)
    assert finding.fatal
    assert "no message came back" in finding.value
    assert "mpi4py.bench helloworld" in finding.advice


def test_threads_follow_omp_num_threads(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    unset = machine.threads()
    assert (unset.status, "all 4 cores" in unset.value) == ("ok", True), "mpcourse itself starts ranks with one thread"
    assert "`export OMP_NUM_THREADS=1`" in unset.advice and "`%env OMP_NUM_THREADS=1`" in unset.advice
    for value, status in {"1": "ok", "2": "ok", "3": "note", "2,1": "ok", "many": "problem", "0": "problem"}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert machine.threads().status == status, value


def test_what_is_good_to_know_where_all_is_well_is_shown_and_not_to_be_copied(monkeypatch, capsys):
    monkeypatch.setattr(table, "examine", lambda: [Finding("threads", "as they are", advice="`export A=1` for more")])
    report()
    printed = capsys.readouterr().out
    assert "`export A=1` for more" in printed and "To copy" not in printed


def test_mpi4py_is_said_to_end_all_ranks_after_an_exception_on_one():
    library = "MPICH Version:      5.0.2"
    finding = mpi.mpi4py(answered({"version": "4.1.2", "library": library}))
    assert (finding.status, finding.value) == ("ok", "4.1.2, using MPICH 5.0.2")
    assert "python -m mpi4py program.py" in finding.advice


def test_in_a_notebook_what_is_to_be_copied_is_percent_env(monkeypatch, capsys):
    advice = "`export A=1 B='2 3'`: two variables; else `export C=1`"
    monkeypatch.setattr(table, "examine", lambda: [Finding("threads", "", "note", advice)])
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    report()
    assert capsys.readouterr().out.endswith("To copy:\n  export A=1 B='2 3'\n")
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    report()
    assert capsys.readouterr().out.endswith("To copy:\n  %env A=1\n  %env B=2 3\n")


def test_open_mpi_refuses_root_until_both_variables_are_set(monkeypatch):
    open_mpi, mpich = launch.Mpirun("mpirun", "Open MPI", "5.0.11"), launch.Mpirun("mpirun", "MPICH", "5.0.2")
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    refused = mpi.root(open_mpi)
    assert refused.status == "note"
    assert f"`export {names[0]}=1 {names[1]}=1`" in refused.advice
    assert mpi.root(mpich).status == "ok"
    monkeypatch.setenv(names[0], "1")
    assert mpi.root(open_mpi).status == "note"
    monkeypatch.setenv(names[1], "1")
    assert mpi.root(open_mpi).status == "ok"
    monkeypatch.delenv(names[0])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert mpi.root(open_mpi).status == "ok"


def test_a_launcher_that_counts_slots_is_a_note_with_the_flag(tmp_path, monkeypatch):
    fake_mpirun(tmp_path, monkeypatch, "echo 'There are not enough slots available'; exit 1")
    started = start.Start(subprocesses.CompletedCommand(0, ""), [(0, 2), (1, 2)], None)
    finding = slots.slots(launch.mpirun(), started)
    assert finding.status == "note"
    assert finding.value.startswith("refuses")
    assert "mpirun --oversubscribe" in finding.advice
    fake_mpirun(tmp_path, monkeypatch, "exit 0")
    assert slots.slots(launch.mpirun(), started).status == "ok"
    fake_mpirun(tmp_path, monkeypatch, "echo 'no such fabric'; exit 3")
    assert "no such fabric" in slots.slots(launch.mpirun(), started).value


def test_little_memory_is_a_problem(monkeypatch):
    monkeypatch.setattr(cgroup, "memory_left", lambda: 600_000_000)
    finding = machine.memory()
    assert (finding.status, finding.value) == ("problem", "0.6 GB available: 2 ranks with torch")


def test_a_containers_limits_count(tmp_path, monkeypatch):
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    (tmp_path / "own").write_text("4:memory:/x\n0::/a/b\n")
    assert (cgroup.cpu_quota(), cgroup.memory_left()) == (None, None)
    (group / "cpu.max").write_text("max 100000\n")
    (group.parent / "cpu.max").write_text("150000 100000\n")
    (group.parent / "memory.max").write_text("1000\n")
    (group.parent / "memory.current").write_text("900\n")
    (group.parent / "memory.stat").write_text("anon 700\ninactive_file 200\n")
    assert (cgroup.cpu_quota(), cgroup.memory_left()) == (1.5, 300)
    assert machine.usable_cores() == 1


def test_torch_that_cannot_be_imported_is_fatal_with_the_error(monkeypatch, capsys):
    monkeypatch.setattr(machine, "TORCH_PROGRAM", "import no_such_torch")
    assert report(json=True) == 1
    found = by_topic([Finding(**each) for each in json.loads(capsys.readouterr().out)["findings"]])
    assert found["torch"].fatal
    assert found["torch"].value == "cannot be imported: ModuleNotFoundError: No module named 'no_such_torch'"
    assert found["torch"].advice == "`make setup`"
    assert found["CPU cores"].status != "problem"


def test_mpi4py_that_cannot_be_imported_is_fatal_with_the_error(told_of_torch, monkeypatch):
    monkeypatch.setattr(mpi, "MPI4PY_PROGRAM", "raise ImportError('libmpi.so.12: cannot open shared object file')")
    found = by_topic(examine())
    assert found["mpi4py"].fatal
    assert "ImportError: libmpi.so.12: cannot open shared object file" in found["mpi4py"].value
    assert "pip install --no-binary=mpi4py" in found["mpi4py"].advice
    assert found["match"].advice == "first mend `mpi4py`"


@pytest.mark.parametrize(
    "module, name, topic", [(machine, "memory", "memory"), (start, "start", "round trip")], ids=["memory", "start"]
)
def test_a_broken_topic_does_not_break_the_table(told_of_torch, module, name, topic, monkeypatch):
    def broken():
        raise ZeroDivisionError("a [bold] surprise\nin two lines")

    monkeypatch.setattr(module, name, broken)
    findings = examine()
    assert tuple(finding.topic for finding in findings) == TOPICS
    finding = by_topic(findings)[topic]
    assert finding.value == "could not be examined: ZeroDivisionError: in two lines"
    assert (finding.status, finding.fatal) == ("problem", False)
    assert not by_topic(findings)["mpirun"].fatal
