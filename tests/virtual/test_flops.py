"""FLOPs of each kind of product, held against a count that uses none of our formulas: which numbers multiply which."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from mpcourse.virtual import virtual_gpus


def multiplied(f, a, b):
    """How many products of a number of `a` and a number of `b` the results of `f` are sums of.

    `f` is linear in each: a one in `a`, and a one in `b`, give a number other than zero wherever these two meet.
    """
    ones_a, ones_b = (torch.eye(t.numel(), dtype=torch.float64).reshape(-1, *t.shape) for t in (a, b))
    return sum(int(f(x, y).count_nonzero()) for x, y in itertools.product(ones_a, ones_b))


def billed(run, dry=True):
    """FLOPs of the operations that `run` makes on a virtual GPU, by phase."""
    with virtual_gpus(1, "A100-SXM4", dry=dry) as box:
        run(box.devices[0])
        flops = {"forward": 0, "backward": 0}
        for event in box.events:
            if event.lane == box.names[0] and event.flops:
                flops[event.phase] += event.flops
        return flops


# name: (the operation, shapes of image and weight). Padding is left out: cuDNN multiplies its zeros, too.
CONVOLUTIONS = {
    "1d": (F.conv1d, (2, 3, 5), (4, 3, 3), {}),
    "1d grouped, strided": (F.conv1d, (2, 4, 7), (6, 2, 3), {"groups": 2, "stride": 2}),
    "2d": (F.conv2d, (2, 2, 4, 3), (3, 2, 3, 2), {}),
    "2d dilated, grouped": (F.conv2d, (1, 4, 5, 4), (4, 2, 2, 2), {"groups": 2, "dilation": 2}),
    "2d depthwise": (F.conv2d, (2, 4, 4, 4), (4, 1, 3, 3), {"groups": 4}),
    "2d depthwise, two filters a channel": (F.conv2d, (1, 3, 4, 4), (6, 1, 3, 3), {"groups": 3}),
    "3d grouped": (F.conv3d, (1, 4, 3, 2, 3), (4, 2, 2, 2, 2), {"groups": 2}),
    "transposed 1d grouped": (F.conv_transpose1d, (2, 4, 4), (4, 3, 3), {"groups": 2, "stride": 2}),
    "transposed 2d": (F.conv_transpose2d, (1, 3, 3, 2), (3, 2, 2, 3), {"dilation": 2}),
    "transposed 3d depthwise": (F.conv_transpose3d, (1, 4, 2, 2, 2), (4, 1, 2, 2, 2), {"groups": 4}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_has_as_many_flops_as_its_definition_in_forward_and_for_each_gradient(name):
    convolve, image, weight, options = CONVOLUTIONS[name]
    products = multiplied(lambda x, w: convolve(x, w, **options), torch.empty(image), torch.empty(weight))
    for learns in itertools.product((True, False), repeat=2):  # gradients of the image and of the weight

        def run(device, learns=learns):
            x, w = (
                torch.empty(s, device=device).requires_grad_(g) for s, g in zip((image, weight), learns, strict=True)
            )
            y = convolve(x, w, **options)
            if any(learns):
                y.sum().backward()

        assert billed(run) == {"forward": 2 * products, "backward": 2 * products * sum(learns)}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_bias_and_the_order_of_numbers_change_no_flops(layout):
    def run(device, bias, layout):
        layer = torch.nn.Conv2d(4, 8, 3, groups=2, bias=bias).to(device).to(memory_format=layout)
        layer(torch.empty(2, 4, 6, 6, device=device).to(memory_format=layout).requires_grad_()).sum().backward()

    assert billed(lambda d: run(d, True, layout)) == billed(lambda d: run(d, False, torch.contiguous_format))


PRODUCTS = {
    "mm": (torch.mm, (3, 4), (4, 2)),
    "bmm": (torch.bmm, (2, 3, 4), (2, 4, 2)),
    "mv": (torch.mv, (3, 4), (4,)),
    "dot": (torch.dot, (5,), (5,)),
    "vector by matrix": (torch.matmul, (4,), (4, 3)),
    "addmm": (lambda a, b: torch.addmm(a.new_zeros(1), a, b), (3, 4), (4, 2)),
    "addmv": (lambda a, b: torch.addmv(a.new_zeros(1), a, b), (3, 4), (4,)),
    "baddbmm": (lambda a, b: torch.baddbmm(a.new_zeros(1), a, b), (2, 3, 4), (2, 4, 2)),
    "addbmm": (lambda a, b: torch.addbmm(a.new_zeros(1), a, b), (2, 3, 4), (2, 4, 2)),
    "linear": (F.linear, (2, 3, 4), (5, 4)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), (2, 3, 4), (3, 4, 2)),
    "inner": (torch.inner, (3, 4), (2, 4)),
    "einsum of heads": (lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), (1, 3, 2, 4), (1, 2, 2, 4)),
    "einsum over two": (lambda a, b: torch.einsum("bij,jki->bk", a, b), (2, 3, 2), (2, 2, 3)),
    "matmul, broadcast": (torch.matmul, (2, 1, 3, 2), (2, 2, 2)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_has_as_many_flops_as_its_definition_and_four_times_as_many_of_complex_numbers(name):
    multiply, a, b = PRODUCTS[name]
    products = multiplied(multiply, torch.empty(a), torch.empty(b))
    for dtype, times in ((torch.float32, 1), (torch.bfloat16, 1), (torch.complex64, 4)):

        def run(device, dtype=dtype):
            multiply(torch.empty(a, dtype=dtype, device=device), torch.empty(b, dtype=dtype, device=device))

        assert billed(run) == {"forward": 2 * products * times, "backward": 0}


@pytest.mark.parametrize(
    "options", [{}, {"dropout_p": 0.1}, {"is_causal": True}, {"dropout_p": 0.1, "is_causal": True}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("keys", [6, 9])
def test_attention_has_two_products_forward_and_five_backward_of_the_scores_that_are_seen(options, dtype, keys):
    batch, heads, queries, width = 2, 3, 6, 8
    seen = [(i, j) for i in range(queries) for j in range(keys) if j <= i or not options.get("is_causal")]
    one = 2 * batch * heads * len(seen) * width

    def run(device):
        q, k = (torch.empty(batch, heads, n, width, dtype=dtype, device=device) for n in (queries, keys))
        q, k, v = (t.requires_grad_() for t in (q, k, k.clone()))
        F.scaled_dot_product_attention(q, k, v, **options).sum().backward()

    for dry in (True, False):
        flops = billed(run, dry)
        assert flops["forward"] == pytest.approx(2 * one, rel=1e-3)
        assert flops["backward"] == pytest.approx(5 * one, rel=1e-3)  # the scores once more, and four gradients


def test_keys_that_heads_share_are_multiplied_by_each_head():
    def run(device, kv):
        q, k = (torch.empty(2, h, 5, 8, dtype=torch.bfloat16, device=device).requires_grad_() for h in (4, kv))
        F.scaled_dot_product_attention(q, k, k, enable_gqa=True).sum().backward()

    assert billed(lambda d: run(d, 2)) == billed(lambda d: run(d, 4))


@pytest.mark.parametrize("cell", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_recurrent_network_multiplies_each_of_its_weights_once_a_row_and_twice_more_backward(cell, bidirectional):
    network = cell(3, 5, 2, bidirectional=bidirectional)
    weights = sum(p.numel() for p in network.parameters() if p.dim() == 2)

    def run(device):
        network.to(device)(torch.empty(7, 2, 3, device=device))[0].sum().backward()

    assert billed(run) == {"forward": 2 * 14 * weights, "backward": 4 * 14 * weights}
