"""The ledger: what holds a device's memory, of which kind, when most of it; the allocator; out of memory."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.models import mlp
from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.gpus.allocator import CachingAllocator

MiB = 2**20
CUBLAS = 2 * (8 * MiB + 128 * 1024)  # of the thread of forward, and of that of backward


def step(box, optimizer=torch.optim.Adam, n=2):
    model = mlp([20, 30, 5]).to("vgpu:0")
    opt = optimizer(model.parameters())
    for _ in range(n):
        opt.zero_grad()
        loss = F.cross_entropy(model(torch.randn(7, 20).to("vgpu:0")), torch.randint(5, (7,)).to("vgpu:0"))
        loss.backward()
        opt.step()
    return model, opt, loss


def test_every_byte_after_a_step_is_of_a_known_kind():
    with virtual_gpus(2) as box:
        held = step(box)
        numbers = 20 * 30 + 30 + 30 * 5 + 5
        assert box.ledger.kinds(0) == {
            "parameters": 4 * numbers,
            "optimizer state": 8 * numbers,  # the step counts are on the CPU, as torch keeps them
            "gradients": 4 * numbers,
            "activations": 4,  # the loss
            "workspaces": CUBLAS,
        }
        assert box.ledger.kinds(1) == {} and box.ledger.used == [16 * numbers + 4 + CUBLAS, 0]
        del held
        assert box.ledger.kinds(0) == {"workspaces": CUBLAS}


def test_after_forward_the_activations_are_what_backward_needs():
    with virtual_gpus(1) as box:
        model = mlp([20, 30, 5]).to("vgpu:0")
        x, y = torch.randn(7, 20).to("vgpu:0"), torch.randint(5, (7,)).to("vgpu:0")
        loss = F.cross_entropy(model(x), y)
        # The hidden layer, the log-probabilities, the total weight, and the loss itself.
        assert box.ledger.kinds(0)["activations"] == 4 * (7 * 30 + 7 * 5 + 1 + 1)
        assert box.ledger.kinds(0)["inputs"] == 4 * 7 * 20 + 8 * 7
        loss.backward()
        assert "temporaries" not in box.ledger.kinds(0)
        assert box.ledger.kinds(0)["gradients"] == box.ledger.kinds(0)["parameters"]


def test_attention_keeps_no_matrix_of_weights_and_costs_its_products():
    with virtual_gpus(1, dry=True) as box:
        q, k, v = (torch.randn(2, 4, 1000, 16, device="vgpu:0", requires_grad=True) for _ in range(3))
        box.reset()
        F.scaled_dot_product_attention(q, k, v).sum().backward()
        assert box.ledger.most[0] < 20 * q.nbytes < 2 * 4 * 1000 * 1000 * 4
        flops = [e.flops for e in box.events if "attention" in e.name and e.lane == "vgpu:0"]
    product = 2 * 2 * 4 * 1000 * 1000 * 16
    assert flops == [2 * product, 5 * product]  # backward computes the weights again


def test_a_recurrent_layer_costs_its_products():
    layer = nn.LSTM(8, 16)
    with virtual_gpus(1) as box:
        layer.to("vgpu:0")(torch.randn(5, 3, 8, device="vgpu:0"))[0].sum().backward()
        flops = sum(e.flops for e in box.events if e.lane == "vgpu:0")
    assert flops == 3 * 2 * 5 * 3 * (4 * 16 * 8 + 4 * 16 * 16)


def test_the_peak_right_after_a_reset_is_of_its_own_device():
    with virtual_gpus(2) as box:
        x = torch.ones(1000, device="vgpu:0")
        y = torch.zeros(10, device="vgpu:1")
        box.reset()
        assert [(box.ledger.peak(i).name, box.ledger.peak(i).nbytes) for i in (0, 1)] == [("ones", 4000), ("zeros", 40)]
        del x, y


def test_the_peak_knows_its_moment_and_its_kinds():
    with virtual_gpus(1, record=True) as box:
        held = step(box)
        peak = box.ledger.peak(0)
        assert peak.nbytes == box.ledger.most[0] == sum(peak.kinds.values())
        assert peak.phase == "optimizer" and peak.asked.startswith("test_memory.py:")
        history = [sum(kinds.values()) for _, kinds in box.ledger.history(0)]
        assert max(history) == peak.nbytes and history[-1] == box.ledger.used[0]
        assert all(min(kinds.values()) >= 0 for _, kinds in box.ledger.history(0))
        box.reset()
        assert box.ledger.most == box.ledger.used and box.ledger.peak(0).nbytes == box.ledger.used[0]
        del held


def test_buffers_are_told_from_parameters():
    with virtual_gpus(1) as box:
        held = nn.BatchNorm2d(10).to("vgpu:0"), nn.BatchNorm1d(3, device="vgpu:0")
        assert box.ledger.kinds(0)["buffers"] == 2 * 4 * 10 + 8 + 2 * 4 * 3 + 8
        for module in held:
            module(torch.ones(4, module.num_features, *[2] * (module is held[0]) * 2, device="vgpu:0"))
        assert box.ledger.kinds(0)["parameters"] == 2 * 4 * 10 + 2 * 4 * 3


def test_a_view_holds_no_memory_and_keeps_its_base():
    with virtual_gpus(1) as box:
        x = torch.ones(100, device="vgpu:0")
        y = x[:3].view(3, 1)
        del x
        assert box.ledger.used[0] == 400
        del y
        assert box.ledger.used[0] == 0


def test_an_optimizers_temporaries_are_not_state():
    with virtual_gpus(1) as box:
        held = step(box, lambda p: torch.optim.SGD(p, lr=0.1), 1)
        assert "optimizer state" not in box.ledger.kinds(0)
        held += step(box, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1)
        kinds = box.ledger.kinds(0)
        assert 2 * kinds["optimizer state"] == kinds["parameters"]


def test_out_of_memory_names_device_asked_free_and_the_five_biggest_holders():
    with virtual_gpus(2, "GTX 1080", dry=True) as box:
        held = [torch.empty(i, MiB, 64, device="vgpu:1") for i in range(1, 7)]  # 256 MiB each time i
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(3, 1024, MiB, device="vgpu:1")
        lines = str(caught.value).splitlines()
        free = 8 * 1024 - 450 - 21 * 256
        assert lines[0].startswith("vgpu:1 is out of memory: 12.00 GiB asked, " + f"{free / 1024:.2f} GiB free")
        assert [line.split(" inputs ")[0].strip() for line in lines[1:6]] == [
            "1.50 GiB",
            "1.25 GiB",
            "1.00 GiB",
            "768.00 MiB",
            "512.00 MiB",
        ]
        assert "(6, 1048576, 64) float32 from empty at test_memory.py:" in lines[1]
        assert lines[6].strip() == "256.00 MiB in 1 more" and len(lines) == 7
        assert len(held) == 6 and box.ledger.used[1] == 21 * 256 * MiB  # nothing of the refused one is held


def test_what_cannot_fit_is_refused_before_this_machine_is_asked_for_it():
    with virtual_gpus(1), pytest.raises(torch.OutOfMemoryError, match=r"4096.00 GiB asked"):
        torch.ones(2**40, device="vgpu:0")


def test_out_of_memory_in_the_middle_of_a_step_can_be_caught_and_a_smaller_batch_goes_on():
    with virtual_gpus(1, "GTX 1080", dry=True) as box:
        model = mlp([1000, 4000, 10]).to("vgpu:0")
        with pytest.raises(torch.OutOfMemoryError, match="activations"):
            model(torch.randn(1000, 1000).to("vgpu:0").repeat(1000, 1)).sum().backward()
        model(torch.randn(1000, 1000).to("vgpu:0")).sum().backward()
        assert box.ledger.used[0] < 100 * MiB


def test_torch_vgpu_counts_as_the_caching_allocator_does():
    with virtual_gpus(1):
        held = [torch.ones(1, device="vgpu:0"), torch.ones(129, device="vgpu:0")]
        assert torch.vgpu.memory_allocated() == 512 + 1024 == torch.vgpu.max_memory_allocated()
        assert torch.vgpu.memory_reserved() == 2 * MiB
        held.clear()
        assert (torch.vgpu.memory_allocated(), torch.vgpu.memory_reserved()) == (0, 2 * MiB)
        torch.vgpu.reset_peak_memory_stats()
        torch.vgpu.empty_cache()
        assert torch.vgpu.max_memory_allocated() == torch.vgpu.memory_reserved() == 0
        assert torch.vgpu.max_memory_reserved() == 2 * MiB


def test_the_allocator_cuts_small_requests_from_small_segments():
    a = CachingAllocator(10**9)
    chunks = [a.allocate(512 * 1024) for _ in range(4)]
    assert a.reserved == 2 * MiB == a.allocated
    a.allocate(1)
    assert a.reserved == 4 * MiB and a.allocated == 2 * MiB + 512
    for chunk in chunks:
        a.release(chunk)
    assert a.allocated == 512 and a.allocate(MiB) is not None and a.reserved == 4 * MiB


@pytest.mark.parametrize(
    ("request_MiB", "reserved"), [(0.5, 2), (1, 2), (1.5, 20), (9.5, 20), (10, 10), (11, 12), (640, 640)]
)
def test_the_allocator_rounds_segments_as_cuda_does(request_MiB, reserved):
    a = CachingAllocator(10**10)
    a.allocate(int(request_MiB * MiB))
    assert a.reserved == reserved * MiB


def test_the_allocator_splits_a_large_chunk_only_where_more_than_a_mebibyte_remains():
    a = CachingAllocator(10**9)
    whole = a.allocate(12 * MiB)
    a.release(whole)
    assert a.allocate(11 * MiB).size == 12 * MiB  # 1 MiB is not worth it
    a = CachingAllocator(10**9)
    a.release(a.allocate(12 * MiB))
    first, second = a.allocate(9 * MiB), a.allocate(3 * MiB)
    assert (first.size, second.size, a.reserved) == (9 * MiB, 3 * MiB, 12 * MiB)


def test_freed_neighbours_merge():
    a = CachingAllocator(10**9)
    chunks = [a.allocate(5 * MiB) for _ in range(4)]
    assert a.reserved == 20 * MiB
    for i in (1, 3, 2, 0):
        a.release(chunks[i])
    assert a.allocate(20 * MiB) is not None and a.reserved == 20 * MiB


def test_a_full_device_gives_segments_back_before_it_refuses():
    a = CachingAllocator(100 * MiB)
    a.release(a.allocate(60 * MiB))
    kept = a.allocate(12 * MiB)  # out of the free 60
    assert a.allocate(80 * MiB) is None  # 60 are reserved, and partly used
    a.release(kept)
    assert a.allocate(80 * MiB) is not None and a.reserved == 80 * MiB


def test_the_allocators_books_balance_after_any_sequence():
    generator = torch.Generator().manual_seed(torch.seed() % 2**32)
    a, held = CachingAllocator(2**40), []
    for n in torch.randint(1, 30 * MiB, (500,), generator=generator).tolist():
        if held and n % 3 == 0:
            a.release(held.pop(n % len(held)))
        else:
            held.append(a.allocate(n >> (n % 16)))
        free = [c for pool in a._free.values() for _, _, c in pool]
        assert a.allocated == sum(c.size for c in held)
        assert a.reserved == a.allocated + sum(c.size for c in free)
        assert not any(c.before and c.before.free for c in free)
    for chunk in held:
        a.release(chunk)
    a.empty_cache()
    assert a.allocated == a.reserved == 0


def test_without_a_record_there_are_still_peaks():
    with virtual_gpus(1, record=False) as box:
        held = step(box)
        assert box.ledger.most[0] > box.ledger.used[0] > 0 and not box.events and not box.ledger.log
        with pytest.raises(RuntimeError, match="record=True"):
            box.ledger.peak(0)
        del held
