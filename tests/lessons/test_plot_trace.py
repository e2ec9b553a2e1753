"""Traces that Perfetto opens, of torch.profiler and of virtual hardware, become events that `timeline` draws."""

import json

import matplotlib.pyplot as plt
import pytest
import torch
from torch.profiler import profile, record_function

from mpcourse import plot
from mpcourse.virtual import Event, span, write_chrome_trace


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_events_that_were_written_are_read_again_from_their_first_start_on(tmp_path):
    written = [
        Event("rank 0", "forward", "compute", 2.0, 2.5, 2.0, phase="forward"),
        Event("rank 0 -> rank 1", "message", "copy", 2.25, 3.0, 2.25, nbytes=400, asked="cell:3"),
        Event("rank 0", "wait", "wait", 2.5, 3.0, 2.5),
    ]
    read = plot.read_trace(write_chrome_trace(reversed(written), tmp_path / "trace.json"))
    for before, after in zip(written, read, strict=True):
        times = [before.start - 2, before.end - 2, before.issued - 2]
        assert [after.start, after.end] == pytest.approx(times[:2], abs=1e-9)
        assert after._replace(start=0, end=0, issued=0) == before._replace(start=0, end=0, issued=0)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Return the trace file of two training steps in one process."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with profile() as trace:
        for _ in range(2):
            with record_function("forward"):
                loss = model(torch.ones(8, 64)).sum()
            loss.backward()
            optimizer.step()
    file = tmp_path_factory.mktemp("profile") / "trace.json"
    trace.export_chrome_trace(str(file))
    return file


def test_a_trace_of_torch_profiler_has_the_three_phases_of_each_step_in_order(profiled):
    events = plot.read_trace(profiled)
    assert span(events)[0] == 0 and {e.lane for e in events} == {"rank 0"} and {e.kind for e in events} == {"compute"}
    phases = [e.phase for e in events]
    changes = [phase for phase, before in zip(phases, ["", *phases[:-1]], strict=True) if phase != before]
    assert changes == ["forward", "backward", "optimizer"] * 2
    assert "AddmmBackward0" in {e.name for e in events if e.phase == "backward"}


def test_each_thread_of_collectives_in_a_profile_has_a_lane_below_that_of_its_rank(profiled, tmp_path):
    trace = json.loads(profiled.read_text())
    trace["distributedInfo"] = {"rank": 3}
    begin = next(row["ts"] for row in trace["traceEvents"] if row["name"] == "forward")
    for thread, at in ((71, 5.0), (72, 7.0), (71, 30.0)):
        row = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": thread}
        trace["traceEvents"].append(row | {"ts": begin + at, "dur": 10.0, "args": {}})
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace))
    events = plot.read_trace(file)
    sums = [(e.lane, e.name, e.kind, round(e.seconds, 8)) for e in events if e.kind == "copy"]
    lanes = ["thread 1 of gloo, rank 3", "thread 2 of gloo, rank 3", "thread 1 of gloo, rank 3"]
    assert sums == [(lane, "all_reduce", "copy", 1e-5) for lane in lanes]
    drawn = plot.timeline({"predicted": [Event("rank 0", "", "compute", 0.0, 1e-3)], "measured": events})
    _, measured = drawn.axes
    assert [tick.get_text() for tick in measured.get_yticklabels()] == ["rank 3", *lanes[:2]]


def test_a_profile_of_neither_passes_nor_collectives_is_refused(tmp_path):
    with profile() as trace:
        torch.ones(3).add(1)
    file = tmp_path / "trace.json"
    trace.export_chrome_trace(str(file))
    with pytest.raises(ValueError, match="no passes"):
        plot.read_trace(file)
