"""The doctor: what it says of a healthy machine, and of machines broken in one way each."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpcourse.common import launch
from mpcourse.course import doctor
from mpcourse.course.doctor import Finding, examine, machine, mpi, report, subprocesses

TOPICS = (
    *("Python", "mpcourse", "torch", "mpi4py", "MPI", "CPU cores", "threads"),
    *("mpirun", "ranks", "slots", "root", "processes", "shared memory"),
)
LIBRARY = "MPICH 5.0.2"

# What a launcher does that knows nothing of the ranks' MPI: it starts the command N times.
EVERY_RANK_ALONE = """
while [ "$1" != -np ]; do shift; done
size=$2; shift 2
while [ $size -gt 0 ]; do "$@" & size=$((size - 1)); done
wait
"""


def by_topic(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings}


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


@pytest.fixture
def facts(monkeypatch) -> dict[str, str]:
    """Return what the doctor finds of Python and its packages, without the seconds of importing torch."""
    facts = {"Python": "3.12.3", "mpcourse": "0.1.0", "torch": "2.13.0", "mpi4py": "4.1.2", "MPI": LIBRARY}
    monkeypatch.setattr(machine, "facts_here", lambda: facts)
    return facts


def test_a_healthy_machine_has_no_problem_and_each_topic_once(here):
    assert tuple(finding.topic for finding in here) == TOPICS
    assert [finding for finding in here if finding.status == "problem"] == []
    value = by_topic(here)["ranks"].value
    assert re.fullmatch(r"0 of 2 and 1 of 2; [\d.e+]+ us each way \(8 bytes\), [\d.]+ GB/s \(4 MB\)", value)


@pytest.fixture(scope="module")
def reported() -> subprocess.CompletedProcess[str]:
    """Return what a new process prints that reports, with, on standard error, whether that has made it a rank."""
    program = (
        "import sys; from mpcourse.course.doctor import report; status = report()\n"
        "print('mpi4py.MPI' in sys.modules, file=sys.stderr); sys.exit(status)"
    )
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", env=environment)


def test_on_a_healthy_machine_the_report_exits_with_0_and_fits_80_columns_without_colour_codes(reported):
    assert reported.returncode == 0, reported.stdout + reported.stderr
    rows = [line for line in reported.stdout.splitlines() if line[:1] in set("┏┃┡│├└")]
    assert {len(row) for row in rows} == {80}
    assert tuple(cell for row in rows if row[0] == "│" and (cell := row.split("│")[1].strip())) == TOPICS
    assert "The course can run here." in reported.stdout
    assert "\x1b" not in reported.stdout


def test_importing_and_examining_does_not_make_this_process_a_rank(reported):
    assert reported.stderr.splitlines()[-1] == "False", reported.stderr


def test_json_has_the_findings_of_the_table_and_is_ok(here, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: here)
    assert report(json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is True
    assert [Finding(**each) for each in printed["findings"]] == here


def test_80_columns_lose_nothing(capsys, monkeypatch):
    finding = Finding("ranks", "found " * 30, "problem", "export VARIABLE=" + "/a/long/path" * 10, "and so on")
    monkeypatch.setattr(doctor, "examine", lambda: [finding])
    monkeypatch.setenv("COLUMNS", "80")
    assert report() == 1
    printed = capsys.readouterr().out
    cells = [line.split("│")[1:4] for line in printed.splitlines() if line.startswith("│")]
    whole = ["".join("".join(cell.split()) for cell in column) for column in zip(*cells, strict=True)]
    assert whole == ["ranks", "problem:" + "found" * 30, (finding.command + finding.advice).replace(" ", "")]
    assert "The course cannot run here yet." in printed


def test_the_next_commands_can_be_copied_in_one_piece(capsys, monkeypatch):
    long = "export " + "LONG" * 40 + "=1"
    findings = [Finding("a [red]path[/]", "x", "note", long, "or `b c`"), Finding("threads", "as is", "ok", "d e")]
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert report() == 0
    printed = capsys.readouterr().out
    assert printed.endswith(f"Next:\n  {long}\n")
    assert any("a [red]path[/]" in line for line in printed.splitlines())


@pytest.mark.parametrize("library", [LIBRARY, "Open MPI 4.1.6"])
def test_ranks_that_are_all_0_of_1_are_a_problem_that_names_both_mpis(library, facts, tmp_path, monkeypatch, capsys):
    for name in launch.SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    facts["MPI"] = library
    fake_mpirun(tmp_path, monkeypatch, EVERY_RANK_ALONE)
    assert report(json=True) == 1
    printed = json.loads(capsys.readouterr().out)
    found = by_topic([Finding(**each) for each in printed["findings"]])
    assert printed["ok"] is False
    assert [topic for topic, finding in found.items() if finding.status == "problem"] == ["ranks"]
    value = f"mpirun is Open MPI 5.0.11, mpi4py uses {library}; two ranks said: 0 of 1, 0 of 1"
    assert found["ranks"].value == value
    assert found["ranks"].command == "make setup MPI=mpich"


@pytest.mark.parametrize(
    ("library", "command"), [(LIBRARY, "make setup MPI=mpich"), ("Open MPI 5.0.11", "mpirun -np 2 hostname")]
)
def test_ranks_that_abort_are_a_mismatch_only_under_another_mpi(library, command, tmp_path, monkeypatch):
    fake_mpirun(tmp_path, monkeypatch, "echo 'Abort(1): unsupported PMI version'; echo 'more talk'; exit 16")
    finding = mpi.ranks(library)
    assert (finding.status, finding.command) == ("problem", command)
    assert finding.value.startswith(f"mpirun is Open MPI 5.0.11, mpi4py uses {library}; two ranks said: nothing")
    assert ("Abort(1): unsupported PMI version" in finding.value) == (library != LIBRARY)


def test_without_mpirun_the_report_exits_with_1_and_says_how_to_get_one(facts, monkeypatch, capsys):
    monkeypatch.delenv("MPCOURSE_MPIRUN", raising=False)
    monkeypatch.setattr("shutil.which", lambda *arguments, **keywords: None)
    assert report(json=True) == 1
    found = by_topic([Finding(**each) for each in json.loads(capsys.readouterr().out)["findings"]])
    assert "ranks" not in found
    assert found["mpirun"].status == "problem"
    assert "not found" in found["mpirun"].value
    assert found["mpirun"].command == "make setup"


def test_another_mpirun_in_the_shell_is_a_note_with_the_path(tmp_path, monkeypatch):
    path = fake_mpirun(tmp_path, monkeypatch, "")
    finding = mpi.mpirun()
    assert (finding.status, finding.command) == ("note", f"export PATH={tmp_path}:$PATH")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert mpi.mpirun() == Finding("mpirun", f"Open MPI 5.0.11, {path}")


def test_two_ranks_between_which_no_message_passes_are_a_problem(monkeypatch):
    output = "".join(f'mpcourse-rank {{"rank": {rank}, "size": 2}}\n' for rank in range(2))
    monkeypatch.setattr(mpi, "run", lambda *given: subprocesses.CompletedCommand(None, output))
    finding = mpi.ranks(" ".join(launch.identify(subprocess.getoutput(f"{launch.find_mpirun()} --version"))))
    assert finding.status == "problem"
    assert "no message passes" in finding.advice and "no end within the deadline" in finding.value
    assert "mpi4py.bench helloworld" in finding.command


def test_threads_follow_omp_num_threads(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    unset = machine.threads()
    assert (unset.status, "all 4 cores" in unset.value) == ("ok", True), "mpcourse itself starts ranks with one thread"
    assert unset.command == "export OMP_NUM_THREADS=1" and "`%env OMP_NUM_THREADS=1`" in unset.advice
    for value, status in {"1": "ok", "2": "ok", "3": "note"}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert machine.threads().status == status, value


def test_open_mpi_refuses_more_ranks_than_cores_and_root_until_variables_allow_them(monkeypatch):
    launcher = launch.Mpirun("mpirun", "Open MPI", "5.0.11")
    monkeypatch.setattr(launch, "mpirun", lambda: launcher)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in launch.ALLOW_ROOT | launch.OVERSUBSCRIBE:
        monkeypatch.delenv(name, raising=False)
    slots, root = mpi.restrictions()
    assert (slots.status, root.status) == ("note", "note")
    assert slots.command == "export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
    assert root.command == "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    for setting in f"{slots.command} {root.command}".replace("export ", "").split():
        monkeypatch.setenv(*setting.split("="))
    assert [finding.status for finding in mpi.restrictions()] == ["ok", "ok"]
    monkeypatch.delenv("OMPI_ALLOW_RUN_AS_ROOT")
    assert mpi.restrictions()[1].status == "note"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert mpi.restrictions()[1].status == "ok"
    launcher = launch.Mpirun("mpirun", "Open MPI", "4.1.6")
    assert mpi.restrictions()[0].command == "export OMPI_MCA_rmaps_base_oversubscribe=1"
    launcher = launch.Mpirun("mpirun", "MPICH", "5.0.2")
    assert [finding.status for finding in mpi.restrictions()] == ["ok", "ok"]


def test_a_containers_limit_of_cores_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPU_MAX", tmp_path / "cpu.max")
    cores = machine.usable_cores()
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.usable_cores() == cores
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.usable_cores() == 1
    assert machine.cores().status == "note" and "--cpus=2" in machine.cores().advice


@pytest.mark.parametrize(
    ("module", "topic", "command"),
    [("torch", "torch", "make setup"), ("mpi4py.MPI", "MPI", "make setup MPI=mpich")],
)
def test_a_package_that_cannot_be_imported_is_a_problem_with_the_error(module, topic, command, monkeypatch):
    def imported(name):
        if name == module:
            raise ImportError("libx.so.12: cannot open shared object file")
        return SimpleNamespace(
            __version__="4.1.2", rc=SimpleNamespace(), Get_library_version=lambda: "Open MPI v5.0.11"
        )

    monkeypatch.setattr(machine, "importlib", SimpleNamespace(import_module=imported))
    found = by_topic(machine.packages(machine.facts()))
    assert [topic for topic, finding in found.items() if finding.status == "problem"] == [topic]
    assert found[topic].value == "cannot be imported: ImportError: libx.so.12: cannot open shared object file"
    assert found[topic].command == command


def test_no_ranks_are_started_where_packages_are_broken(facts):
    facts["MPI"] = "cannot be imported: ImportError"
    found = by_topic(examine())
    assert found["MPI"].status == "problem" and "pip install --no-binary=mpi4py" in found["MPI"].advice
    assert "ranks" not in found
