"""Operations that are one kernel on a GPU: dropout and recurrent layers, by bits, bytes, and with and without data."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mpcourse.virtual import virtual_gpus

BF16 = torch.bfloat16


def operations(box, phase=None):
    return [e.name for e in box.events if e.kind == "compute" and phase in (None, e.phase)]


def held(box):
    """Bytes on the first device without what cuBLAS takes."""
    return box.ledger.used[0] - sum(w.allocation.nbytes for w in box.workspaces.values())


# -- dropout --


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, BF16, torch.float16])
@pytest.mark.parametrize("p", [0.1, 0.15, 0.37, 0.5, 0.9])
def test_dropout_is_one_kernel_with_a_mask_of_bytes_and_the_values_of_the_cpu(p, dtype):
    x, seed = torch.randn(40, 50).to(dtype), torch.initial_seed()
    plain = x.clone().requires_grad_()
    torch.manual_seed(seed)
    expected = F.dropout(plain, p)
    expected.backward(x)
    for dry in (False, True):
        with virtual_gpus(1, dry=dry) as box:
            given = x.to("vgpu:0").requires_grad_()
            box.reset()
            before = held(box)
            torch.manual_seed(seed)
            y = F.dropout(given, p)
            assert held(box) - before == x.nbytes + x.numel() and operations(box) == ["native_dropout"]
            gradient = x.to("vgpu:0")
            box.reset()
            y.backward(gradient)
            assert operations(box) == ["native_dropout_backward"]
            if not dry:
                assert torch.equal(y.detach().cpu(), expected.detach()) and torch.equal(given.grad.cpu(), plain.grad)


def test_what_cuda_does_not_fuse_is_not_fused():
    x = torch.randn(4, 6, 5, 5)
    cases = {
        "none": (lambda x: F.dropout(x, 0.0), []),
        "all": (lambda x: F.dropout(x, 1.0), ["zeros", "mul"]),
        "evaluation": (lambda x: nn.Dropout(0.5).eval()(x), []),
        "in place": (lambda x: F.dropout(x, 0.5, inplace=True), ["empty_like", "bernoulli_", "div_", "mul_"]),
        "channels": (lambda x: nn.Dropout2d(0.5)(x), ["new_empty", "bernoulli_", "div_", "mul"]),
        "alpha": (lambda x: nn.AlphaDropout(0.5)(x), None),
        "empty": (lambda x: F.dropout(x[:0], 0.5), []),
    }
    for name, (call, expected) in cases.items():
        torch.manual_seed(3)
        plain = call(x.clone())
        for dry in (False, True):
            with virtual_gpus(1, dry=dry) as box:
                given = x.to("vgpu:0")
                box.reset()
                torch.manual_seed(3)
                y = call(given)
                done = [name for name in operations(box) if name != "empty_like" or name in (expected or ())]
                assert y.device == torch.device("vgpu:0") and "native_dropout" not in done
                assert expected is None or [n for n in done if n in expected] == expected, name
                if not dry:
                    assert torch.equal(y.cpu(), plain)


def test_on_the_cpu_and_outside_of_a_box_dropout_is_as_ever():
    x = torch.randn(10, 10)
    torch.manual_seed(5)
    expected = F.dropout(x, 0.15)
    with virtual_gpus(1) as box:
        torch.manual_seed(5)
        assert torch.equal(F.dropout(x, 0.15), expected)
        assert "native_dropout" not in [e.name for e in box.events]


class Layer(nn.Module):
    """A layer of Korthikanti et al. 2022, figure 2: attention with its matrix kept, and all three dropouts."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, n, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, n, 3, self.heads, width // self.heads)
        q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
        weights = F.dropout(F.softmax(q @ k.mT, -1), 0.1)
        y = self.out((weights @ v).transpose(1, 2).reshape(batch, n, width))
        x = x + F.dropout(y, 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), 0.1)


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("s, b, h, a", [(64, 2, 128, 4), (128, 1, 64, 2)])
def test_a_transformer_layer_holds_the_activations_of_korthikanti(s, b, h, a, dry):
    """Check s b h (34 + 5 a s / h) bytes in half precision, arXiv 2205.05198, equation 1."""
    with virtual_gpus(1, dry=dry) as box:
        layer, x = Layer(h, a).to("vgpu:0", BF16), torch.randn(b, s, h).to("vgpu:0", BF16).requires_grad_()
        before = held(box) - x.nbytes
        y = layer(x)
        # The paper leaves out the means and deviations of layer norm, four bytes each for a row; y is the next one's.
        statistics = 2 * 2 * 4 * s * b
        assert held(box) - before - y.nbytes == pytest.approx(s * b * h * (34 + 5 * a * s / h), abs=statistics)


# -- recurrent layers --

STEPS, BATCH, FEATURES, UNITS = 9, 4, 6, 7
LAYERS = {
    "lstm": lambda: nn.LSTM(FEATURES, UNITS),
    "lstm, deep": lambda: nn.LSTM(FEATURES, UNITS, 2, dropout=0.3, bidirectional=True),
    "lstm, batch first": lambda: nn.LSTM(FEATURES, UNITS, 3, batch_first=True),
    "lstm, projected": lambda: nn.LSTM(FEATURES, UNITS, 2, proj_size=3),
    "gru": lambda: nn.GRU(FEATURES, UNITS, 2, dropout=0.2),
    "gru, without bias": lambda: nn.GRU(FEATURES, UNITS, bias=False, bidirectional=True),
    "tanh": lambda: nn.RNN(FEATURES, UNITS, bidirectional=True, batch_first=True),
    "relu": lambda: nn.RNN(FEATURES, UNITS, 2, nonlinearity="relu"),
}
LENGTHS = torch.tensor([9, 7, 7, 2])


def learn(name, device, packed, dtype=None):
    """Two steps; parameters, the gradient of the input, and the results of the second."""
    torch.manual_seed(11)
    layer = LAYERS[name]().to(device)
    first = layer.batch_first
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, foreach=False)
    x = torch.randn((BATCH, STEPS, FEATURES) if first else (STEPS, BATCH, FEATURES)).to(device).requires_grad_()
    for _ in range(2):
        optimizer.zero_grad()
        given = pack_padded_sequence(x, LENGTHS, batch_first=first) if packed else x
        with torch.autocast("cpu" if device == "cpu" else "vgpu", dtype=dtype, enabled=dtype is not None):
            y, states = layer(given)
        if packed:
            y, lengths = pad_packed_sequence(y, batch_first=first)
            assert torch.equal(lengths, LENGTHS)
        states = states if isinstance(states, tuple) else (states,)
        sum(t.float().pow(2).sum() for t in (y, *states)).backward()
        optimizer.step()
    return [t.detach().cpu() for t in (*layer.parameters(), x.grad, y, *states)]


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    "name, packed",
    [(name, False) for name in LAYERS] + [(name, True) for name in ("lstm, deep", "lstm, batch first", "gru", "tanh")],
)
def test_a_recurrent_layer_has_the_bits_of_the_cpu_and_without_data_the_same_operations_bytes_and_time(name, packed):
    expected = learn(name, "cpu", packed)
    with virtual_gpus(1) as box:
        got = learn(name, "vgpu:0", packed)
    assert all(map(torch.equal, expected, got))
    with virtual_gpus(1, dry=True) as dry:
        learn(name, "vgpu:0", packed)
    assert operations(dry) == operations(box) and operations(box).count("_cudnn_rnn") == 2
    assert operations(box, "backward").count("_cudnn_rnn_backward") == 2
    assert dry.ledger.most == box.ledger.most and dry.ledger.used == box.ledger.used and dry.now == box.now


@pytest.mark.parametrize("make, nbytes", [(nn.LSTM, 736_000_000), (nn.GRU, 864_000_000)])
def test_the_reserve_is_that_which_was_measured_of_cudnn(make, nbytes):
    """Compare with pytorch issue 2895: four layers of 320 units, 123 features, 25 000 rows."""
    with virtual_gpus(1, dry=True) as box:
        layer, x = make(123, 320, 4).to("vgpu:0"), torch.randn(1000, 25, 123, device="vgpu:0")
        before = held(box)
        y, states = layer(x)
        states = states if isinstance(states, tuple) else (states,)
        assert sum(p.numel() for p in layer.parameters()) == {nn.LSTM: 3038090, nn.GRU: 2279370}[make] - 3210
        zeros = sum(s.nbytes for s in states)  # the states at the start are saved as well
        assert held(box) - before == nbytes + y.nbytes + sum(s.nbytes for s in states) + zeros
        with torch.no_grad():
            del y, states
            layer.eval()
            box.reset()
            layer(x)
        assert box.ledger.most[0] < before + nbytes / 4  # no reserve in evaluation


def test_flops_of_a_recurrent_layer_are_those_of_its_products():
    with virtual_gpus(1, dry=True) as box:
        layer, x = nn.LSTM(20, 30, 2).to("vgpu:0"), torch.randn(5, 3, 20, device="vgpu:0")
        layer(x)[0].sum().backward()
    flops = {e.name: e.flops for e in box.events if e.flops}
    numbers = 4 * 30 * (20 + 30) + 4 * 30 * (30 + 30)
    assert flops["_cudnn_rnn"] == 2 * 15 * numbers and flops["_cudnn_rnn_backward"] == 4 * 15 * numbers


def test_a_recurrent_layer_in_a_region_of_autocast_casts_all_it_is_given():
    for dry in (False, True):
        with virtual_gpus(1, dry=dry) as box:
            learn("gru", "vgpu:0", False, BF16)
            one = box.events
        names = [e.name for e in one if e.kind == "compute" and e.phase == "forward"]
        assert names.count("_cudnn_rnn") == 2
        assert [n for n in names if n in ("_to_copy", "_cudnn_rnn")][:11] == 10 * ["_to_copy"] + ["_cudnn_rnn"]


def test_what_cudnn_refuses_is_refused():
    for dry in (False, True):
        with virtual_gpus(2, dry=dry):
            x = torch.randn(3, 2, 6).to("vgpu:0")
            with pytest.raises(RuntimeError, match="only be called in training mode"):
                nn.LSTM(6, 7).to("vgpu:0").eval()(x)[0].sum().backward()
            with pytest.raises(RuntimeError, match="same device"):
                nn.LSTM(6, 7).to("vgpu:1")(x)
            with pytest.raises((RuntimeError, ValueError), match="dtype"):
                nn.LSTM(6, 7).to("vgpu:0")(x.double())
            y = nn.GRU(6, 7).to("vgpu:0")(x.requires_grad_())[0]
            (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            with pytest.raises(RuntimeError, match="Double backwards is not supported"):
                first.sum().backward()
            with torch.backends.cudnn.flags(enabled=False):
                y = nn.RNN(6, 7).to("vgpu:0")(x)[0]
            (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            first.sum().backward()


def test_backward_twice_needs_the_graph_and_frees_the_reserve():
    with virtual_gpus(1) as box:
        layer, x = nn.LSTM(6, 7).to("vgpu:0"), torch.randn(3, 2, 6).to("vgpu:0")
        y = layer(x)[0].sum()
        y.backward(retain_graph=True)
        once = layer.weight_hh_l0.grad.clone()
        y.backward()
        torch.testing.assert_close(layer.weight_hh_l0.grad, 2 * once)
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
        assert "_cudnn_rnn" not in [a.name for a in box.ledger.live.values() if a.dtype is torch.uint8]


# -- attention with dropout --


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [None, BF16])
def test_attention_with_dropout_is_one_operation_that_keeps_neither_weights_nor_masks(dtype, masked):
    def learn(device):
        torch.manual_seed(13)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1).to(device)
        x = torch.randn(3, 16, 32).to(device).requires_grad_()
        mask = nn.Transformer.generate_square_subsequent_mask(16).to(device) if masked else None
        with torch.autocast("cpu" if device == "cpu" else "vgpu", dtype=dtype, enabled=dtype is not None):
            y = layer(x, src_mask=mask)
        y.sum().backward()
        return [t.detach().cpu() for t in (*(p.grad for p in layer.parameters()), x.grad, y)]

    with virtual_gpus(1) as box:
        got = learn("vgpu:0")
    with virtual_gpus(1, dry=True) as dry:
        learn("vgpu:0")
    assert operations(dry) == operations(box) and dry.ledger.most == box.ledger.most and dry.now == box.now
    kernels = {"_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention"} & {*operations(box)}
    assert len(kernels) == 1 and operations(box).count(*kernels) == 1 and "_softmax" not in operations(box)
    if dtype is None:  # the CPU's autocast does not compute layer norm in float32
        assert all(map(torch.equal, got, learn("cpu")))


def test_attention_with_dropout_holds_its_inputs_its_result_and_a_number_for_each_row():
    for dry in (False, True):
        with virtual_gpus(1, dry=dry) as box:
            q, k, v = (torch.randn(2, 4, 30, 8, device="vgpu:0", requires_grad=True) for _ in range(3))
            before = held(box)
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
            # The kernel writes sums for rows in multiples of 32, and keeps where the random numbers begin.
            assert held(box) - before == y.nbytes + 4 * 2 * 4 * 32 + 16
            y.sum().backward()
            del y
            assert held(box) - before == 3 * q.nbytes  # the gradients


def test_where_cuda_has_no_fused_attention_its_dropout_is_still_one_kernel():
    with virtual_gpus(1) as box:
        q = torch.randn(4, 30, 8, device="vgpu:0", requires_grad=True)  # without heads
        F.scaled_dot_product_attention(q, q, q, dropout_p=0.2).sum().backward()
    assert operations(box).count("native_dropout") == operations(box).count("native_dropout_backward") == 1
