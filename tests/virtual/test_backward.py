"""Backward over two virtual GPUs: the zeros and indices that autograd makes for itself are where they belong."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from mpcourse.virtual import virtual_gpus


def leaf(device):
    return torch.randn(3, 4, device="cpu").to(device).requires_grad_()


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, d0, d1):
        ctx.devices = torch.device(d0), torch.device(d1)
        return x * 2, (x * 3).to(d1)

    @staticmethod
    def backward(ctx, g, h):
        assert (g.device, h.device) == ctx.devices
        return g * 2 + h.to(g.device) * 3, None, None


def one_of_two(cut):
    def program(d0, d1):
        w = leaf(d0)
        cut(w * 2)[0].to(d1).sum().backward()
        return [w.grad]

    return program


def on_the_cpu_after_one_on_the_gpu(d0, d1):
    w, v = leaf(d0), leaf("cpu")
    (w * 2).sum().backward()
    (v * 2).chunk(2, 1)[0].sum().backward()
    return [w.grad, v.grad]


def of_a_function(which):
    def program(d0, d1):
        w = leaf(d0)
        Two.apply(w, d0, d1)[which].sum().backward()
        return [w.grad]

    return program


def asked_of_grad(d0, d1):
    w = leaf(d0)
    return list(torch.autograd.grad((w * 2).chunk(2, 1)[1].to(d1).sum(), w))


def of_second_order(d0, d1):
    w = leaf(d0)
    (g,) = torch.autograd.grad((w**3).chunk(2, 1)[0].to(d1).square().sum(), w, create_graph=True)
    g.sum().backward()
    return [w.grad]


def that_makes_indices(d0, d1):
    w = leaf(d0)
    parts = w.trace(), w.diag().sum(), w.tril().sum(), w.cumsum(0).max(1)[0].sum()
    sum(p.clone().to(d1) for p in parts).backward()
    return [w.grad]


def of_a_number_on_the_cpu_that_both_use(d0, d1):
    w, s = leaf(d0), torch.rand(()).requires_grad_()
    for _ in range(2):
        ((w * s).sum().to("cpu") + ((w * 1).to(d1) * s).sum().to("cpu")).backward()
    return [w.grad, s.grad]


def that_begins_with_a_number_of_the_cpu(d0, d1):
    w = leaf(d0)
    (w * 2).sum().to(d1).backward(torch.tensor(3.0))
    return [w.grad]


PROGRAMS = {
    "chunk": one_of_two(lambda x: x.chunk(2, 1)),
    "split": one_of_two(lambda x: x.split([1, 2])),
    "unbind": one_of_two(lambda x: x.unbind()),
    "tensor_split": one_of_two(lambda x: x.tensor_split(2, 1)),
    "svd": one_of_two(lambda x: torch.linalg.svd(x, full_matrices=False)[1:]),
    "sort": one_of_two(lambda x: x.sort(1)),
    "std_mean": one_of_two(lambda x: torch.std_mean(x, 1)),
    "cpu after gpu": on_the_cpu_after_one_on_the_gpu,
    "first of a function": of_a_function(0),
    "second of a function": of_a_function(1),
    "grad": asked_of_grad,
    "second order": of_second_order,
    "indices": that_makes_indices,
    "number": of_a_number_on_the_cpu_that_both_use,
    "root": that_begins_with_a_number_of_the_cpu,
}


@pytest.mark.parametrize("second", ["vgpu:1", "cpu"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_gradient_that_nobody_gave_is_zeros_on_the_right_device(program, second):
    torch.manual_seed(1)
    wanted = PROGRAMS[program]("cpu", "cpu")
    with virtual_gpus(2):
        torch.manual_seed(1)
        found = PROGRAMS[program]("vgpu:0", second)
        assert all(torch.equal(a, b.cpu()) for a, b in zip(wanted, found, strict=True))
    if program != "sort":  # whose shapes depend on nothing, but whose backward is another on meta tensors
        with virtual_gpus(2, dry=True):
            dry = PROGRAMS[program]("vgpu:0", second)
            assert [(g.shape, str(g.device)) for g in dry] == [(g.shape, "vgpu:0") for g in wanted[:1]] + [
                (g.shape, "cpu") for g in wanted[1:]
            ]


def test_zeros_for_a_missing_gradient_are_memory_of_its_device():
    with virtual_gpus(2) as box:
        x = torch.ones(1000, 1000, device="vgpu:0", requires_grad=True)
        first, _second = (x * 2).chunk(2)
        loss = first.to("vgpu:1").sum()
        box.reset()
        loss.backward()
        assert [e.nbytes for e in box.events if e.name == "zeros" and e.lane == "vgpu:0"] == [2_000_000]
        assert box.ledger.used[1] < box.ledger.most[1] < 8_000_000 < box.ledger.most[0]


def test_gradients_to_begin_with_are_where_the_outputs_are():
    with virtual_gpus(2):
        x = leaf("vgpu:0")
        with pytest.raises(RuntimeError, match="invalid gradient at index 0 - expected device vgpu:0 but got vgpu:1"):
            (x * 2).backward(torch.ones(3, 4, device="vgpu:1"))


def test_a_gradient_may_be_assigned_on_its_tensors_device_only():
    with virtual_gpus(2):
        x = leaf("vgpu:0")
        with pytest.raises(RuntimeError, match="assigned grad has data located on a different device"):
            x.grad = torch.ones(3, 4, device="vgpu:1")
        x.grad = torch.ones(3, 4, device="vgpu:0")
        x.data = x.data.to("vgpu:1")  # on CUDA it moves, and leaves its gradient
        assert (x.get_device(), torch.get_device(x), x.grad.get_device()) == (1, 1, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # of two kinds of attention on CUDA
def test_a_checkpoint_around_attention_computes_it_again(dtype):
    draw = torch.Generator().manual_seed(0)
    given = torch.randn(2, 4, 24, dtype=dtype, generator=draw)

    def attend(x):
        q, k, v = (part[:, None] for part in x.chunk(3, -1))
        return x.sum(-1) + F.scaled_dot_product_attention(q, k, v, is_causal=True).sum((1, 3))

    def gradient(x):
        checkpoint(attend, x, use_reentrant=False).square().sum().backward()
        return x.grad.cpu()

    wanted = gradient(given.clone().requires_grad_())
    with virtual_gpus(1):
        assert torch.allclose(gradient(given.to("vgpu:0").requires_grad_()), wanted, atol=1e-5)
