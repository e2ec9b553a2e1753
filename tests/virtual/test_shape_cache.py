"""Shapes of results that are remembered: torch is asked once, and what is remembered is what it says."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.gpus import dry

DEVICE = "vgpu:0"


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """Record the operations whose shapes torch was asked for, with nothing cached from before."""
    from mpcourse.virtual.gpus import shape_cache

    monkeypatch.setattr(shape_cache, "_results", {})
    found = []

    def shapes_of(run, func, args, kwargs):
        def asking(*args, **kwargs):
            found.append(func)
            return run(*args, **kwargs)

        return shape_cache.shapes_of(asking, func, args, kwargs)

    monkeypatch.setattr(dry, "shapes_of", shapes_of)
    return found


@pytest.fixture
def box():
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        yield box


def look(t):
    return t.shape, t.stride(), t.dtype, t.storage_offset(), t.untyped_storage().nbytes()


def test_a_second_step_asks_for_nothing_and_costs_the_same(box, asked):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).to(
        DEVICE
    )
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(4, 3, 8, 8, device=DEVICE), torch.randint(5, (4,), device=DEVICE)
    took, often = [], []
    for _ in range(3):
        asked.clear()
        start = box.synchronize()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        took.append(box.synchronize() - start)
        often.append({func.__name__ for func in asked} - {"empty.memory_format"})
    assert len(often[0]) > 10 and not often[2]
    assert took[1] == pytest.approx(took[2], rel=1e-12)


def test_numbers_that_are_equal_make_results_of_their_own_dtypes(box):
    whole = torch.ones(3, dtype=torch.int64, device=DEVICE)
    for _ in range(2):
        assert [(whole * number).dtype for number in (1, 1.0, True)] == [torch.int64, torch.float32, torch.int64]


def test_a_quotient_of_integers_is_of_the_dtype_that_is_the_default_now(box):
    whole = torch.ones(3, dtype=torch.int64, device=DEVICE)
    assert (whole / whole).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert (whole / whole).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_results_share_no_memory_and_have_torchs_strides(box):
    x = torch.randn(2, 3, 4, device=DEVICE)
    plain = torch.empty(2, 3, 4, device="meta")
    for call in (torch.relu, lambda t: t.transpose(0, 2) + 1, lambda t: t.sum(1, keepdim=True), torch.Tensor.clone):
        first, second = call(x), call(x)
        assert look(first) == look(second) == look(call(plain))
        assert first.untyped_storage()._cdata != second.untyped_storage()._cdata


def test_an_operation_in_place_returns_its_tensor_each_time(box):
    x, y = torch.randn(3, device=DEVICE), torch.randn(3, device=DEVICE)
    assert x.add_(1) is x and y.add_(1) is y
    version = y._version
    y.mul_(2)
    assert y.mul_(2) is y and y._version == version + 2


def test_a_tensor_whose_storage_is_replaced_has_the_new_one(box):
    x, y, z = (torch.randn(3, device=DEVICE) for _ in range(3))
    for other in (y, z):
        x.set_(other)
        assert x.untyped_storage()._cdata == other.untyped_storage()._cdata


def test_what_is_refused_is_refused_again(box):
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"3.*4|4.*3"):
            torch.ones(3, device=DEVICE) + torch.ones(4, device=DEVICE)
