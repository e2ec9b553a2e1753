"""Storages that change their size, and operations over lists, are counted where they are."""

import pytest
import torch

from mpcourse.virtual import virtual_gpus


@pytest.fixture(params=[False, True], ids=["data", "dry"])
def box(request):
    with virtual_gpus(2, dry=request.param) as made:
        yield made


def test_a_storage_that_is_freed_and_comes_back_is_counted(box):
    x = torch.ones(1000, device="vgpu:1")
    storage = x.untyped_storage()
    for nbytes in (0, 4000, 400, 0, 8000):
        storage.resize_(nbytes)
        assert box.ledger.used == [0, nbytes] and torch.vgpu.memory_allocated(1) == -(-nbytes // 512) * 512
    assert x.device == torch.device("vgpu:1") and box.ledger.kinds(1) == {"inputs": 8000}
    with pytest.raises(torch.OutOfMemoryError, match=r"vgpu:1 is out of memory: 1024.00 GiB asked"):
        storage.resize_(2**40)
    assert box.ledger.used[1] == 8000 == storage.nbytes()  # as it was
    del x, storage
    assert box.ledger.used == [0, 0]


def test_resize_grows_what_is_held(box):
    x = torch.ones(10, device="vgpu:0")
    x.resize_(100)
    assert box.ledger.used[0] == 400
    x.resize_(5)
    assert box.ledger.used[0] == 400  # torch keeps the storage
    x.resize_as_(torch.ones(200, device="vgpu:0"))
    assert box.ledger.used[0] == 800


def test_out_grows_what_is_held(box):
    x, out = torch.ones(100, device="vgpu:0"), torch.empty(0, device="vgpu:0")
    torch.add(x, x, out=out)
    assert box.ledger.used[0] == 800 and out.device == x.device


def test_set_shares_a_storage_on_the_tensors_device(box):
    x, y = torch.ones(100, device="vgpu:0"), torch.ones(50, device="vgpu:0")
    x.set_(y)
    assert box.ledger.used[0] == 200 and x.data_ptr() == y.data_ptr()
    x.set_(y.untyped_storage(), 0, (5,))
    assert x.shape == (5,) and box.ledger.used[0] == 200
    message = 'storage of a tensor on device "{}" to a storage on different device "{}"'
    for tensor, source, devices in (
        (x, torch.ones(3), ("vgpu:0", "cpu")),
        (x, torch.ones(3).untyped_storage(), ("vgpu:0", "cpu")),
        (x, torch.ones(3, device="vgpu:1"), ("vgpu:0", "vgpu:1")),
        (torch.ones(3), y, ("cpu", "vgpu:0")),
    ):
        with pytest.raises(RuntimeError, match=message.format(*devices)):
            tensor.set_(source)


def test_operations_over_lists_run_on_each_tensors_device(box):
    here, there = torch.ones(3, device="vgpu:0"), torch.ones(3, device="vgpu:1")
    sums = torch._foreach_add([here, there, here], [here, there, here])
    assert [t.get_device() for t in sums] == [0, 1, 0]
    with pytest.raises(RuntimeError, match="found at least two devices, vgpu:0 and vgpu:1!"):
        torch._foreach_add([here, there], [there, here])
    with pytest.raises(RuntimeError, match="found at least two devices, vgpu:0 and vgpu:1!"):
        torch._foreach_mul_([here, here], [here, there])
    box.reset()
    torch._foreach_copy_([here, there], [there, here])
    assert [e.lane for e in box.copies] == ["vgpu:1 -> vgpu:0", "vgpu:0 -> vgpu:1"]


@pytest.mark.parametrize("fused", [False, True])
def test_optimizers_group_parameters_by_device(box, fused):
    parameters = [torch.ones(3, device=f"vgpu:{i}", requires_grad=True) for i in (0, 1, 0)]
    for p in parameters:
        p.grad = torch.ones_like(p)
    box.reset()
    torch.optim.AdamW(parameters, foreach=not fused, fused=fused).step()
    name = "_fused_adamw_" if fused else "_foreach_lerp_"
    assert [e.lane for e in box.events if e.name == name and e.kind == "compute"] == ["vgpu:0", "vgpu:1"]
    assert len({p.device for p in parameters}) == 2
