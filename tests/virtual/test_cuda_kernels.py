"""What is one kernel on CUDA is one here: billed as one, holding what CUDA's holds, with the bits of the CPU's."""

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torchgen.packaged import __path__ as packaged

from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.gpus.cost import describe

BF16, MiB = torch.bfloat16, 2**20


def kernels(box, phase=None):
    return [e.name for e in box.events if e.kind == "compute" and phase in (None, e.phase)]


def held(box):
    return box.ledger.used[0] - sum(w.allocation.nbytes for w in box.workspaces.values())


def peak(box):
    return box.ledger.most[0] - sum(w.allocation.nbytes for w in box.workspaces.values())


# -- torch's own list of kernels --


def native_functions():
    """{name: the dispatch keys of its kernels, its own and those of the operation that it delegates to}."""
    with open(f"{next(iter(packaged))}/ATen/native/native_functions.yaml") as file:
        entries = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    of = {entry["func"].split("(")[0]: entry for entry in entries}

    def keys(entry):
        return {key.strip() for names in entry.get("dispatch") or {} for key in str(names).split(",")}

    return {n: keys(e) | keys(of.get(e.get("structured_delegate"), {})) for n, e in of.items()}


def test_an_operation_is_taken_apart_only_where_torch_has_no_kernel_of_cuda_for_it():
    functions = native_functions()
    whole = {n for n, keys in functions.items() if "CUDA" in keys or "CompositeExplicitAutograd" in keys}
    assert {"silu_backward", "mish_backward", "_fused_rms_norm"} < whole and len(whole) > 1000
    apart = set()
    for name in whole:
        packet, _, overload = name.partition(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
        if describe(operation).composite:
            apart.add(name)
    assert not apart


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("function", [F.silu, F.mish, F.gelu, F.hardswish, F.elu, F.softplus, F.logsigmoid])
def test_the_backward_of_an_activation_is_one_kernel_that_makes_one_tensor(function, dry):
    with virtual_gpus(1, dry=dry) as box:
        x = torch.randn(MiB, device="vgpu:0", requires_grad=True)
        gradient = torch.randn(MiB, device="vgpu:0")
        before = held(box)
        y = function(x)
        assert held(box) - before == 4 * MiB  # the result alone
        box.reset()
        before = held(box)
        y.backward(gradient)
        assert kernels(box) == [f"{function.__name__.replace('logsigmoid', 'log_sigmoid')}_backward"]
        assert peak(box) - before == 4 * MiB


CASES = {
    "silu": (lambda: nn.SiLU(), (3, 5)),
    "mish": (lambda: nn.Mish(), (3, 5)),
    "logsigmoid": (lambda: nn.LogSigmoid(), (3, 5)),
    "rms norm": (lambda: nn.RMSNorm(8), (3, 5, 8)),
    "lstm cell": (lambda: nn.LSTMCell(8, 6), (3, 8)),
    "gru cell": (lambda: nn.GRUCell(8, 6), (3, 8)),
    "attention": (lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), (3, 8, 16)),
    "attention with dropout": (lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.3, batch_first=True), (3, 8, 16)),
    "attention by products": (lambda: nn.MultiheadAttention(10, 2, batch_first=True), (3, 8, 10)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Softmax(-1)), (3, 8)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6)), (3, 8)),
}


def learn(name, device, dtype):
    make, shape = CASES[name]
    torch.manual_seed(5)
    net, x = make().to(device, dtype), torch.randn(shape).to(device, dtype).requires_grad_()
    torch.manual_seed(6)
    out = net(x, x, x, need_weights=False)[0] if isinstance(net, nn.MultiheadAttention) else net(x)
    y = out[0] if isinstance(out, tuple) else out
    y.square().sum().backward()
    return [t.detach().cpu() for t in (y, x.grad, *(p.grad for p in net.parameters()))]


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_have_the_bits_of_the_cpu(name, dtype):
    expected = learn(name, "cpu", dtype)
    with virtual_gpus(1):
        got = learn(name, "vgpu:0", dtype)
    assert all(map(torch.equal, expected, got))


@pytest.mark.parametrize("name", ["rms norm", "lstm cell", "gru cell", "attention by products"])
def test_backward_goes_through_a_graph_twice_where_the_first_keeps_it(name):
    make, shape = CASES[name]
    with virtual_gpus(1):
        net, x = make().to("vgpu:0"), torch.randn(shape).to("vgpu:0")
        out = net(x, x, x, need_weights=False) if isinstance(net, nn.MultiheadAttention) else net(x)
        loss = (out[0] if isinstance(out, tuple) else out).square().sum()
        loss.backward(retain_graph=True)
        once = [p.grad.clone() for p in net.parameters()]
        loss.backward()
        assert all(torch.equal(p.grad, 2 * grad) for p, grad in zip(net.parameters(), once, strict=True))
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dry", [False, True])
def test_group_norm_of_channels_last_keeps_a_contiguous_copy(dry, autocast):
    with virtual_gpus(1, dry=dry) as box:
        norm = nn.GroupNorm(2, 8).to("vgpu:0")
        x = torch.randn(4, 8, 16, 16, device="vgpu:0").to(memory_format=torch.channels_last).requires_grad_()
        box.reset()
        before = held(box)
        with torch.autocast("vgpu", torch.bfloat16, enabled=autocast):
            y = norm(x)
        assert y.is_contiguous() and y.dtype is torch.float32
        assert kernels(box) == ["clone", "native_group_norm"]
        assert held(box) - before == x.nbytes + y.nbytes + 2 * 4 * 4 * 2  # the copy, the result, and statistics
        y.sum().backward()
        assert x.grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dry", [False, True])
def test_rms_norm_keeps_its_input_and_a_number_for_each_row(dry):
    with virtual_gpus(1, dry=dry) as box:
        norm, x = nn.RMSNorm(64).to("vgpu:0"), torch.randn(32, 64, device="vgpu:0", requires_grad=True)
        before = held(box)
        y = norm(x)
        assert held(box) - before == y.nbytes + 4 * 32 and kernels(box)[-1] == "_fused_rms_norm"
        del y
        assert held(box) == before


def test_a_second_derivative_of_rms_norm_is_that_of_the_cpu():
    def second(device):
        torch.manual_seed(2)
        norm, x = nn.RMSNorm(8).to(device), torch.randn(3, 8).to(device).requires_grad_()
        (first,) = torch.autograd.grad(norm(x).pow(3).sum(), x, create_graph=True)
        first.square().sum().backward()
        return [x.grad.cpu(), norm.weight.grad.cpu()]

    expected = second("cpu")
    with virtual_gpus(1):
        assert all(map(torch.allclose, second("vgpu:0"), expected))


@pytest.mark.parametrize("dry", [False, True])
def test_a_cell_of_an_lstm_is_two_products_and_one_kernel(dry):
    with virtual_gpus(1, dry=dry) as box:
        cell, x = nn.LSTMCell(6, 7).to("vgpu:0"), torch.randn(4, 6, device="vgpu:0")
        state = torch.randn(4, 7, device="vgpu:0"), torch.randn(4, 7, device="vgpu:0")
        box.reset()
        before = held(box)
        new = cell(x, state)
        assert kernels(box) == ["mm", "mm", "_thnn_fused_lstm_cell"]
        gates = 4 * 4 * 4 * 7  # bytes; those of the input, of the state, and the workspace are kept
        assert held(box) - before == 3 * gates + sum(t.nbytes for t in new)


@pytest.mark.parametrize("dry", [False, True])
def test_softmax_of_float16_into_float32_is_one_kernel(dry):
    with virtual_gpus(1, dry=dry) as box:
        x = torch.randn(8, 16, device="vgpu:0", dtype=torch.float16, requires_grad=True)
        box.reset()
        y = F.softmax(x, -1, dtype=torch.float32)
        assert kernels(box) == ["_softmax"] and y.dtype is torch.float32
        gradient = torch.ones_like(y)
        box.reset()
        y.backward(gradient)
        assert kernels(box) == ["_softmax_backward_data"] and x.grad.dtype is torch.float16


@pytest.mark.parametrize("dry", [False, True])
def test_norms_in_half_precision_keep_their_statistics_in_float32(dry):
    with virtual_gpus(1, dry=dry) as box:
        x = torch.randn(10, 6, 4, device="vgpu:0", dtype=BF16, requires_grad=True)
        for norm, numbers in ((nn.LayerNorm(4), 2 * 60), (nn.BatchNorm1d(6), 2 * 6)):
            norm.to("vgpu:0", BF16)
            before = held(box)
            y = norm(x)
            assert held(box) - before == y.nbytes + 4 * numbers
            del y


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.SmoothL1Loss(), nn.SoftMarginLoss(), nn.BCELoss()])
def test_a_loss_that_torch_sums_up_in_place_keeps_the_memory_of_its_terms(loss, dry):
    with virtual_gpus(1, dry=dry) as box:
        x, target = torch.rand(50, 3, device="vgpu:0"), torch.ones(50, 3, device="vgpu:0")
        before = held(box)
        value = loss(x, target)
        assert value.shape == () and held(box) - before == x.nbytes


# -- attention --


def heads(*shape, dtype=torch.float32, learns=True):
    return torch.randn(*shape, device="vgpu:0", dtype=dtype, requires_grad=learns)


@pytest.mark.parametrize("dry", [False, True])
def test_float32_attention_writes_a_steps_heads_together(dry):
    """As torch's memory-efficient kernel: what comes after it in a transformer copies nothing."""
    with virtual_gpus(1, "A100-SXM4", dry=dry) as box:
        q, k, v = (heads(2, 4, 32, 8) for _ in range(3))
        y = F.scaled_dot_product_attention(q, k, v)
        box.reset()
        before = held(box)
        merged = y.transpose(1, 2).contiguous()
        assert merged.shape == (2, 32, 4, 8) and held(box) == before and kernels(box) == []
        half = F.scaled_dot_product_attention(*(t.to(BF16) for t in (q, k, v)))
        assert half.is_contiguous()  # FlashAttention writes in the query's order


@pytest.mark.parametrize(
    "gpu, dtype, shape, options, kernel",
    [
        ("A100-SXM4", torch.float32, (2, 4, 32, 8), {}, "efficient"),
        ("A100-SXM4", BF16, (2, 4, 32, 8), {}, "flash"),
        ("A100-SXM4", BF16, (2, 4, 32, 8), {"attn_mask": (32, 32)}, "efficient"),
        ("A100-SXM4", BF16, (2, 4, 32, 8), {"dropout_p": 0.1}, "flash"),
        ("A100-SXM4", BF16, (2, 4, 32, 264), {}, "efficient"),
        ("A100-SXM4", torch.float32, (2, 4, 32, 10), {}, None),
        ("A100-SXM4", torch.float64, (2, 4, 32, 8), {}, None),
        ("A100-SXM4", torch.float32, (4, 32, 8), {}, None),
        ("H100-SXM", BF16, (2, 4, 32, 8), {}, "cudnn"),
        ("H100-SXM", BF16, (2, 4, 32, 8), {"attn_mask": (32, 32)}, "cudnn"),
        ("H100-SXM", BF16, (2, 4, 32, 8), {"dropout_p": 0.1}, "flash"),
        ("H100-SXM", torch.float32, (2, 4, 32, 8), {"attn_mask": (32, 32)}, "efficient"),
    ],
)
def test_the_kernel_of_attention_is_the_one_that_torch_chooses(gpu, dtype, shape, options, kernel):
    with virtual_gpus(1, gpu, dry=True) as box:
        q, k, v = (heads(*shape, dtype=dtype) for _ in range(3))
        if "attn_mask" in options:
            options = options | {"attn_mask": torch.zeros(options["attn_mask"], dtype=dtype, device="vgpu:0")}
        box.reset()
        F.scaled_dot_product_attention(q, k, v, **options)
        used = [n for n in kernels(box) if "attention" in n]
        assert used == ([] if kernel is None else [f"_scaled_dot_product_{kernel}_attention"])
        assert ("_safe_softmax" in kernels(box)) == (kernel is None)


@pytest.mark.parametrize("gpu, dtype", [("A100-SXM4", torch.float32), ("H100-SXM", BF16)])
def test_no_fused_kernel_takes_a_mask_whose_rows_are_not_contiguous(gpu, dtype):
    """As the relative positions of T5, which are looked up as (queries, keys, heads) and permuted."""
    with virtual_gpus(1, gpu, dry=True) as box:
        q, bias = heads(2, 4, 32, 8, dtype=dtype), torch.zeros(32, 32, 4, dtype=dtype, device="vgpu:0")
        box.reset()
        F.scaled_dot_product_attention(q, q, q, bias.permute(2, 0, 1)[None])
        assert "_safe_softmax" in kernels(box)
        box.reset()
        F.scaled_dot_product_attention(q, q, q, bias.permute(2, 0, 1)[None].contiguous())
        assert "_safe_softmax" not in kernels(box)


def test_kernels_that_are_switched_off_are_not_taken():
    with virtual_gpus(1, "A100-SXM4", dry=True) as box:
        q = heads(2, 4, 32, 8, dtype=BF16)
        with sdpa_kernel(SDPBackend.MATH):
            F.scaled_dot_product_attention(q, q, q)
        assert "_safe_softmax" in kernels(box)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match=r"leave SDPBackend.MATH on"):
            F.scaled_dot_product_attention(q.float(), q.float(), q.float())


@pytest.mark.parametrize("dry", [False, True])
def test_a_boolean_mask_is_made_a_mask_of_numbers(dry):
    with virtual_gpus(1, dry=dry) as box:
        q = heads(1, 4, 64, 8)
        mask = torch.ones(1, 1, 64, 64, dtype=torch.bool, device="vgpu:0")
        before = held(box)
        y = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        assert held(box) - before == y.nbytes + 4 * 64 * 64 + 4 * 4 * 64 + 16


@pytest.mark.parametrize("dry", [False, True])
def test_grouped_queries_repeat_no_keys_in_half_precision_and_do_in_float32(dry):
    with virtual_gpus(1, "A100-SXM4", dry=dry) as box:
        q, k = heads(1, 8, 64, 8, dtype=BF16), heads(1, 2, 64, 8, dtype=BF16)
        before = held(box)
        y = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
        assert held(box) - before == y.nbytes + 4 * 8 * 64 + 24
        del y
        q, k = q.detach().float(), k.detach().float()
        box.reset()
        before = held(box)
        F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
        assert peak(box) - before > 4 * 8 * 64 * 64 and kernels(box).count("clone") == 2


@pytest.mark.parametrize("name", ["heads", "mask", "boolean", "causal", "gqa", "learned", "dropout", "3-D"])
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_attention_has_the_bits_of_the_cpu(name, dtype):
    def learn(device):
        torch.manual_seed(3)
        few = 2 if name == "gqa" else 4
        shapes = [(4, 16, 8)] * 3 if name == "3-D" else [(2, 4, 16, 8), (2, few, 16, 8), (2, few, 16, 8)]
        tensors = [torch.randn(s).to(device, dtype).requires_grad_() for s in shapes]
        options = {
            "mask": {"attn_mask": torch.randn(16, 16).to(device, dtype)},
            "boolean": {"attn_mask": torch.ones(16, 16, dtype=torch.bool).tril().to(device)},
            "causal": {"is_causal": True},
            "gqa": {"enable_gqa": True},
            "learned": {"attn_mask": torch.randn(1, 4, 16, 16).to(device, dtype).requires_grad_()},
            "dropout": {"dropout_p": 0.4},
        }.get(name, {})
        torch.manual_seed(4)
        y = F.scaled_dot_product_attention(*tensors, **options)
        y.square().sum().backward()
        if name == "learned":
            tensors.append(options["attn_mask"])
        return [t.detach().cpu() for t in (y, *(t.grad for t in tensors))]

    expected = learn("cpu")
    with virtual_gpus(1):
        assert all(map(torch.equal, learn("vgpu:0"), expected))
