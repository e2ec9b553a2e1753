"""Replicas on the GPUs of one machine: equal to one device, and the published row."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data.published import MIRRORED_STRATEGY
from mpcourse.data_parallel.mirrored import mirrored_seconds, mirrored_step
from mpcourse.models import mnist_cnn
from mpcourse.virtual import virtual_gpus


@pytest.mark.parametrize("count", [1, 2, 3])
def test_replicas_equal_one_device_on_the_whole_batch_and_each_other_to_the_last_bit(count):
    torch.manual_seed(2)
    whole = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    whole[2].bias.requires_grad_(False)
    start = copy.deepcopy(whole)
    x, y = torch.randn(3, 12, 5, dtype=torch.float64), torch.randint(3, (3, 12))
    optimizer = torch.optim.SGD(whole.parameters(), 0.2, momentum=0.9)
    for images, labels in zip(x, y, strict=True):
        optimizer.zero_grad()
        F.cross_entropy(whole(images), labels).backward()
        optimizer.step()
    with virtual_gpus(count):
        replicas = [copy.deepcopy(start).to(f"vgpu:{i}") for i in range(count)]
        optimizers = [torch.optim.SGD(model.parameters(), 0.2, momentum=0.9) for model in replicas]
        for images, labels in zip(x, y, strict=True):
            parts = zip(images.chunk(count), labels.chunk(count), strict=True)
            batches = [(a.to(f"vgpu:{i}"), b.to(f"vgpu:{i}")) for i, (a, b) in enumerate(parts)]
            mirrored_step(replicas, optimizers, batches)
        found = [torch.cat([p.detach().cpu().flatten() for p in model.parameters()]) for model in replicas]
    assert all(torch.equal(found[0], other) for other in found)
    want = torch.cat([p.detach().flatten() for p in whole.parameters()])
    assert torch.allclose(found[0], want, rtol=0, atol=1e-12)


def test_the_published_row_comes_out_of_the_one_before():
    """All that is not on a data sheet is what one GPU's step takes beside its operations; two take it, too."""
    assert sum(p.numel() for p in mnist_cnn().parameters()) == 3_274_634
    steps, batch, (one, two) = MIRRORED_STRATEGY.steps, MIRRORED_STRATEGY.batch, MIRRORED_STRATEGY.seconds
    alone = mirrored_seconds(1, batch, "GTX 1080", "PCIe 3.0 x16")
    shared = mirrored_seconds(2, batch // 2, "GTX 1080", "PCIe 3.0 x16")
    rest = one / steps - alone
    assert 0 < rest < one / steps
    assert steps * (shared + rest) == pytest.approx(two, rel=0.03)


def test_two_win_on_a_larger_network_or_batch():
    def gain(batch, width):
        one, two = (mirrored_seconds(n, batch // n, "GTX 1080", "PCIe 3.0 x16", width) for n in (1, 2))
        return one / two

    assert gain(100, 1) < 0.6
    assert gain(400, 1) > 1 and gain(100, 8) > 1
