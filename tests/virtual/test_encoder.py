"""The fast path of nn.TransformerEncoderLayer and nn.MultiheadAttention: the CPU's bits, CUDA's kernels and bytes."""

import copy

import pytest
import torch
from torch import nn

from mpcourse.virtual import virtual_gpus

BATCH, STEPS, WIDTH, HEADS, HIDDEN = 8, 32, 64, 4, 256
CAUSAL = nn.Transformer.generate_square_subsequent_mask(STEPS).isinf()


def evaluate(module, x, dry, **given):
    """Results on the CPU (None without data), operations, bytes at the peak and after, in units of x."""
    with virtual_gpus(1, dry=dry) as box:
        module, x = copy.deepcopy(module).to("vgpu:0").eval(), x.to("vgpu:0")
        given = {k: v.to("vgpu:0") if isinstance(v, torch.Tensor) else v for k, v in given.items()}
        inputs = (x,) * (3 if isinstance(module, nn.MultiheadAttention) else 1)
        with torch.no_grad():
            module(*inputs, **given)
            box.reset()
            before = box.ledger.used[0]
            out = module(*inputs, **given)
        out = [t for t in (out if isinstance(out, tuple) else (out,)) if t is not None]
        peak, after = ((n - before) / x.nbytes for n in (box.ledger.most[0], box.ledger.used[0]))
        names = [e.name for e in box.events if e.kind == "compute"]
        return None if dry else [t.cpu() for t in out], names, peak, after


# What CUDA holds at once, in units of the input. Without a mask, in the second half: the residual, the hidden layer of
# four times its width, and its product. With one: q, k and v, and two matrices of weights, each twice as large as the
# input here; before it, also the normalized input; and the mask in float32 and as what it was merged to, of all heads.
@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("norm_first, mask, units", [
    (False, None, 6), (True, None, 6), (False, CAUSAL, 7 + 1 / 16), (True, CAUSAL, 8 + 1 / 16),
])  # fmt: skip
def test_an_encoder_layer_in_evaluation_holds_what_its_fused_function_does(norm_first, mask, units, dry):
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, HIDDEN, batch_first=True, norm_first=norm_first, activation="gelu"
    ).eval()
    x = torch.randn(BATCH, STEPS, WIDTH)
    with torch.no_grad():
        expected = layer(x, src_mask=mask)
    got, names, peak, after = evaluate(layer, x, dry, src_mask=mask)
    assert peak == units and after == 1
    assert names.count("addmm") == (4 if mask is None else 3) and names.count("native_layer_norm") == 2
    assert dry or torch.equal(got[0], expected)


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("weights, averaged", [(True, True), (True, False), (False, True)])
def test_attention_in_evaluation_gives_the_bits_of_the_cpu(weights, averaged, dry):
    attention, x = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval(), torch.randn(BATCH, STEPS, WIDTH)
    options = {"need_weights": weights, "average_attn_weights": averaged}
    with torch.no_grad():
        expected = [t for t in attention(x, x, x, **options) if t is not None]
    got, names, _peak, after = evaluate(attention, x, dry, **options)
    assert after == 1 + (2 / (HEADS if averaged else 1) if weights else 0)
    assert names.count("bmm") == (2 if weights else 0)
    assert dry or all(map(torch.equal, got, expected))


def test_a_stack_of_layers_and_training_are_as_ever():
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, batch_first=True), 2, enable_nested_tensor=False
    ).eval()
    x, padding = torch.randn(BATCH, STEPS, WIDTH), torch.arange(STEPS).expand(BATCH, -1) > 20
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
    got, *_ = evaluate(encoder, x, False, src_key_padding_mask=padding)
    assert torch.equal(got[0], expected)
    with virtual_gpus(1) as box:
        copy.deepcopy(encoder).to("vgpu:0")(x.to("vgpu:0")).sum().backward()  # gradients: no fast path
        assert "gelu" in [e.name for e in box.events] or "relu" in [e.name for e in box.events]
        layer = copy.deepcopy(encoder.layers[0]).to("vgpu:0")
        with torch.no_grad(), torch.autocast("vgpu"):
            assert layer(x.to("vgpu:0")).dtype is torch.float32  # as layer norm gives it; nor in a region of autocast


def test_tensors_of_two_devices_are_refused():
    with virtual_gpus(2), torch.no_grad():
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, batch_first=True).to("vgpu:1").eval()
        with pytest.raises(RuntimeError, match="same device"):
            layer(torch.randn(BATCH, STEPS, WIDTH, device="vgpu:0"))
