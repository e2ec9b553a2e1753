"""The clock: lanes, waits, copies, and the roofline. All times are virtual, so they are exact."""

import itertools
import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.models import mlp
from mpcourse.virtual import GPUS, LINKS, busy, chrome_trace, span, virtual_gpus, write_chrome_trace

P100 = GPUS["Tesla P100-SXM2"]


def train(box, n=2):
    model = mlp([20, 30, 5]).to("vgpu:0")
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(n):
        opt.zero_grad()
        model(torch.ones(7, 20).to("vgpu:0")).sum().backward()
        opt.step()
    return box.synchronize()


def test_time_is_the_same_every_time():
    found = []
    for _ in range(2):
        with virtual_gpus(1) as box:
            train(box)
            found.append(box.events)
    assert found[0] == found[1] and len(found[0]) > 50


def test_the_host_enqueues_and_does_not_wait():
    with virtual_gpus(1, dry=True) as box:
        a = torch.empty(4096, 4096, device="vgpu:0")
        box.reset()
        before = box.now
        a @ a
        assert box.now - before == pytest.approx(P100.launch)
        product = 2 * 4096**3 / (P100.flops * P100.product_efficiency)
        assert box.synchronize() - before == pytest.approx(P100.launch + P100.kernel + product)
        assert [e.kind for e in box.events] == ["enqueue", "compute", "wait"]
        assert box.events[1].flops == 2 * 4096**3 and box.events[1].nbytes == 3 * 4 * 4096**2


def test_an_operation_without_arithmetic_costs_its_bytes():
    with virtual_gpus(1) as box:
        a = torch.empty(10**7, device="vgpu:0")
        for operation, moved in [(lambda: a + a, 3), (lambda: a.add_(1), 2), (lambda: a.zero_(), 1)]:
            box.reset()
            operation()
            (event,) = (e for e in box.events if e.kind == "compute")
            assert event.nbytes == moved * a.nbytes
            expected = P100.kernel + moved * a.nbytes / (P100.bandwidth * P100.memory_efficiency)
            assert event.seconds == pytest.approx(expected)


def test_two_devices_compute_at_once():
    with virtual_gpus(2, dry=True) as box:
        a, b = (torch.empty(4096, 4096, device=f"vgpu:{i}") for i in (0, 1))
        box.reset()
        start = box.now
        a @ a
        b @ b
        one = busy(box.events, "vgpu:0")
        assert busy(box.events, "vgpu:1") == one
        assert box.synchronize() - start < 1.01 * one + 2 * P100.launch


def test_a_device_works_through_its_queue_in_order():
    with virtual_gpus(1) as box:
        train(box)
        ran = [e for e in box.events if e.lane == "vgpu:0"]
        assert all(a.end <= b.start for a, b in itertools.pairwise(ran))
        assert all(e.start >= e.issued for e in ran)


@pytest.mark.parametrize("read", [torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu, repr, bool, float])
def test_reading_a_value_waits_for_it(read):
    with virtual_gpus(1) as box:
        a = torch.ones(2048, 2048, device="vgpu:0")
        box.reset()
        value = (a @ a)[0, 0]
        end = box.free_at[0]
        assert box.now < end
        read(value)
        assert box.now >= end
        assert any(e.kind == "wait" and e.asked.startswith("test_time.py:") for e in box.events)


def test_copies_take_the_links_time_and_know_who_asked():
    with virtual_gpus(2, link="NVLink 1", host_link="PCIe 3.0 x16") as box:
        x = torch.ones(10**6, device="vgpu:0")
        box.reset()
        x.to("vgpu:1")
        x.cpu()
        across, down = box.copies
        assert (across.lane, down.lane) == ("vgpu:0 -> vgpu:1", "vgpu:0 -> cpu")
        assert across.seconds == pytest.approx(LINKS["NVLink 1"].seconds(4e6))
        assert down.seconds == pytest.approx(LINKS["PCIe 3.0 x16"].seconds(4e6, pageable=True))
        assert across.nbytes == down.nbytes == 4_000_000
        first, second = (int(e.asked.removeprefix("test_time.py:")) for e in (across, down))
        assert second == first + 1


def test_the_copy_of_a_gradient_names_the_line_of_the_forward_copy():
    with virtual_gpus(2) as box:
        x = torch.ones(3, device="vgpu:0", requires_grad=True)
        y = x.to("vgpu:1")
        y.sum().backward()
        forward, backward = box.copies
        assert forward.asked == backward.asked and (forward.phase, backward.phase) == ("forward", "backward")


def test_a_copy_between_gpus_is_in_both_queues_unless_it_may_overlap():
    found = {}
    for overlap in (False, True):
        with virtual_gpus(2, overlap=overlap) as box:
            x, other = torch.ones(10**6, device="vgpu:0"), torch.ones(10**6, device="vgpu:0")
            box.reset()
            x.to("vgpu:1")
            other + 1
            copy, add = (e for e in box.events if e.kind in ("copy", "compute"))
            found[overlap] = add.start >= copy.end
    assert found == {False: True, True: False}


def test_a_stream_of_its_own_waits_for_what_the_source_has_been_given_and_the_source_does_not_wait_for_it():
    with virtual_gpus(2, overlap=True) as box:
        x = torch.ones(10**6, device="vgpu:0")
        box.reset()
        x + 1  # not what is copied, but the stream cannot know
        x.to("vgpu:1")
        x + 2
        before, after = (e for e in box.events if e.kind == "compute")
        (copy,) = box.copies
        assert copy.start >= before.end and after.start < copy.end


def test_copies_in_the_two_directions_of_a_link_do_not_wait_for_each_other():
    with virtual_gpus(2, overlap=True) as box:
        x, y = torch.ones(10**6, device="vgpu:0"), torch.ones(10**6, device="vgpu:1")
        box.reset()
        x.to("vgpu:1"), x.to("vgpu:1"), y.to("vgpu:0")
        first, second, back = box.copies
        assert second.start == first.end and back.start < first.end


@pytest.mark.parametrize("dry", [False, True])
def test_the_host_waits_for_a_copy_unless_it_is_non_blocking_and_its_memory_is_pinned(dry):
    with virtual_gpus(1, dry=dry) as box:
        pageable, there = torch.ones(10**6), torch.empty(10**6, device="vgpu:0")
        pinned = pageable.pin_memory()

        def host_waits(copy):
            copy()
            return box.now == box.copies[-1].end

        assert host_waits(lambda: pageable.to("vgpu:0")) and host_waits(lambda: pinned.to("vgpu:0"))
        assert host_waits(lambda: pageable.to("vgpu:0", non_blocking=True))  # the driver copies it to its own buffer
        assert not host_waits(lambda: pinned.to("vgpu:0", non_blocking=True))
        assert host_waits(lambda: there.copy_(pageable, non_blocking=True))
        assert host_waits(lambda: there.copy_(pinned)) and not host_waits(
            lambda: there.copy_(pinned, non_blocking=True)
        )
        if not dry:  # a dry box has no values that could come to the CPU
            assert host_waits(lambda: there.to("cpu")) and not host_waits(lambda: there.to("cpu", non_blocking=True))
            assert host_waits(lambda: pageable.copy_(there, non_blocking=True))
            assert not host_waits(lambda: pinned.copy_(there, non_blocking=True))


@pytest.mark.parametrize("gpu", ["Tesla V100-SXM2", "A100-SXM4", "H100-SXM", "RTX 4090"])
def test_copies_of_memory_that_is_not_pinned_are_half_as_fast_in_both_directions(gpu):
    with virtual_gpus(1, gpu) as box:
        pageable, there = torch.ones(10**7), torch.empty(10**7, device="vgpu:0")
        pinned, link = pageable.pin_memory(), LINKS[box.gpus[0].host_link]
        copies = {
            False: [
                lambda: pinned.to("vgpu:0"),
                lambda: pinned.to("vgpu:0", non_blocking=True),
                lambda: there.copy_(pinned),
                lambda: pinned.copy_(there),
                lambda: there.to("cpu", non_blocking=True),  # torch gives it pinned memory
            ],
            True: [
                lambda: pageable.to("vgpu:0"),
                lambda: pageable.to("vgpu:0", non_blocking=True),
                lambda: torch.nn.Linear(2500, 4000, bias=False).to("vgpu:0"),
                lambda: there.copy_(pageable),
                lambda: pageable.copy_(there),
                lambda: there.cpu(),
            ],
        }
        for is_pageable, runs in copies.items():
            for run in runs:
                run()
                assert box.copies[-1].seconds == pytest.approx(link.seconds(4e7, is_pageable))
        assert 2 < link.seconds(4e7, True) / link.seconds(4e7) < 2.5


def test_a_link_that_is_no_pcie_is_as_fast_from_any_memory():
    with virtual_gpus(1, host_link="1 GbE") as box:
        torch.ones(10**6).to("vgpu:0")
        assert box.copies[-1].seconds == pytest.approx(LINKS["1 GbE"].seconds(4e6))


@pytest.mark.parametrize(
    ("gpus", "link", "joined"),
    [
        ("RTX 3090", None, "through the host"),
        ("RTX 4090", None, "through the host"),
        ("RTX 3090", "PCIe 4.0 x16", "through the host"),
        (["GTX 1080", "RTX 4090"], None, "through the host"),
        ("RTX 3090", "NVLink 3", "NVLink 3"),  # a bridge
        ("GTX 1080 Ti", "PCIe 3.0 x16", "PCIe 3.0 x16"),
        ("A10", "PCIe 4.0 x16", "PCIe 4.0 x16"),
        ("A100-SXM4", None, "NVLink 1"),
        ("RTX 4090", replace(LINKS["PCIe 4.0 x16"], bandwidth=1e10), None),  # somebody's own
    ],
)
def test_two_geforce_cards_of_today_copy_through_the_host_unless_a_bridge_joins_them(gpus, link, joined):
    expected = LINKS[joined] if joined else link
    with virtual_gpus(2, gpus, link) as box:
        assert torch.vgpu.can_device_access_peer(0, 1) == (joined != "through the host")
        assert not torch.vgpu.can_device_access_peer(1, 1)
        torch.ones(10**7, device="vgpu:0").to("vgpu:1")
        assert box.copies[-1].seconds == pytest.approx(expected.seconds(4e7))
    with virtual_gpus(2, gpus, link, as_cuda=True):
        assert torch.cuda.can_device_access_peer(0, 1) == (joined != "through the host")


def test_what_stays_on_the_cpu_takes_the_hosts_time_and_no_device():
    with virtual_gpus(1) as box:
        torch.ones(100, 100) @ torch.ones(100, 100)
        assert {e.lane for e in box.events} == {"cpu"} and box.now > 0 and box.free_at == [0.0]


def test_phases_are_told_apart():
    with virtual_gpus(1) as box:
        train(box, 1)
        found = {e.phase for e in box.events if e.lane == "vgpu:0"}
        assert found == {"forward", "backward", "optimizer"}
        order = [e.phase for e in box.events if e.lane == "vgpu:0"]
        assert order == sorted(order, key=["forward", "backward", "optimizer"].index)


def test_a_checkpoint_computes_its_forward_twice():
    from torch.utils.checkpoint import checkpoint

    with virtual_gpus(1) as box:
        layer, x = nn.Linear(4, 4).to("vgpu:0"), torch.ones(2, 4, device="vgpu:0", requires_grad=True)
        checkpoint(lambda t: layer(t).tanh(), x, use_reentrant=False).sum().backward()
        names = [(e.name, e.phase) for e in box.events if e.lane == "vgpu:0"]
        assert names.count(("addmm", "forward")) == names.count(("addmm", "recompute")) == 1


def test_the_trace_opens_in_perfetto(tmp_path):
    with virtual_gpus(2) as box:
        train(box)
        torch.ones(3, device="vgpu:0").to("vgpu:1")
    path = write_chrome_trace(box.events, tmp_path / "trace.json")
    rows = json.loads(path.read_text())["traceEvents"]
    names = {r["tid"]: r["args"]["name"] for r in rows if r["ph"] == "M"}
    assert set(names.values()) == {e.lane for e in box.events}
    slices = [r for r in rows if r["ph"] == "X"]
    assert len(slices) == len(box.events)
    for row, event in zip(slices, box.events, strict=True):
        assert names[row["tid"]] == event.lane and row["name"] == event.name
        assert row["ts"] == event.start * 1e6 and math.isclose(row["dur"], event.seconds * 1e6, abs_tol=1e-9)
    assert chrome_trace([]) == {"traceEvents": [], "displayTimeUnit": "ms"}


def test_span_and_busy():
    with virtual_gpus(1) as box:
        a = torch.ones(1000, 1000, device="vgpu:0")
        box.reset()
        a @ a
        start, end = span(box.events)
        assert busy(box.events, "vgpu:0") < end - start and busy(box.events, "vgpu:1") == 0
    assert span([]) == (0.0, 0.0)


def test_a_gpu_is_fitted_to_measured_runs():
    rate, width, kernel = 0.55 * P100.flops, 0.65 * P100.bandwidth, 5e-6
    counts = [(1e12, 1e9, 100), (1e9, 5e10, 200), (1e10, 1e9, 50_000), (2e12, 3e10, 3000)]
    fitted = P100.fitted((f, b, n, f / rate + b / width + n * kernel) for f, b, n in counts)
    assert fitted.product_efficiency == fitted.convolution_efficiency == pytest.approx(0.55)
    assert fitted.memory_efficiency == pytest.approx(0.65)
    assert fitted.kernel == pytest.approx(kernel)
    assert (fitted.name, fitted.memory) == (P100.name, P100.memory)
    with pytest.raises(UserError, match="three runs or more"):
        P100.fitted([(1e12, 1e9, 100, 1.0)] * 5)
    with pytest.raises(UserError, match="fit no GPU"):
        P100.fitted([(1e12, 1e9, 100, 0.2), (2e12, 1e9, 100, 0.1), (1e9, 5e10, 50_000, 0.3)])
