"""`mpcourse bench scaling`: what it measures, its file, and how a killed measurement goes on. No timing is asserted."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from mpcourse.common.errors import UserError
from mpcourse.common.files import write_atomically
from mpcourse.common.quiet import BUSY, Noise, noise, refuse_if_busy
from mpcourse.course.bench import scaling_rows
from mpcourse.course.bench.cpu_binding import CAN_BIND, own, prefix
from mpcourse.course.bench.scaling import KINDS, SIDES, Row, ScalingCase, batches, cases, load, medians
from mpcourse.course.bench.scaling_rows import MEASURED, Here, here, write
from tests.conftest import ROOT
from tests.lesson_prose import unsaid

scaling = importlib.import_module("mpcourse.course.bench.scaling")  # the package has the function under this name
QUIET = Noise(0.01, 0.02)
NOW = Here("x86_64 Some CPU", "Linux 6.1", 2, "3.11.7", "2.13.0", "2.4.6", "4.1.2", "MPICH 5.0.2")


class Killed(BaseException):
    """What no code catches."""


@pytest.fixture
def stand_in(monkeypatch):
    """Ranks that measure nothing and tell 10 ms a step, twice that with a sum; a machine of two cores that binds."""
    monkeypatch.setenv(BUSY, "yes")

    class Ranks:
        def __init__(self):
            self.asked = []
            self.before_each = lambda: None

        def __call__(self, module, told, np, keep_memory, threads, before):
            self.before_each()
            self.asked.append((np, threads, before[-1:]))
            ((given, runs),) = told
            assert given == threads and keep_memory
            seconds = {"ours": [0.02 + 0.001 * run for run in range(runs)], "alone": [1 / 70] * runs}
            return [{kind: seconds for kind in KINDS}]

    ranks = Ranks()
    monkeypatch.setattr(scaling, "noise", lambda: QUIET)
    monkeypatch.setattr(scaling, "measured", ranks)
    monkeypatch.setattr(scaling, "usable_cores", lambda: 2)
    monkeypatch.setattr(scaling.cpu_binding, "CAN_BIND", True)
    monkeypatch.setattr(scaling.cpu_binding, "usable", lambda: [4, 6])
    for module in ("scaling", "scaling_rows"):
        monkeypatch.setattr(importlib.import_module(f"mpcourse.course.bench.{module}"), "here", lambda: NOW)
    return ranks


def run(file=None, runs=2, np=2):
    return {record.what: record for record in scaling.scaling(runs, np, file)}


def groups(rows):
    return sorted((row.kind, row.case, row.side, row.run) for row in rows)


def every(np, runs):
    return sorted(
        (kind, case, side, run)
        for kind in KINDS
        for case in cases(np, 2, True)
        for side in SIDES
        for run in range(1, runs + 1)
    )


def test_ranks_have_one_thread_and_then_one_for_each_core_free_and_bound():
    one = [ScalingCase(ranks, 1, True) for ranks in (1, 2, 3, 4)]
    assert cases(4, 8, True) == one + [ScalingCase(r, 8, b) for r in (1, 2, 4) for b in (False, True)]
    assert cases(3, 2, True) == one[:3] + [ScalingCase(r, 2, b) for r in (1, 2) for b in (False, True)]
    assert cases(4, 1, True) == one
    assert cases(2, 2, False) == [
        ScalingCase(1, 1, False),
        ScalingCase(2, 1, False),
        ScalingCase(1, 2, False),
        ScalingCase(2, 2, False),
    ]


def test_strong_scaling_shares_one_batch_whatever_the_number_of_ranks():
    assert batches("weak", 3) == [100, 100, 100] and batches("strong", 3) == [134, 133, 133]
    for ranks in range(1, 33):
        assert sum(batches("strong", ranks)) == 400 and len(batches("strong", ranks)) == ranks
        assert max(batches("strong", ranks)) - min(batches("strong", ranks)) <= 1


def test_a_rank_is_bound_to_one_core_or_to_none():
    assert [own([4, 6], 1, rank) for rank in range(3)] == [{4}, {6}, {4}]
    assert [own([4, 6], 2, rank) for rank in range(3)] == [{4, 6}] * 3
    assert [own([0, 1, 2, 3], 2, rank) for rank in range(3)] == [{0, 1}, {2, 3}, {0, 1}]


@pytest.mark.skipif(not CAN_BIND, reason="this system binds nothing")
def test_bound_ranks_run_where_they_were_told_to(mpirun):
    cores = sorted(os.sched_getaffinity(0))
    told = "import os, sys; sys.stdout.write(f'{sorted(os.sched_getaffinity(0))}\\n')"  # print writes twice
    for each, wanted in ((1, {f"[{core}]" for core in cores[:2]}), (len(cores), {str(cores)})):
        done = mpirun(2, *prefix(cores, each)[1:], prefix(cores, each)[0], "-c", told)
        assert done.returncode == 0 and set(done.stdout.split("\n")) - {""} == wanted, done.stderr


def test_each_case_is_started_with_its_threads_and_cores(stand_in):
    run(np=4)
    assert stand_in.asked == [
        *((ranks, 1, ["1"]) for ranks in (1, 2, 3, 4)),
        *((ranks, 2, [each]) for ranks in (1, 2, 4) for each in ("2", "1")),
    ]


def test_efficiency_is_of_the_cores_in_use_against_one_rank_alone(stand_in):
    found = run(runs=3, np=4)
    assert len(found) == 2 * 10 * 4 and all(record.kept and record.promise is None for record in found.values())
    assert found["weak, 2 ranks: a step"].runs == [20, 21, 22] and found["weak, 2 ranks: a step"].unit == "ms"
    assert found["weak, 1 rank: alone"].median == pytest.approx(7000, 1e-4)
    assert found["weak, 2 ranks: ours"].median == pytest.approx(200 / 0.021, 1e-4)
    assert found["strong, 3 ranks: ours"].median == pytest.approx(400 / 0.021, 1e-4)
    percent = {what.removesuffix(": efficiency"): r.median for what, r in found.items() if r.unit == "%"}
    rank = 100 * (100 / 0.021) / 7000  # what one rank's core brings
    wanted = {"1 rank": 1, "2 ranks": 1, "4 ranks": 2, "1 rank x 2 threads": 1 / 2, "2 ranks x 2 threads": 1}
    wanted |= {"1 rank x 2 threads, bound": 1, "4 ranks x 2 threads, bound": 2}
    assert {case: percent[f"weak, {case}"] / rank for case in wanted} == pytest.approx(wanted, 1e-4)


def test_nothing_is_written_without_a_file(stand_in, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run()
    assert list(tmp_path.iterdir()) == []


def test_each_case_is_in_the_file_before_the_next_one_begins(stand_in, tmp_path):
    file = tmp_path / "out.csv"
    seen = []
    stand_in.before_each = lambda: seen.append(list(dict.fromkeys(row.case for row in load(file))))
    run(file)
    assert seen == [cases(2, 2, True)[:done] for done in range(6)]
    assert groups(load(file)) == every(2, 2) and [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_rows_are_read_as_they_were_written(stand_in, tmp_path):
    file = tmp_path / "out.csv"
    first = run(file)
    rows = load(file)
    row = next(r for r in rows if (r.kind, r.case, r.side) == ("strong", ScalingCase(2, 2, False), "ours"))
    assert row[1:] == (*NOW, "strong", 2, 2, False, 200, "ours", 1, 0.02, 20000.0, *QUIET)
    assert all(isinstance(value, Row.__annotations__[name]) for name, value in row._asdict().items())
    write(tmp_path / "untold.csv", [row._replace(others=None)])  # where the system does not tell
    assert load(tmp_path / "untold.csv") == [row._replace(others=None)]
    assert medians(rows, "seconds")["weak", ScalingCase(1, 1, True), "ours"] == pytest.approx(0.0205)
    assert medians(rows, "seconds")["weak", ScalingCase(1, 1, True), "alone"] == 0.0142857  # six digits, of 1/70
    assert medians(rows)["weak", ScalingCase(2, 1, True), "alone"] == 14000
    write(tmp_path / "again.csv", rows)
    assert (tmp_path / "again.csv").read_bytes() == file.read_bytes()
    asked = len(stand_in.asked)
    assert run(file) == first and len(stand_in.asked) == asked  # all of it from the file


@pytest.mark.parametrize("at", range(6))
def test_what_was_killed_goes_on_with_the_case_that_it_was_at(stand_in, tmp_path, at):
    file = tmp_path / "out.csv"

    def kill():
        if len(stand_in.asked) == at:
            raise Killed

    stand_in.before_each = kill
    with pytest.raises(Killed):
        run(file)
    stand_in.before_each = lambda: None
    run(file)
    assert [(np, threads) for np, threads, _ in stand_in.asked] == [case[:2] for case in cases(2, 2, True)]
    assert groups(load(file)) == every(2, 2)


@pytest.mark.parametrize("where", ["half of a write", "before it counts"])
def test_one_killed_as_it_writes_leaves_the_rows_before(stand_in, tmp_path, where):
    file = tmp_path / "out.csv"

    def half(path, text):
        def write_half(part):
            part.write(text[: len(text) // 2].encode())
            raise Killed

        write_atomically(path, write_half)

    def kill(*paths):
        raise Killed

    with pytest.MonkeyPatch.context() as patch:

        def before_each():
            if len(stand_in.asked) == 2:
                patch.setattr(
                    *((scaling_rows, "write_atomically", half) if where == "half of a write" else (os, "replace", kill))
                )

        stand_in.before_each = before_each
        with pytest.raises(Killed):
            run(file)
    assert [row.case for row in load(file)][::8] == cases(2, 2, True)[:2]
    stand_in.before_each = lambda: None
    run(file)
    assert groups(load(file)) == every(2, 2) and [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_more_ranks_are_added_to_a_file_and_an_empty_one_is_begun(stand_in, tmp_path):
    file = tmp_path / "out.csv"
    file.touch()
    run(file)
    run(file, np=4)
    assert len(stand_in.asked) == 10 and groups(load(file)) == every(4, 2)


def assert_refused(file, *phrases, runs=2):
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(UserError) as error:
        run(file, runs)
    assert "\n" not in str(error.value) and all(phrase in str(error.value) for phrase in (*phrases, "name another"))
    assert (file.read_bytes() if file.is_file() else None) == before


@pytest.mark.parametrize("field", Here._fields)
def test_a_file_of_another_machine_or_other_versions_is_refused(stand_in, tmp_path, field):
    file = tmp_path / "out.csv"
    run(file)
    other = 64 if field == "cores" else "other"
    write(file, [row._replace(**{field: other}) if row.case.ranks == 2 else row for row in load(file)])
    asked = len(stand_in.asked)
    assert_refused(file, f"with {field} {other}, and here it is {getattr(NOW, field)}")
    assert len(stand_in.asked) == asked


def test_a_file_that_is_none_of_ours_is_refused_and_left_alone(stand_in, tmp_path):
    file = tmp_path / "out.csv"
    assert_refused(tmp_path, "cannot be read")
    assert_refused(tmp_path / "nowhere" / "out.csv", "cannot be written")
    for text in (b"a,b\n1,2\n", b"\xff\xfe\n", b"\n"):
        file.write_bytes(text)
        assert_refused(file, "out.csv")
    assert stand_in.asked == []


@pytest.mark.parametrize("damage", ["cut off", "a letter", "a column less", "neither yes nor no"])
def test_a_damaged_line_is_named(stand_in, tmp_path, damage):
    file = tmp_path / "out.csv"
    run(file)
    *lines, last = file.read_text().splitlines()
    number = len(lines) + 1
    changed = {
        "cut off": last[:-1],
        "a letter": last[:-1] + "x\n",
        "a column less": last.rpartition(",")[0] + "\n",
        "neither yes nor no": last.replace(",yes,", ",true,") + "\n",
    }
    file.write_text("\n".join([*lines, changed[damage]]))
    assert_refused(file, f"line {number}, is", "remove the lines of its case")


def test_a_file_with_more_or_fewer_runs_is_refused(stand_in, tmp_path):
    file = tmp_path / "out.csv"
    run(file)
    assert_refused(file, "2 runs of weak, 1 rank, ours", "--runs 3", runs=3)
    write(file, [row for row in load(file) if row.kind == "weak" or row.ranks == 1])
    assert_refused(file, "0 runs of strong, 2 ranks, ours")


def test_too_many_ranks_are_refused(stand_in):
    with pytest.raises(UserError, match="between 1 and 32"):
        run(np=33)
    assert stand_in.asked == []


def test_only_scaling_has_a_file_to_save_to(cli, tmp_path):
    done = cli("bench", "course", "--save", tmp_path / "out.csv")
    assert done.returncode == 2 and done.stderr == "mpcourse: --save only works with scaling\n"


def test_the_course_brings_a_measurement_of_a_quiet_machine_along(monkeypatch):
    monkeypatch.delenv(BUSY, raising=False)
    rows = load()
    assert groups(rows) == every(4, 10) and len({row.here for row in rows}) == 1
    for row in rows:
        refuse_if_busy(Noise(row.others, row.spread))
    total = {(kind, case): sum(batches(kind, case.ranks)) for kind in KINDS for case in cases(4, 2, True)}
    for row in rows:
        assert row.batch == max(batches(row.kind, row.ranks))
        assert row.examples_per_second * row.seconds == pytest.approx(total[row.kind, row.case], 1e-4)
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["mpcourse"]
    assert any(MEASURED in (ROOT / "mpcourse").glob(pattern) for pattern in package)


def test_lesson_08_says_what_the_measurement_found():
    rows, medians_of = load(), medians(load())

    def speed(ranks, threads, bound, side="ours"):
        return medians_of["weak", ScalingCase(ranks, threads, bound), side]

    one, free, crowded = speed(1, 1, True, "alone"), speed(2, 1, True), ScalingCase(2, 2, False)
    runs = [r.examples_per_second for r in rows if (r.kind, r.case, r.side) == ("weak", crowded, "ours")]
    never, together = ([speed(ranks, 1, True, side) / one for ranks in (2, 3)] for side in ("alone", "ours"))
    assert not unsaid(
        "08_scaling",
        f"falls from {never[0]:.2f} to {never[1]:.2f}, and that of ranks that train together from {together[0]:.2f} to "
        f"{together[1]:.2f}",
        f"a single rank is {100 * (1 - speed(1, 1, True) / one):.0f} % slower with the all-reduce than without it",
        f"take {free / speed(*crowded):.1f} times as long as with one thread each "
        f"({free / max(runs):.1f} to {free / min(runs):.1f} in individual runs)",
        f"Four ranks take {speed(4, 1, True) / speed(4, 2, False):.0f} times as long",
    )
    assert not unsaid(
        "appendix/08_harder_rows",
        f"bound to one core needs {speed(1, 2, False) / speed(1, 2, True):.1f} times as long as with two",
    )


def test_real_ranks_measure_each_kind_and_side_of_a_case(mpirun):
    case = ScalingCase(2, 1, CAN_BIND)
    rows = scaling._measured(case, 1, here(), None)
    assert groups(rows) == sorted((kind, case, side, 1) for kind in KINDS for side in SIDES)
    assert all(row.seconds > 0 and row.here == here() for row in rows)


def test_a_file_with_every_case_is_shown_without_starting_ranks(cli, tmp_path, monkeypatch):
    file = tmp_path / "out.csv"
    seconds = {kind: {side: [0.01] for side in SIDES} for kind in KINDS}
    monkeypatch.setenv(BUSY, "yes")
    monkeypatch.setattr(scaling, "measured", lambda *asked: [seconds])
    rows = run(file, runs=1)
    fake = tmp_path / "mpirun"
    version = f"HYDRA build details:\\n    Version: {here().mpi.split()[-1]}"
    if here().mpi.startswith("Open MPI"):
        version = f"mpirun (Open MPI) {here().mpi.split()[-1]}"
    fake.write_text(f'#!/bin/sh\n[ "$1" = --version ] && printf "{version}\\n"\n')  # and starts no ranks
    fake.chmod(0o755)
    command = ("bench", "scaling", "--np", 2, "--runs", 1, "--save", file, "--json")
    shown = cli(*command, env={"MPCOURSE_MPIRUN": str(fake)})
    assert [record["what"] for record in json.loads(shown.stdout)["records"]] == list(rows), shown.stderr


@pytest.mark.parametrize(
    "found, told",
    [
        (Noise(0.4, 0.02), "other programs take 40 % of its cores' time"),
        (Noise(None, 0.5), "the same computation takes 50 % longer on average than at best"),
        (Noise(0.4, 0.5), "40 % of its cores' time, and the same computation takes 50 % longer"),
    ],
)
def test_a_file_of_a_busy_machine_is_refused(found, told):
    with pytest.raises(UserError, match=re.escape(told)):
        refuse_if_busy(found)


def test_a_quiet_machine_is_not():
    assert refuse_if_busy(Noise(0.01, 0.05)) is None
    assert refuse_if_busy(Noise(None, 0.05)) is None


def test_a_process_that_computes_is_seen(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            found = noise()
        finally:
            busy.kill()
    assert found.spread >= 0 and (found.others is None or found.others > 0.8 / os.cpu_count())


def test_nothing_is_measured_for_a_file_on_a_busy_machine(monkeypatch, tmp_path):
    monkeypatch.delenv(BUSY, raising=False)
    monkeypatch.setattr(scaling, "noise", lambda: Noise(0.9, 0.0))
    with pytest.raises(UserError, match="the machine is busy: other programs take 90 %"):
        list(scaling.scaling(runs=1, np=2, save=tmp_path / "out.csv"))
    assert not (tmp_path / "out.csv").exists()


def test_a_machine_that_becomes_busy_keeps_the_cases_that_it_measured_before(stand_in, monkeypatch, tmp_path):
    monkeypatch.delenv(BUSY)
    file = tmp_path / "out.csv"
    found = iter([QUIET, QUIET, Noise(0.9, 0.0)])
    monkeypatch.setattr(scaling, "noise", lambda: next(found))
    with pytest.raises(UserError, match="the machine is busy"):
        run(file)
    assert len(stand_in.asked) == 2 and [row.case for row in load(file)][::8] == cases(2, 2, True)[:2]
    monkeypatch.setattr(scaling, "noise", lambda: QUIET)
    run(file)
    assert groups(load(file)) == every(2, 2)
