"""Compressed gradients: what is left out comes later, all ranks apply the same, and bytes are as many as said."""

import json
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

from mpcourse.collectives.tensors import all_reduce
from mpcourse.data.published_communication import POWER_SGD
from mpcourse.data_parallel import PowerSGD, Signs, create_communicator
from mpcourse.data_parallel.compression import pack, unpack
from mpcourse.models import mlp
from mpcourse.virtual import run
from tests.conftest import ROOT, torchrun
from tests.programs import powersgd_of_torch

WAYS = {
    "rank 1": lambda comm: PowerSGD(comm),
    "rank 3": lambda comm: PowerSGD(comm, 3, seed=5),
    "signs": Signs,
}


class Odd(nn.Module):
    """Tied weights, a frozen bias, a convolution, and a layer that rank 0 does not use."""

    def __init__(self):
        super().__init__()
        self.convolution, self.idle = nn.Conv1d(1, 4, 3), nn.Linear(7, 5)
        self.one, self.two = nn.Linear(7, 7), nn.Linear(7, 7)
        self.two.weight = self.one.weight
        self.one.bias.requires_grad_(False)

    def forward(self, x, idle):
        x = self.two(self.one(self.convolution(x[:, None]).mean(1)).relu())
        return x if idle else self.idle(x)


def gradients_of(model, rank, draw):
    model.zero_grad()
    model(torch.randn(6, 9, generator=draw, dtype=torch.float64), idle=rank == 0).square().mean().backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters() if p.requires_grad]


def steps_on(comm, make, steps=5):
    """Return, of all steps together, the true means, what was applied instead, and what is still left out."""
    torch.manual_seed(0)
    model, draw = Odd().double(), torch.Generator().manual_seed(comm.rank)
    compression = make(comm)
    true, applied = [], []
    for _ in range(steps):
        own = gradients_of(model, comm.rank, draw)
        true.append([sum(parts) / comm.size for parts in zip(*comm.allgather(own), strict=True)])
        compression.mean_gradients(model)
        applied.append([p.grad.clone() for p in model.parameters() if p.requires_grad])
    left = [sum(parts) / comm.size for parts in zip(*comm.allgather(compression.errors), strict=True)]
    return [[sum(of_steps) for of_steps in zip(*each, strict=True)] for each in (true, applied)] + [left]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_message_leaves_out_is_applied_later_or_still_waits(way, size):
    results = run(lambda comm: steps_on(comm, WAYS[way]), size).results
    for true, applied, left in results:
        assert max(x.abs().max() for x in left) > 1e-3  # something was left out
        for wanted, found, rest in zip(true, applied, left, strict=True):
            assert torch.allclose(wanted, found + rest, atol=1e-12)
    assert all(torch.equal(a, b) for other in results for a, b in zip(results[0][1], other[1], strict=True))


@pytest.mark.parametrize("way", [lambda comm: PowerSGD(comm, feedback=False), lambda comm: Signs(comm, feedback=False)])
def test_without_feedback_what_is_left_out_is_lost(way):
    for true, applied, left in run(lambda comm: steps_on(comm, way), 2).results:
        assert all(not x.any() for x in left)
        assert max((a - b).abs().max() for a, b in zip(true, applied, strict=True)) > 1e-3


@pytest.mark.parametrize("size", [1, 3])
def test_a_mean_of_low_rank_is_exact(size):
    """One example on each rank: the mean gradient of a linear layer is a sum of as many outer products."""

    def program(comm):
        torch.manual_seed(0)
        model, draw = nn.Linear(12, 10).double(), torch.Generator().manual_seed(comm.rank)
        compression, plain = PowerSGD(comm, size), create_communicator("flat", comm)
        for _ in range(2):
            model.zero_grad()
            model(torch.randn(1, 12, generator=draw, dtype=torch.float64)).square().sum().backward()
            own = [p.grad.clone() for p in model.parameters()]
            compression.mean_gradients(model)
            found = [p.grad.clone() for p in model.parameters()]
            for p, gradient in zip(model.parameters(), own, strict=True):
                p.grad = gradient
            plain.mean_gradients(model)
            assert all(torch.allclose(f, p.grad, atol=1e-12) for f, p in zip(found, model.parameters(), strict=True))

    run(program, size)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_sign_counts_as_much_as_its_ranks_mean_absolute_value(size):
    def program(comm):
        torch.manual_seed(0)
        model, draw = Odd().double(), torch.Generator().manual_seed(comm.rank)
        own = gradients_of(model, comm.rank, draw)
        Signs(comm).mean_gradients(model)
        scaled = comm.allgather([g.abs().mean().float() * torch.where(g >= 0, 1, -1) for g in own])
        wanted = [sum(parts) / size for parts in zip(*scaled, strict=True)]
        found = [p.grad for p in model.parameters() if p.requires_grad]
        assert all(torch.allclose(f, w.double(), atol=1e-12) for f, w in zip(found, wanted, strict=True))

    run(program, size)


@pytest.fixture(scope="module")
def torchs():
    command = torchrun("--standalone", "--nproc-per-node", 2, ROOT / "tests" / "programs" / "powersgd_of_torch.py")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.ranks
def test_powersgd_does_what_torchs_hook_does(torchs):
    first = {}

    def program(comm):
        model = powersgd_of_torch.model_of()
        plain, compression = create_communicator("flat", comm), PowerSGD(comm, powersgd_of_torch.COLUMNS)
        # torch takes the parameters in the opposite order, and draws as follows; a first Q need not be orthonormal.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(first["seed"])
            shapes = [p.flatten(1).shape for p in model.parameters() if compression.is_thin(p)]
            drawn = [torch.randn(1, n, powersgd_of_torch.COLUMNS, dtype=torch.float64)[0] for _, n in shapes[::-1]]
        compression.qs = drawn[::-1]

        def average(step):
            (plain if step < powersgd_of_torch.PLAIN else compression).mean_gradients(model)

        return powersgd_of_torch.train(model, comm.rank, average)

    first["seed"] = np.random.RandomState(0).randint(1_000_000_000)
    ours = run(program, 2).results[0]
    ours, theirs = (torch.tensor(found, dtype=torch.float64) for found in (ours, torchs))
    assert (ours - theirs).abs().max() < 1e-10
    assert (ours[-1] - ours[1]).abs().max() > 1e-3  # compressed steps have changed weights


@pytest.mark.parametrize("size", [2, 3, 8])
def test_bytes_that_a_rank_sends(size):
    def sent(program):
        return run(program, size).traffic[0].sum()

    def compressed(make):
        def program(comm):
            model = mlp((24, 40, 16))
            model(torch.randn(3, 24)).square().mean().backward()
            make(comm).mean_gradients(model)

        return sent(program)

    vectors, numbers = 40 + 16, 24 * 40 + 40 * 16 + 40 + 16
    for columns in (1, 2, 4):
        with_vectors, alone = columns * (40 + 16) + vectors, columns * (24 + 40)  # what an all-reduce sums
        wanted = sent(lambda comm, n=with_vectors: all_reduce(comm, torch.zeros(n)))
        wanted += sent(lambda comm, n=alone: all_reduce(comm, torch.zeros(n)))
        assert compressed(lambda comm, r=columns: PowerSGD(comm, r)) == wanted
    assert compressed(Signs) == (size - 1) * (numbers / 8 + 4 * 4)


def test_powersgds_table_3_in_bytes():
    """ResNet-18 for CIFAR-10; an epoch of 50 000 images by 16 workers with 128 each has 24 whole steps."""
    shapes, before = [(64, 3 * 9)], 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        shapes += [(channels, before * 9), *[(channels, channels * 9)] * 3]
        shapes += [(channels, before)] if stride == 2 else []
        before = channels
    vectors = 2 * sum(channels for channels, _ in shapes) + 10
    shapes.append((10, 512))
    numbers = vectors + sum(n * m for n, m in shapes)
    assert numbers == 11_173_962

    def megabytes(columns):
        sent = numbers if columns is None else vectors + sum(min(columns * (n + m), n * m) for n, m in shapes)
        return round(24 * 4 * sent / 2**20)

    published = {columns: row[1] for columns, row in POWER_SGD.items()}
    assert {columns: megabytes(columns) for columns in POWER_SGD} == published


def test_bits_come_back():
    for length in (1, 7, 8, 9, 64):
        bits = torch.rand(length, generator=torch.Generator().manual_seed(length)) < 0.5
        packed = pack(bits)
        assert packed.dtype == torch.uint8 and len(packed) == (length + 7) // 8
        assert torch.equal(unpack(packed)[:length].bool(), bits)


@pytest.mark.parametrize("make", [PowerSGD, Signs])
def test_what_cannot_be_compressed_is_refused(make):
    def other_parameters(comm):
        compression = make(comm)
        for model in (nn.Linear(3, 4), nn.Linear(3, 4)):
            model(torch.randn(2, 3)).sum().backward()
            compression.mean_gradients(model)

    def half(comm):
        model = nn.Linear(3, 4).bfloat16()
        make(comm).mean_gradients(model)

    refused = ((other_parameters, "not the parameters of the first step"), (half, "bfloat16 are not compressed"))
    for program, said in refused:
        with pytest.raises(ValueError, match=said):
            run(program, 1)


def test_an_approximation_has_a_rank():
    with pytest.raises(ValueError, match="columns=0: an approximation has a rank of 1 or more"):
        run(lambda comm: PowerSGD(comm, 0), 1)
