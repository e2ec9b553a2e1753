"""`mpcourse bench zero`: all sides learn the same, and what is measured of them. No time or memory is asserted."""

from pathlib import Path

import pytest

from mpcourse.course import forkserver
from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.zero import OURS, SIDES, ZeroCase, _memory, _speeds

CASE = ZeroCase((64, 64, 64, 10), 8, 2, 1)
NAME = "MLP of 0.00897 M, Adam"


def promised(records):
    return {record.what.removeprefix(NAME): record.promise for record in records if record.promise is not None}


def test_all_sides_end_with_the_same_parameters_and_have_their_speed(mpirun):
    (found,) = measured("mpcourse.course.bench.zero_ranks", [CASE], 3, starter=forkserver.python())
    records = list(_speeds(CASE, found, 3))
    assert [record.what for record in records[: len(SIDES)]] == [f"{NAME}: {side}" for side in SIDES]
    assert 0 < found["difference"] < 1e-14  # three summands are added up in several orders
    assert promised(records) == {
        ": stage 1 / data parallel": 0.85,
        ": stage 3 / FSDP2": 1.2,
        ": float64 parameters differ by": 1e-10,
    }


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="a process's peak is told by Linux")
def test_memory_is_measured_after_a_step_and_within_one(mpirun):
    (found,) = measured(
        "mpcourse.course.bench.zero_ranks",
        [CASE._replace(side="stage 3")],
        2,
        give_back=True,
        starter=forkserver.python(),
    )
    assert set(found) == {"held", "peak"} and found["peak"] >= found["held"]


def test_memory_is_held_against_the_closed_form_of_its_stage():
    shares = dict(zip(OURS, (16, 12, 10, 8), strict=True))  # bytes a parameter on 2 ranks
    found = {side: {"held": 1.05 * CASE.parameters * shares.get(side, 1), "peak": 0} for side in SIDES}
    records = list(_memory(CASE, found, 2))
    ratios = [record.median for record in records if record.unit == "times"]
    assert ratios == pytest.approx([1.05] * len(OURS))
    assert promised(records) == {f", memory after a step: {side} / closed form": 1.1 for side in OURS[1:]}
    assert [r.case for r in records if r.quantity == "FSDP2"] == [
        f"{NAME}, memory after a step",
        f"{NAME}, peak memory of a step",
    ]
