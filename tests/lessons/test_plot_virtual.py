"""Figures of virtual hardware show what the records say: rows, widths, heights and numbers, not pixels."""

import base64
import contextlib
import itertools
from collections import Counter
from dataclasses import replace

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from jupyter_client.manager import start_new_kernel
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from torch import nn

from mpcourse import plot
from mpcourse.course.forkserver import offered
from mpcourse.models import mlp
from mpcourse.models.step_memory import StepMemory
from mpcourse.models.training import LearningCurve
from mpcourse.plot.style import COLORS, KIND_COLORS, KIND_HATCHES, shade
from mpcourse.plot.timeline import COLUMNS
from mpcourse.split import ParallelMLP
from mpcourse.virtual import GPUS, Event, busy, span, virtual_gpus
from mpcourse.virtual.gpus.ledger import KINDS, size
from tests.conftest import kernels
from tests.forked_kernels import found_by_jupyter

PHASES = ("forward", "backward", "optimizer")


@pytest.fixture(autouse=True)
def figures():
    with matplotlib.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


def train(model, device0, device1=None, batch=64, steps=1):
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        opt.zero_grad()
        y = model(torch.ones(batch, 784).to(device0))
        nn.functional.cross_entropy(y, torch.zeros(batch, dtype=torch.long).to(y.device)).backward()
        opt.step()
    return opt


@pytest.fixture(scope="module")
def box():
    """Two steps of a model split over two GPUs; what they made is alive as long as the box."""
    with virtual_gpus(2) as made:
        model = ParallelMLP("vgpu:0", "vgpu:1", n_units=200)
        train(model, "vgpu:0")
        made.reset()
        alive = model, train(model, "vgpu:0", steps=2)
        made.synchronize()
    yield made
    del alive


def names(figure):
    return [t.get_text() for t in figure.axes[0].get_yticklabels()]


def bars(figure):
    """{(lane, kind, phase): [(left, right), ...]} on the axis's scale."""
    found = {}
    for drawn in figure.axes[0].collections:
        if isinstance(drawn, PolyCollection) and drawn.get_gid():
            x = [path.vertices[:, 0] for path in drawn.get_paths()]
            found[tuple(drawn.get_gid().split("|"))] = [(v.min(), v.max()) for v in x]
    return found


def texts(figure):
    return [t.get_text() for axis in figure.axes for t in axis.texts]


def fills(figure):
    return {
        tuple(drawn.get_gid().split("|")): tuple(drawn.get_facecolor()[0][:3])
        for drawn in figure.axes[0].collections
        if isinstance(drawn, PolyCollection) and drawn.get_gid()
    }


def luminance(rgb):
    return 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2]


# -- timeline --


def test_a_timeline_has_the_host_on_top_then_devices_then_links(box):
    links = ["cpu -> vgpu:0", "vgpu:0 -> vgpu:1", "vgpu:1 -> vgpu:0"]
    assert names(plot.timeline(box)) == ["cpu", "vgpu:0", "vgpu:1", *links]


def test_lanes_are_in_the_order_of_their_numbers_below_the_host():
    lanes = ["vgpu:10", "vgpu:2", "a -> cpu", "cpu -> a", "vgpu:0", "a", "cpu"]
    events = [Event(lane, "mm", "compute", 0, 1) for lane in lanes]
    expected = ["cpu", "a", "vgpu:0", "vgpu:2", "vgpu:10", "cpu -> a", "a -> cpu"]
    assert names(plot.timeline(events)) == expected


def test_a_device_that_did_nothing_has_its_row():
    with virtual_gpus(3) as box:
        torch.ones(3, device="vgpu:1")
        figure = plot.timeline(box)
    assert names(figure) == ["cpu", "vgpu:0", "vgpu:1", "vgpu:2"] and texts(figure).count("0 % busy") == 2


def test_the_bars_of_a_lane_are_as_long_as_it_was_occupied(box):
    drawn = bars(plot.timeline(box))
    first, last = span(box.events)
    assert 1e-3 < last - first < 2, "the axis of this test is in milliseconds"
    for key in {(e.lane, e.kind, e.phase) for e in box.events}:
        seconds = sum(e.seconds for e in box.events if (e.lane, e.kind, e.phase) == key)
        assert sum(right - left for left, right in drawn[key]) == pytest.approx(1e3 * seconds), key
    for lane in box.names:
        widths = [b - a for key, row in drawn.items() if key[:2] == (lane, "compute") for a, b in row]
        assert sum(widths) == pytest.approx(1e3 * busy(box.events, lane))


def test_the_part_of_the_time_that_a_device_computed_is_written_beside_its_row(box):
    first, last = span(box.events)
    expected = [f"{100 * busy(box.events, lane) / (last - first):.0f} % busy" for lane in box.names]
    assert [t for t in texts(plot.timeline(box)) if t.endswith("busy")] == expected


def test_events_in_any_order_draw_the_figure_of_their_box(box):
    assert bars(plot.timeline(reversed(box.events))) == bars(plot.timeline(box))


def test_panels_of_a_timeline_have_one_axis_and_each_is_busy_for_a_part_of_its_own_time():
    slow = [Event("rank 0", "work", "compute", 0, 4), Event("rank 0", "work", "compute", 6, 8)]
    fast = [Event("rank 0", "work", "compute", 100, 104)]
    figure = plot.timeline({"slow": slow, "fast": fast})
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["slow", "fast"]
    assert [axis.get_xlim() for axis in figure.axes] == 2 * [(0, 8)]
    assert [t for t in texts(figure) if t.endswith("busy")] == ["75 % busy", "100 % busy"]
    ((path,),) = [drawn.get_paths() for drawn in figure.axes[1].collections if isinstance(drawn, PolyCollection)]
    assert (path.vertices[:, 0].min(), path.vertices[:, 0].max()) == (0, 4)
    with pytest.raises(ValueError, match="there is no panel"):
        plot.timeline({})


def test_start_and_end_cut_events_and_the_axis_begins_at_start():
    events = [Event("rank 0", "work", "compute", 5, 15), Event("rank 0", "late", "compute", 18, 40)]
    figure = plot.timeline(events, start=10, end=20)
    assert bars(figure) == {("rank 0", "compute", ""): [(0, 5), (8, 10)]} and figure.axes[0].get_xlim() == (0, 10)
    assert "70 % busy" in texts(figure)


def test_lanes_are_chosen_and_ordered_by_the_caller(box):
    assert names(plot.timeline(box, lanes=["vgpu:1", "cpu"])) == ["vgpu:1", "cpu"]
    with pytest.raises(ValueError, match="no lane 'vgpu:7': choose of cpu, vgpu:0, vgpu:1, cpu -> vgpu:0"):
        plot.timeline(box, lanes=["vgpu:7"])


def test_ten_thousand_small_events_are_at_most_one_bar_a_column_and_no_time_is_lost():
    events = [Event("vgpu:0", "add", "compute", i * 10e-6, i * 10e-6 + 3e-6) for i in range(10_000)]
    (row,) = bars(plot.timeline(events)).values()
    assert len(row) <= COLUMNS + 1
    assert sum(b - a for a, b in row) == pytest.approx(10_000 * 3e-3)
    starts = np.array([1e3 * e.start for e in events])
    assert max(np.abs(starts - a).min() for a, _ in row) < 1e-9  # each bar begins where an event does


def test_events_that_touch_are_one_bar_unless_each_is_wide():
    touching = [Event("vgpu:0", "add", "compute", i * 1e-3, (i + 1) * 1e-3) for i in range(1000)]
    assert list(bars(plot.timeline(touching)).values()) == [[(0, pytest.approx(1000))]]
    wide = [Event("rank 0", f"F{i}", "compute", i, i + 1) for i in range(4)]
    figure = plot.timeline(wide)
    assert len(bars(figure)["rank 0", "compute", ""]) == 4
    assert [t for t in texts(figure) if t.startswith("F")] == ["F0", "F1", "F2", "F3"]


def test_phases_differ_in_lightness_and_lanes_keep_their_colour():
    events = [
        Event(f"vgpu:{i}", "mm", "compute", j, j + 1, phase=phase) for i in range(3) for j, phase in enumerate(PHASES)
    ]
    found = fills(plot.timeline(events))
    for i in range(3):
        light, full, dark = (luminance(found[f"vgpu:{i}", "compute", phase]) for phase in PHASES)
        assert light > full + 0.1 > dark + 0.2
        assert found[f"vgpu:{i}", "compute", "backward"] == matplotlib.colors.to_rgb(plot.color(i))
    alone = [e._replace(lane=e.lane.replace("vgpu:", "rank ")) for e in events if e.lane == "vgpu:2"]
    assert fills(plot.timeline(alone))["rank 2", "compute", "forward"] == found["vgpu:2", "compute", "forward"]


def test_a_link_is_hatched_in_the_colour_of_its_source(box):
    figure = plot.timeline(box)
    found = fills(figure)
    assert found["vgpu:1 -> vgpu:0", "copy", "forward"] == found["vgpu:1", "compute", "forward"]
    hatched = {d.get_gid().split("|")[1] for d in figure.axes[0].collections if d.get_gid() and d.get_hatch()}
    assert hatched == {"copy"}


def test_waits_are_lighter_and_thinner_than_work(box):
    figure = plot.timeline(box)
    height = {}
    for drawn in figure.axes[0].collections:
        if isinstance(drawn, PolyCollection) and drawn.get_gid():
            y = drawn.get_paths()[0].vertices[:, 1]
            height[tuple(drawn.get_gid().split("|"))] = y.max() - y.min()
    found = fills(figure)
    assert height["cpu", "wait", ""] < height["cpu", "enqueue", "backward"] / 3
    assert luminance(found["cpu", "wait", ""]) > luminance(found["cpu", "enqueue", "backward"])


@pytest.mark.parametrize(
    ("seconds", "unit"), [(5e-4, "microseconds"), (5e-3, "milliseconds"), (1.5, "milliseconds"), (5, "seconds")]
)
def test_the_axis_of_time_is_in_a_unit_that_fits(seconds, unit):
    figure = plot.timeline([Event("rank 0", "work", "compute", 7.0, 7.0 + seconds)])
    assert figure.axes[0].get_xlabel() == unit and 1 < figure.axes[0].get_xlim()[1] <= 1500


# -- memory --


def heights(axis):
    """Return the edges of the columns, and {kind: its height in each}. Asserts that kinds are stacked."""
    found, edges, floor = {}, [], 0.0
    for drawn in axis.collections:
        if drawn.get_gid() in KINDS:
            ends = {}  # left edge: bottom and top
            vertices = drawn.get_paths()[0].vertices.tolist()
            for (x0, y0), (x1, y1) in itertools.pairwise(vertices):
                if y0 == y1 and x0 != x1:
                    ends.setdefault(min(x0, x1), []).append(y0)
            edges = [*sorted(ends), max(x for x, _ in vertices)]
            low, high = (np.array([extreme(ends[x]) for x in sorted(ends)]) for extreme in (min, max))
            assert low == pytest.approx(floor)
            found[drawn.get_gid()], floor = high - low, high
    return edges, found


@pytest.mark.parametrize("over", ["time", "operations"])
def test_the_heights_of_the_kinds_sum_to_what_the_ledger_says_was_used(box, over):
    figure = plot.memory(box, over=over)
    for i, axis in enumerate(figure.axes[:2]):
        history = [(seconds, dict(kinds)) for seconds, kinds in box.ledger.history(i)]
        _, found = heights(axis)
        assert {"parameters", "gradients", "activations", "optimizer state"} <= set(found) <= set(KINDS)
        total = 2**20 * sum(found.values())
        assert axis.get_ylabel() == "MiB"
        assert total.max() == pytest.approx(box.ledger.most[i])
        assert total[-1] == pytest.approx(box.ledger.used[i])
        assert all(np.isclose(t, [sum(k.values()) for _, k in history], atol=1).any() for t in total)
        for kind, height in found.items():
            assert 2**20 * height.max() <= max(k.get(kind, 0) for _, k in history) * (1 + 1e-9)


def test_memory_over_operations_changes_where_the_operation_was_issued():
    with virtual_gpus(1) as box:
        a = torch.zeros(2**18, device="vgpu:0")
        b = a + 1
        c = b + 1
        figure = plot.memory(box, device="vgpu:0", over="operations")
    edges, found = heights(figure.axes[0])
    assert list(edges) == [0, 1, 2, 3, 4][: len(edges)] and figure.axes[0].get_ylabel() == "MiB"
    assert list(sum(found.values())) == pytest.approx([1, 2, 3][: len(edges) - 1])
    del b, c


def test_the_peak_is_marked_with_its_bytes_operation_and_line(box):
    figure = plot.memory(box)
    for i, axis in enumerate(figure.axes[:2]):
        peak = box.ledger.peak(i)
        (mark,) = axis.lines
        assert mark.get_ydata() == pytest.approx([peak.nbytes / 2**20])
        assert mark.get_xdata() == pytest.approx([1e3 * (peak.seconds - box.ledger.log[0][0])])
        told = f"peak {size(peak.nbytes)}: {peak.name} in {peak.phase}, test_plot_virtual.py:"
        assert [t for t in texts(figure) if t.startswith(told)]


def test_panels_side_by_side_have_one_scale_and_tell_the_bytes_of_their_peaks_alone():
    boxes = {}
    for name, n in (("large", 2000), ("small", 1000)):
        with virtual_gpus(1) as boxes[name]:
            alive = torch.zeros(n, device="vgpu:0") + 1
    figure = plot.memory(boxes, over="operations", beside=True)
    large, small = figure.axes
    assert large.get_ylim() == small.get_ylim() and large.get_position().x1 < small.get_position().x0
    assert texts(figure) == [f"peak {size(16000)}", f"peak {size(8000)}"]
    assert [axis.get_ylabel() for axis in figure.axes] == ["KiB", ""]
    assert [axis.get_xlabel() for axis in figure.axes] == ["operations issued by the host", ""]
    del alive


def test_a_peak_that_was_there_before_the_figure_begins_says_so():
    with virtual_gpus(2) as box:
        alive = [torch.zeros(1000, device=d) for d in box.devices]
        box.reset()
        alive[0].add_(1)
        assert texts(plot.memory(box)) == 2 * [f"peak {size(4000)}: from the start"]


def test_each_device_that_held_something_has_a_panel():
    with virtual_gpus(3) as box:
        alive = [torch.zeros(1000, device=d) for d in ("vgpu:0", "vgpu:2")]
        for device, panels in [(None, [0, 2]), (2, [2]), ("vgpu:0", [0]), (torch.device("vgpu", 2), [2])]:
            titles = [axis.get_title(loc="left") for axis in plot.memory(box, device=device).axes]
            assert titles == [f"vgpu:{i}, Tesla P100-SXM2" for i in panels]
        with pytest.raises(ValueError, match="nothing was ever on vgpu:1"):
            plot.memory(box, device=1)
        with pytest.raises(ValueError, match="not the host's memory"):
            plot.memory(box, device="cpu")
        with pytest.raises(RuntimeError, match="vgpu:7"):
            plot.memory(box, device=7)
        del alive


def test_the_end_of_a_devices_memory_is_drawn_when_it_is_near():
    with virtual_gpus(1, dry=True) as box:
        gpu = box.gpus[0]
        for nbytes, near in [(2**30, False), (14 * 2**30, True)]:
            alive = torch.empty(nbytes // 4, device="vgpu:0")
            figure = plot.memory(box)
            lines = [line.get_ydata()[0] for line in figure.axes[0].lines if len(line.get_ydata()) == 2]
            assert lines == ([(gpu.memory - gpu.context) / 2**30] if near else [])
            assert any("all that tensors can have" in t for t in texts(figure)) == near
            del alive


def test_memory_can_be_compared_with_that_of_a_smaller_gpu_than_the_boxs_own():
    small = GPUS["Tesla P100-SXM2"]
    with virtual_gpus(1, replace(small, memory=80 * 2**30), dry=True) as box:
        alive = torch.empty(20 * 2**28, device="vgpu:0")
        figure = plot.memory(box, gpu=small)
        (axis,) = figure.axes
        lines = [line.get_ydata()[0] for line in axis.lines if len(line.get_ydata()) == 2]
        assert lines == [(small.memory - small.context) / 2**30] and axis.get_ylim()[1] > 20
        assert axis.get_title(loc="left") == "vgpu:0"
        assert any("all that tensors can have on a Tesla P100-SXM2" in t for t in texts(figure))
        del alive


def test_the_panels_of_several_devices_have_one_scale():
    for gigabytes in (1, 15):  # with and without the end of a device's memory
        with virtual_gpus(2, dry=True) as box:
            alive = [torch.empty(n * 2**27, device=d) for n, d in zip((2 * gigabytes, 1), box.devices, strict=True)]
            full, empty = plot.memory(box).axes
            assert full.get_ylim() == empty.get_ylim() and full.get_ylim()[1] > gigabytes
            del alive


def test_memory_of_a_long_run_is_drawn_in_few_points_and_keeps_its_peak():
    with virtual_gpus(1, dry=True) as box:
        a = torch.zeros(1000, device="vgpu:0")
        for i in range(3000):
            a = a + 1
            if i == 1234:
                torch.empty(10**7, device="vgpu:0")  # held for no time at all
        edges, found = heights(plot.memory(box).axes[0])
    assert len(box.ledger.log) > 5000 and len(edges) < 1000
    assert 2**20 * sum(found.values()).max() == pytest.approx(box.ledger.most[0])


# -- colours of kinds --


def test_every_kind_of_the_ledger_has_a_colour_and_optimizer_state_that_of_the_bills_optimizer():
    assert set(KINDS) <= set(KIND_COLORS) == set(KIND_HATCHES)
    assert len({(KIND_COLORS[k], KIND_HATCHES[k]) for k in KINDS}) == len(KINDS)


def test_a_bill_marks_the_memory_that_a_device_has_also_where_no_bar_reaches_it():
    for gigabytes, side in ((2, "left"), (50, "right")):
        (axis,) = plot.memory_breakdown({"a": {"parameters": 10e9}}, "a bill", "GB", gigabytes * 1e9).axes
        assert [line.get_xdata()[0] for line in axis.lines] == [gigabytes] and axis.get_xlim()[1] > gigabytes
        ((text, where),) = [(t.get_text(), t.get_ha()) for t in axis.texts if "all that" in t.get_text()]
        assert (text, where) == (f"{gigabytes} GB: all that a device has", side)


def test_a_bill_shows_the_kinds_of_its_rows_only():
    def kinds(rows):
        return [t.get_text() for t in plot.memory_breakdown(rows, "what a step holds").legends[0].get_texts()]

    breakdown = StepMemory(1, 1, 1, 1).as_dict()
    assert kinds({"sgd": breakdown}) == ["parameters", "gradients", "optimizer state", "activations"]
    assert kinds({"a": {"parameters": 4}, "b": {"inputs": 4}}) == ["parameters", "inputs"]


# -- traffic --


def test_the_matrix_holds_the_bytes_and_the_number_of_copies_of_each_pair(box):
    figure = plot.traffic(box)
    (axis,) = figure.axes
    (image,) = axis.images
    places = ["cpu", *box.names]
    assert names(figure) == [t.get_text() for t in axis.get_xticklabels()] == places
    written = {tuple(t.get_position()): t.get_text() for t in axis.texts}
    pairs = {e.lane for e in box.copies}
    assert len(written) == len(pairs) == 3
    for row, a in enumerate(places):
        for column, b in enumerate(places):
            copies = [e for e in box.copies if e.lane == f"{a} -> {b}"]
            moved = sum(e.nbytes for e in copies)
            if copies:
                assert image.get_array()[row, column] == moved > 0
                assert written[column, row] == f"{size(moved)}\n{len(copies)} copies"
            else:
                assert image.get_array().mask[row, column] and (column, row) not in written


def test_bars_hold_what_each_rank_sends_and_receives():
    events = [
        Event("rank 0 -> rank 10", "send", "copy", 0, 1, nbytes=2_000_000),
        Event("rank 0 -> rank 2", "send", "copy", 0, 1, nbytes=1_000_000),
        Event("rank 2 -> rank 0", "send", "copy", 0, 1, nbytes=500_000),
    ]
    figure = plot.sent(events, "who sends what")
    (axis,) = figure.axes
    sends, receives = axis.containers
    assert names(figure) == ["rank 0", "rank 2", "rank 10"]
    assert [bar.get_width() for bar in sends] == [3.0, 0.5, 0.0]
    assert [bar.get_width() for bar in receives] == [0.5, 1.0, 2.0]
    assert texts(figure) == ["3.0", "0.5", "0.0", "0.5", "1.0", "2.0"]


def test_a_device_without_traffic_is_shown_and_a_host_without_is_not():
    with virtual_gpus(3) as made:
        x = torch.ones(4, device="vgpu:0")
        made.reset()
        x.to("vgpu:1")
        figure = plot.traffic(made)
    assert names(figure) == ["vgpu:0", "vgpu:1", "vgpu:2"]


def test_traffic_of_ranks_is_drawn_from_plain_events():
    events = [
        Event("rank 0 -> rank 10", "send", "copy", 0, 1, nbytes=512),
        Event("rank 2 -> rank 0", "send", "copy", 0, 1, nbytes=3 * 2**20),
        Event("rank 2", "work", "compute", 0, 1, nbytes=999),
        Event("rank 7", "to the host's disk", "copy", 0, 1, nbytes=999),
    ]
    figure = plot.traffic(events)
    assert names(figure) == ["rank 0", "rank 2", "rank 10"]
    assert sorted(texts(figure)) == ["3.00 MiB\n1 message", "512 B\n1 message"]


# -- limits of kernels and messages --


def test_no_kernel_lies_above_the_roof_and_each_is_at_its_intensity(box):
    gpu = GPUS["A100-SXM4"]
    flops, bandwidth = gpu.rate(torch.float32), gpu.bandwidth * gpu.memory_efficiency
    events = [
        Event("vgpu:0", "mm", "compute", 0.0, 1e-3, nbytes=10**6, flops=10**10, phase="forward"),
        Event("vgpu:0", "relu", "compute", 1e-3, 2e-3, nbytes=8 * 10**6, phase="backward"),
        Event("vgpu:1", "mm", "compute", 0.0, 1e-3, nbytes=1, flops=10**12, phase="forward"),
        Event("cpu", "mm", "enqueue", 0.0, 1e-3, phase="forward"),
    ]
    (axis,) = plot.roofline(events, flops, bandwidth, "title").axes
    points = {marks.get_label(): marks.get_offsets().tolist() for marks in axis.collections}
    assert points == {"forward": [[1e4, pytest.approx(10.0)]], "backward": [[0.125, pytest.approx(1e-3)]]}
    named = {text.get_text() for text in axis.texts}
    assert named == {"mm", "memory-bound", "compute-bound"}, "relu lies below the axis"
    for marks in plot.roofline(box, flops, bandwidth, "title").axes[0].collections:
        for intensity, rate in marks.get_offsets():
            assert rate * 1e12 <= 1.001 * min(flops, intensity * bandwidth)
        assert (marks.get_facecolor()[:, 3] < 1).all(), "a mark below another must be seen"
    with pytest.raises(ValueError, match="no kernel ran on vgpu:7"):
        plot.roofline(events, flops, bandwidth, "title", lane="vgpu:7")


def test_a_split_message_is_half_latency_where_both_parts_cross():
    (axis,) = plot.split_message(2**23, 30e-6, 1.18e9, "title").axes
    together, latency, in_bytes = ({x: y for x, y in line.get_xydata()} for line in axis.lines[:3])
    assert all(together[k] == pytest.approx(latency[k] + in_bytes[k]) for k in together)
    assert latency[64] == pytest.approx(64 * 30e-3) and in_bytes[1] == in_bytes[4096] == pytest.approx(2**23 / 1.18e6)
    (mark,) = axis.lines[3].get_xydata()
    assert mark[0] == pytest.approx(2**23 / 1.18e9 / 30e-6) and mark[1] == pytest.approx(2 * in_bytes[1])
    assert "237 messages of 35.4 kB" in axis.texts[0].get_text()


# -- nothing to draw --


def test_a_figure_of_nothing_says_why():
    for draw in (plot.timeline, plot.traffic):
        with pytest.raises(ValueError, match="the list is empty"):
            draw([])
        with virtual_gpus(1) as box, pytest.raises(ValueError, match="nothing has run in this box"):
            draw(box)
        with virtual_gpus(1, record=False) as box:
            torch.ones(3, device="vgpu:0")
            with pytest.raises(ValueError, match="record=True"):
                draw(box)
    with virtual_gpus(1) as box, pytest.raises(ValueError, match="nothing was ever on any device"):
        plot.memory(box)
    with virtual_gpus(1, record=False) as box, pytest.raises(RuntimeError, match="record=True"):
        plot.memory(box)
    event = Event("vgpu:0", "mm", "compute", 0, 1)
    with pytest.raises(ValueError, match="no copies to draw"):
        plot.traffic([event])
    with pytest.raises(ValueError, match="nothing happened from 2 s to 3 s"):
        plot.timeline([event], start=2, end=3)
    with pytest.raises(ValueError, match='"time" or "operations"'):
        plot.memory(box, over="space")


def test_titles_are_the_callers(box):
    for figure in (plot.timeline(box, "one"), plot.memory(box, "one"), plot.traffic(box, "one")):
        assert figure.get_suptitle() == "one"
    for draw in (plot.timeline, plot.memory, plot.traffic):
        assert draw(box).get_suptitle()


def test_a_step_on_one_device_is_a_small_file(tmp_path):
    with virtual_gpus(1, dry=True) as box:
        train(mlp([784, *[64] * 40, 10]).to("vgpu:0"), "vgpu:0", steps=2)
        assert len(box.events) > 1000
        for name, figure in {"timeline": plot.timeline(box), "memory": plot.memory(box)}.items():
            path = tmp_path / f"{name}.png"
            figure.savefig(path)
            assert path.stat().st_size < 150_000


# -- sliders --

DRAW = """
import mpcourse.plot as plot
from mpcourse.virtual import Event
drawn = []
def draw(batch, link="fast"):
    drawn.append((batch, link))
    return plot.timeline([Event("rank 0", link, "compute", 0, batch)])
plot.sliders(draw, batch=[1, 2, 4], link=["slow", "fast"])
"""


@pytest.fixture
def kernel():
    with found_by_jupyter(kernels()) if offered() else contextlib.nullcontext():
        manager, client = start_new_kernel(kernel_name="python3")

    def run(code, allow_stdin):
        said = []
        reply = client.execute_interactive(
            code, allow_stdin=allow_stdin, timeout=60, output_hook=said.append, stdin_hook=lambda _: None
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        return [m for m in said if m["msg_type"] in ("display_data", "update_display_data", "execute_result", "error")]

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def test_a_notebook_that_a_program_runs_shows_the_figure_of_the_defaults_and_no_slider(kernel):
    (shown,) = kernel(DRAW, allow_stdin=False)
    assert shown["msg_type"] == "display_data" and "image/png" in shown["content"]["data"]
    (told,) = kernel("drawn", allow_stdin=False)
    assert told["content"]["data"]["text/plain"] == "[(1, 'fast')]"


def test_a_slider_that_is_moved_redraws_the_same_image(kernel):
    image, *updates, controls = kernel(DRAW, allow_stdin=True)
    assert "image/png" in image["content"]["data"]
    assert "application/vnd.jupyter.widget-view+json" in controls["content"]["data"]
    assert all(u["msg_type"] == "update_display_data" for u in updates)
    move = (
        "import ipywidgets; [s] = [w for w in ipywidgets.Widget.widgets.values() if getattr(w, 'description', '') == "
    )
    (moved,) = kernel(move + "'batch']; s.value = 4", allow_stdin=True)
    assert moved["msg_type"] == "update_display_data" and "image/png" in moved["content"]["data"]
    assert moved["content"]["transient"] == image["content"]["transient"]
    assert moved["content"]["data"]["image/png"] != image["content"]["data"]["image/png"]
    (told,) = kernel("drawn", allow_stdin=True)
    assert told["content"]["data"]["text/plain"] == "[(1, 'fast'), (4, 'fast')]"


def test_the_image_above_sliders_is_as_large_as_the_notebooks_other_figures(kernel):
    (default,) = kernel(DRAW, allow_stdin=False)
    kernel("%config InlineBackend.print_figure_kwargs = {'dpi': 50}", allow_stdin=False)
    (small,) = kernel(DRAW, allow_stdin=False)
    wide, half = (
        int.from_bytes(base64.b64decode(shown["content"]["data"]["image/png"])[16:20])  # a PNG begins with its width
        for shown in (default, small)
    )
    assert 0.4 < half / wide < 0.6


def test_several_seeds_are_drawn_as_their_mean_and_a_band_of_two_standard_errors():
    made = plot.lines([1, 2], {"a": [[3, 5], [4, 8]], "b": [1, float("nan")]}, "x", "y", "title")
    (axis,) = made.axes
    assert list(axis.lines[0].get_ydata()) == [4, 6] and len(axis.collections) == 1
    (band,) = axis.collections
    # Standard errors of the means are 1 and 2, and the band has two of them to each side.
    assert {tuple(v) for v in band.get_paths()[0].vertices} == {(1, 2), (1, 6), (2, 2), (2, 10)}


def test_panels_show_the_same_curves_against_other_quantities():
    made = plot.panels({"step": {"a": ([1, 10], [2, 3])}, "second": {"a": ([5, 50], [2, 30])}}, "y", "title")
    left, right = made.axes
    assert [axis.get_xlabel() for axis in made.axes] == ["step", "second"] and left.get_ylim() == right.get_ylim()
    assert [list(axis.lines[0].get_xdata()) for axis in made.axes] == [[1, 10], [5, 50]]
    assert left.get_xscale() == "log" and [t.get_text() for t in left.get_legend().get_texts()] == ["a"]
    with pytest.raises(ValueError, match="no curves"):
        plot.panels({"step": {}}, "y", "title")


def test_a_slider_without_values_is_refused():
    with pytest.raises(ValueError, match="'batch' needs values"):
        plot.sliders(lambda batch: None, batch=[])


def test_lines_have_their_names_and_a_reference_its_height():
    made = plot.lines([1, 2, 8], {"a": [3, 4, 5], "b": [1, 1, 2]}, "x", "y", "title", {"all": 4.5}, log=False)
    (axis,) = made.axes
    assert [line.get_label() for line in axis.lines[:2]] == ["a", "b"] and axis.get_xscale() == "linear"
    assert [list(line.get_ydata()) for line in axis.lines[:2]] == [[3, 4, 5], [1, 1, 2]]
    assert list(axis.lines[2].get_ydata()) == [4.5, 4.5] and "all" in [t.get_text() for t in axis.texts]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["1", "2", "8"]
    assert plot.lines([1, 2], {"a": [3, 4]}, "x", "y", "title").axes[0].get_xscale() == "log"


@pytest.mark.parametrize(
    ("rows", "end"),
    [({"a": [1.1, 9]}, 2), ({"a": [9, 1.1]}, 1), ({"a": [1.1, 1.1], "b": [0, 9]}, 1), ({"a": [float("nan"), 9]}, 1)],
)
def test_the_name_of_a_reference_stands_where_no_line_runs_through_it(rows, end):
    (axis,) = plot.lines([1, 2], rows, "x", "y", "title", {"no gain": 1.0}, log=False).axes
    (name,) = axis.texts
    assert name.xy == (end, 1.0) and name.get_ha() == ("left" if end == 1 else "right")


def test_lines_on_an_axis_of_factors_have_their_places_marked():
    made = plot.lines([1, 2, 4], {"a": [2, 20, 90]}, "x", "y", "title", log_y=True, verticals={"here": 3.0})
    (axis,) = made.axes
    assert axis.get_yscale() == "log" and [t.get_text() for t in axis.texts] == ["here"]
    assert list(axis.lines[-1].get_xdata()) == [3.0, 3.0]


def test_time_against_compute_is_in_parts_of_the_least_with_the_critical_batch_at_two():
    runs = {100: (400.0, 40_000.0), 300: (200.0, 60_000.0)}
    (axis,) = plot.tradeoff(runs, 100.0, 30_000.0, "title", batch=600).axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axis.lines}
    assert drawn["measured"] == [[4.0, pytest.approx(4 / 3)], [2.0, 2.0]]
    assert drawn["critical batch, 300"] == [[2.0, 2.0]] and drawn["batch 600"] == [[1.5, 3.0]]
    assert all((x - 1) * (y - 1) == pytest.approx(1) for x, y in drawn["formula"])
    (axis,) = plot.tradeoff({100: (400.0, 36_000.0), 2000: (120.0, 240_000.0)}, 100.0, 30_000.0, "title").axes
    assert [t.get_ha() for t in axis.texts] == ["right", "left"]  # the side where the curve is not
    with pytest.raises(ValueError, match="no runs"):
        plot.tradeoff({}, 1.0, 1.0, "title")


def test_quantities_side_by_side_have_heights_of_their_own():
    left, right = plot.side_by_side({"a": ([1, 2], [3, 5]), "b": ([1, 2], [300, 100])}, "x", "title").axes
    assert left.get_ylim()[1] == pytest.approx(5.25) and right.get_ylim()[1] == pytest.approx(315)
    assert (left.get_ylabel(), right.get_ylabel()) == ("a", "b")
    assert left.xaxis.get_major_formatter()(1024) == "1024"
    with pytest.raises(ValueError, match="no quantities"):
        plot.side_by_side({}, "x", "title")


def test_points_stand_where_they_cost_what_they_cost_each_with_its_name_where_no_other_is():
    choices = {"a": (1.0, 10.0), "b": (2.0, 5.0), "c": (1.5, 5.1)}
    (axis,) = plot.points(choices, "x", "y", "title", {"all": 12.0}).axes
    drawn = {line.get_label(): (*line.get_xdata(), *line.get_ydata()) for line in axis.lines[:3]}
    assert drawn == choices
    assert axis.get_ylim()[0] == 0 and axis.get_ylim()[1] > 12 and axis.get_xlim()[1] > 2 and axis.get_xlim()[0] < 1
    assert {t.get_text(): t.get_ha() for t in axis.texts[:3]} == {"a": "left", "b": "left", "c": "right"}
    with pytest.raises(ValueError, match="no choices"):
        plot.points({}, "x", "y", "title")


def test_the_name_of_a_point_is_lower_where_a_reference_would_cross_it():
    (axis,) = plot.points({"far": (1.0, 5.0), "near": (2.0, 11.9)}, "x", "y", "title", {"all": 12.0}).axes
    assert [text.get_position()[1] for text in axis.texts[:2]] == [0, -9]


def test_every_skip_of_a_unet_crosses_the_cut_with_its_bytes():
    (axis,) = plot.unet([128 * 2**20, 32 * 2**20], 8 * 2**20, "title").axes
    told = [t.get_text() for t in axis.texts]
    assert [t for t in told if t.startswith("skip")] == ["skip: 128.00 MiB", "skip: 32.00 MiB"]
    assert "all that a chain would send: 8.00 MiB" in told and told.count("level 1") == 2 and "bottom" in told
    with pytest.raises(ValueError, match="one skip"):
        plot.unet([], 1, "title")


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_each_matrix_of_a_column_and_row_parallel_pair_is_drawn_in_a_block_a_device(devices):
    (axis,) = plot.column_row(devices, "title").axes
    blocks = Counter(patch.get_gid() for patch in axis.patches)
    assert blocks == {"X": 1, "A": devices, "H": devices, "B": devices, "": devices}
    signs = [t.get_text() for t in axis.texts if t.get_text() in ("×", "GELU", "→", "=", "+")]
    assert signs == ["×", "GELU", "→", "×", "=", *["+"] * (devices - 1)], "H is GELU(X A), not X A"
    with pytest.raises(ValueError, match="2 to 4"):
        plot.column_row(5, "title")


def test_parts_lie_end_to_end_and_marks_stand_in_their_rows():
    rows = {"one": {"compute": 2.0, "sum": 1.0}, "two": {"compute": 1.0, "copy": 0.5, "sum": 4.0}}
    (axis,) = plot.parts(rows, "seconds", "title", {"two": 6.0}).axes
    bars = {(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_width()) for b in axis.patches if b.get_width()}
    assert bars == {(0, 0.0, 2.0), (0, 2.0, 1.0), (1, 0.0, 1.0), (1, 1.0, 0.5), (1, 1.5, 4.0)}
    (mark,) = axis.lines
    assert list(mark.get_xdata()) == [6.0] and list(mark.get_ydata()) == ["two"]
    assert axis.yaxis_inverted() and [t.get_text() for t in axis.get_yticklabels()] == ["one", "two"]
    with pytest.raises(ValueError, match="no rows"):
        plot.parts({}, "seconds", "title")
    with pytest.raises(ValueError, match="not there: three"):
        plot.parts(rows, "seconds", "title", {"three": 1.0})


def test_a_lane_of_copies_is_not_called_idle():
    events = [Event("rank 0", "work", "compute", 0.0, 1.0, 0.0), Event("bucket 0", "sum", "copy", 0.0, 0.5, 0.0)]
    found = [t for t in texts(plot.timeline(events, "title")) if t.endswith("busy")]
    assert found == ["100 % busy"]


def test_each_variant_has_a_panel_beside_the_same_reference():
    curves = {"right": [[1, 2], [3, 4]], "a": [[5, 6], [7, 8]], "b": [[1, 1], [1, 1]]}
    made = plot.against_reference([0, 1], curves, "right", "variant", "x", "y", "title")
    assert [axis.get_title() for axis in made.axes] == ["a", "b"]
    assert [[list(line.get_ydata()) for line in axis.lines] for axis in made.axes] == [
        [[6, 7], [2, 3]],
        [[1, 1], [2, 3]],
    ]
    band = made.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(4.0) and band.max() == pytest.approx(9.0)  # 6 and 7, -+ 2 * 1
    assert len({axis.lines[0].get_color() for axis in made.axes}) == 1 and made.axes[0].get_ylabel() == "y, 2 seeds"
    assert [text.get_text() for text in made.legends[0].get_texts()] == ["variant", "right"]
    for names in ({"a": curves["a"]}, {"right": curves["right"]}):
        with pytest.raises(ValueError, match="beside nothing"):
            plot.against_reference([0, 1], names, "right", "variant", "x", "y", "title")


def test_sizes_on_an_axis_are_told_with_binary_units():
    made = plot.lines([16, 4096, 1 << 21], {"a": [1, 2, 3]}, "bytes", "s", "title")
    plot.label_bytes(made, [16, 4096, 1 << 21])
    assert [text.get_text() for text in made.axes[0].get_xticklabels()] == ["16 B", "4 KiB", "2 MiB"]


def test_a_timelines_legend_has_the_colours_of_its_bars(box):
    made = plot.timeline(box, "title")
    (legend,) = made.legends
    shown = {patch.get_facecolor() for patch in legend.findobj(Rectangle) if patch is not legend.legendPatch}
    drawn = {bars.get_gid().split("|")[1]: set() for bars in made.axes[0].collections if bars.get_gid()}
    for bars in made.axes[0].collections:
        if bars.get_gid():
            drawn[bars.get_gid().split("|")[1]].add(tuple(bars.get_facecolor()[0]))
    assert drawn["enqueue"] | drawn["compute"] <= shown <= drawn["enqueue"] | drawn["compute"] | drawn["copy"]


def test_a_wait_that_cannot_be_seen_is_not_in_the_legend():
    step = Event("vgpu:0", "mm", "compute", 0.0, 1.0, 0.0, phase="forward")
    for seconds, told in ((1e-5, ["forward"]), (0.1, ["forward", "waits"])):
        wait = Event("cpu", "synchronize", "wait", 0.0, seconds, 0.0)
        assert [t.get_text() for t in plot.timeline([step, wait], "title").legends[0].get_texts()] == told


def test_memorys_legend_leaves_out_what_is_too_little_to_be_seen():
    with virtual_gpus(1, record=True) as made:
        kept = torch.ones(1_000_000, device="vgpu:0"), nn.BatchNorm1d(2).to("vgpu:0")
        told = [t.get_text() for t in plot.memory(made, "title").legends[0].get_texts()]
        assert len(told) == 1 and "buffers" not in told
        assert {k for _, kinds in made.ledger.history(0) for k, n in kinds.items() if n} > set(told)
        del kept


def test_single_values_are_open_marks_of_several_kinds_and_the_left_ones_name_of_two_places_is_on_its_left():
    marks, one = {"b": 3.0, "a": 2.0}, {"published": (4, 7.0), "again": (4, 8.0)}
    (axis,) = plot.lines([1, 2, 4], {"x": [1, 2, 3]}, "x", "y", "title", verticals=marks, single=one).axes
    circle, other = (line for line in axis.lines if line.get_label() in one)
    assert circle.get_xydata().tolist() == [[4.0, 7.0]] and circle.get_markerfacecolor() == "none"
    assert circle.get_marker() == "o" != other.get_marker()
    assert {t.get_text(): t.get_ha() for t in axis.texts} == {"b": "left", "a": "right"}


def test_runs_that_end_below_a_line_are_counted_and_look_otherwise():
    good, bad = (LearningCurve([1, 2], [1.0, 2.0], [0, 0], [1, 1], [0.5, end]) for end in (0.95, 0.4))
    left, right = plot.each_run({"a": [good, bad, bad], "b": [good]}, "title").axes
    assert [axis.get_title("left") for axis in (left, right)] == [
        "a: 2 of 3 end below 90 %",
        "b: 0 of 1 end below 90 %",
    ]
    assert [line.get_linestyle() for line in left.lines] == ["-", "--", "--", ":"]
    assert list(left.lines[1].get_ydata()) == [50, 40]


def test_parts_of_a_bar_differ_in_hatching_and_a_bubble_looks_as_in_a_schedule():
    (axis,) = plot.parts({"one": {"compute": 2.0, "bubble": 1.0, "sum": 3.0}}, "seconds", "title").axes
    assert [(bar.get_hatch() or "", to_hex(bar.get_facecolor())) for bar in axis.patches] == [
        ("", COLORS[0].lower()), ("////", "#ffffff"), ("....", COLORS[2].lower()),
    ]  # fmt: skip
    assert to_hex(axis.patches[2].get_edgecolor()) == shade(COLORS[2], 1.5), "white hatches would look like gaps"
