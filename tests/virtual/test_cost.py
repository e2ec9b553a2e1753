"""What operations cost, held against what was published: peaks, products, ResNet-50; and against each other."""

import contextlib
import math
import statistics
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from mpcourse.common.errors import UserError
from mpcourse.models import ResNet50
from mpcourse.virtual import GPUS, LINKS, busy, virtual_gpus
from mpcourse.virtual.specs import find_gpu, find_link

A100 = "A100-SXM4"


def seconds(box, run):
    """Return how long `run` keeps the device busy."""
    box.reset()
    run()
    return busy(box.events, "vgpu:0")


@pytest.fixture
def box():
    with virtual_gpus(1, A100, dry=True) as box:
        yield box


def square(n=4096, dtype=torch.float32):
    return torch.empty(n, n, dtype=dtype, device="vgpu:0")


@contextlib.contextmanager
def switch(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@pytest.mark.parametrize(
    ("gpu", "shape", "published"),  # TFLOP/s in bfloat16, of Maximum Achievable Matmul FLOPS
    [
        (A100, (1024, 10240, 5120), 271.2),
        ("H100-SXM", (2048, 2048, 13312), 794.5),
        ("H200-SXM", (2048, 2048, 13312), 794.5),
        ("B200-SXM", (1792, 16128, 3072), 1745),
    ],
)
def test_products_are_as_fast_as_the_best_that_were_measured(gpu, shape, published):
    m, n, k = shape
    with virtual_gpus(1, gpu, dry=True) as box:
        a, b = (torch.empty(*s, dtype=torch.bfloat16, device="vgpu:0") for s in ((m, k), (k, n)))
        found = 2e-12 * m * n * k / seconds(box, lambda: a @ b)
    assert found == pytest.approx(published, rel=0.1)


def images_a_second(gpu, batch, dtype=torch.float32, layout=torch.contiguous_format):
    """In training; with autocast to `dtype` if it is not float32."""
    with virtual_gpus(1, gpu, dry=True) as box, torch.device("vgpu:0"):
        model = ResNet50().to(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = torch.empty(batch, 3, 224, 224).to(memory_format=layout), torch.zeros(batch).long()
        mixed = dtype != torch.float32
        scaler = torch.amp.GradScaler("vgpu", enabled=mixed)
        for _ in range(2):
            start = box.synchronize()
            optimizer.zero_grad()
            with torch.autocast("vgpu", dtype, enabled=mixed):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            took = box.synchronize() - start
    return batch / took


@pytest.mark.parametrize(
    ("gpu", "batch", "dtype", "published"),
    [  # NVIDIA, DeepLearningExamples, ResNet-50 v1.5, one GPU. No number of ours is fitted to these rows.
        ("Tesla V100-SXM2-16GB", 112, torch.float32, 367),
        (A100, 256, torch.float32, 938),  # TF32, channels first
        (A100, 256, torch.float16, 2470),  # AMP, channels last
        ("Tesla V100-SXM2-16GB", 256, torch.float16, 1200),  # likewise
    ],
)
def test_resnet50_trains_as_fast_as_published_within_a_fifth(gpu, batch, dtype, published):
    layout = torch.channels_last if dtype == torch.float16 else torch.contiguous_format
    assert images_a_second(gpu, batch, dtype, layout) == pytest.approx(published, rel=0.2)


@pytest.mark.parametrize(
    ("gpu", "dtype", "peak"),
    [
        (A100, torch.float64, 19.5),
        (A100, torch.float32, 19.5),
        (A100, torch.bfloat16, 312),
        ("H200-SXM", torch.float64, 67),
        ("Tesla V100-SXM2", torch.float16, 125),
        ("Tesla V100-SXM2", torch.bfloat16, 15.7),  # its tensor cores do not know it
        ("Tesla P100-SXM2", torch.float16, 10.6),  # sums in float32
        ("GTX 1080", torch.float16, 8.9),
        ("L4", torch.float8_e4m3fn, 242.5),
    ],
)
def test_dtypes_have_their_own_peaks(gpu, dtype, peak):
    assert GPUS[gpu].peak(dtype)[0] == pytest.approx(peak * 1e12)


def test_products_of_float32_are_rounded_to_tf32_where_torch_is_told_to(box):
    a = square()
    plain = seconds(box, lambda: a @ a)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert seconds(box, lambda: a @ a) < plain / 6
    finally:
        torch.set_float32_matmul_precision(before)
    with switch(torch.backends.cuda.matmul, "allow_tf32", True):
        assert seconds(box, lambda: a @ a) < plain / 6
    assert seconds(box, lambda: a @ a) == pytest.approx(plain)


def test_convolutions_of_float32_are_rounded_to_tf32_unless_torch_is_told_not_to(box):
    x, weight = (torch.empty(*s, device="vgpu:0") for s in ((64, 256, 28, 28), (256, 256, 3, 3)))
    rounded = seconds(box, lambda: F.conv2d(x, weight))
    with switch(torch.backends.cudnn, "allow_tf32", False):
        assert seconds(box, lambda: F.conv2d(x, weight)) > 2 * rounded  # by Winograd's algorithm
    assert seconds(box, lambda: F.conv2d(x, weight)) == pytest.approx(rounded)


def test_tensor_cores_want_channels_last_and_others_do_not_care():
    found = {}
    for gpu in (A100, "Tesla P100-SXM2"):
        with virtual_gpus(1, gpu, dry=True) as box:
            x, weight = (torch.empty(*s, device="vgpu:0") for s in ((64, 64, 56, 56), (64, 64, 3, 3)))
            last = x.to(memory_format=torch.channels_last)
            found[gpu] = [seconds(box, lambda i=i, w=weight: F.conv2d(i, w)) for i in (x, last)]
            assert F.conv2d(last, weight).is_contiguous(memory_format=torch.channels_last)
    assert found[A100][0] > 1.5 * found[A100][1]
    assert found["Tesla P100-SXM2"][0] == pytest.approx(found["Tesla P100-SXM2"][1])


def test_products_of_int8_do_not_exceed_their_peak(box):
    a = square(dtype=torch.int8)
    rate = 2 * 4096**3 / seconds(box, lambda: torch._int_mm(a, a))
    assert 0.5 * 624e12 < rate < 624e12


PRODUCTS = {
    "addbmm": (lambda a: torch.addbmm(a, a[None], a[None]), 2 * 1024**3),
    "baddbmm_": (lambda a: a.clone()[None].baddbmm_(a[None], a[None]), 2 * 1024**3),
    "addmm_": (lambda a: a.clone().addmm_(a, a), 2 * 1024**3),
    "mv": (lambda a: a @ a[0], 2 * 1024**2),
    "dot": (lambda a: a[0] @ a[1], 2 * 1024),
    "bilinear": (lambda a: F.bilinear(a[:4], a[:4], a.new_empty(3, 1024, 1024)), 2 * 4 * 3 * 1024**2),
    "weight_int8pack_mm": (
        lambda a: torch._weight_int8pack_mm(a.bfloat16(), a.to(torch.int8), a[0].bfloat16()), 2 * 1024**3,
    ),
    "grouped_mm": (
        lambda a: torch._grouped_mm(
            a.bfloat16(), a.bfloat16().expand(3, 1024, 1024), offs=torch.tensor([1, 2, 1024]).int().to("vgpu:0")
        ),
        2 * 1024**3,
    ),
    "cdist": (lambda a: torch.cdist(a, a), 2 * 1024**3),
    "cholesky": (torch.linalg.cholesky, 1024**3 // 3),
    "solve": (lambda a: torch.linalg.solve(a, a), 2 * 1024**3 * 4 // 3),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_product_has_its_flops(box, name):
    run, flops = PRODUCTS[name]
    a = square(1024)
    box.reset()
    run(a)
    assert sum(e.flops for e in box.events if e.lane == "vgpu:0") == pytest.approx(flops, rel=0.01)


def test_causal_attention_costs_half_of_a_full_one(box):
    q = torch.empty(2, 8, 2048, 64, dtype=torch.float16, device="vgpu:0", requires_grad=True)
    flops = {}
    for causal in (False, True):
        box.reset()
        F.scaled_dot_product_attention(q, q, q, is_causal=causal).sum().backward()
        flops[causal] = [e.flops for e in box.events if "attention" in e.name and e.lane == "vgpu:0"]
    assert len(flops[True]) == 2
    for masked, full in zip(flops[True], flops[False], strict=True):
        assert masked / full == pytest.approx((2048 + 1) / (2 * 2048))


# TFLOP/s of long sequences and of short ones; batches such that there are 16384 tokens, and 2048 numbers a token.
# FlashAttention-2 on an A100 forward and backward (its README), cuDNN on an H100 (FlashAttention-3, figures 5 and 6).
ATTENTION = [
    (A100, 64, False, "both", {512: 132, 2048: 162, 16384: 176}),
    (A100, 128, False, "both", {2048: 187, 8192: 201, 16384: 203}),
    (A100, 64, True, "both", {512: 88, 2048: 140, 16384: 171}),
    (A100, 128, True, "both", {512: 99, 2048: 155, 16384: 189}),
    ("H100-SXM", 64, False, "forward", {512: 335, 2048: 395, 16384: 413}),
    ("H100-SXM", 128, False, "forward", {512: 497, 2048: 617, 16384: 595}),
    ("H100-SXM", 64, True, "forward", {512: 225, 2048: 334, 16384: 388}),
    ("H100-SXM", 128, True, "forward", {512: 315, 2048: 484, 16384: 539}),
    ("H100-SXM", 64, False, "backward", {512: 266, 2048: 395, 16384: 433}),
    ("H100-SXM", 128, False, "backward", {512: 305, 2048: 465, 16384: 516}),
]


@pytest.mark.parametrize(("gpu", "width", "causal", "passes", "published"), ATTENTION)
def test_attention_is_as_fast_as_its_published_kernels_within_a_quarter(gpu, width, causal, passes, published):
    for tokens, rate in published.items():
        with virtual_gpus(1, gpu, dry=True) as box:
            shape = (16384 // tokens, 2048 // width, tokens, width)
            q, k, v = (torch.empty(shape, dtype=torch.bfloat16, device="vgpu:0", requires_grad=True) for _ in range(3))
            box.reset()
            F.scaled_dot_product_attention(q, k, v, is_causal=causal).backward(torch.empty_like(q))
            phases = ("forward", "backward") if passes == "both" else (passes,)
            work = [e for e in box.events if "attention" in e.name and e.lane == "vgpu:0" and e.phase in phases]
        flops = {"forward": 4, "backward": 10, "both": 14}[passes] * math.prod(shape) * tokens / (2 if causal else 1)
        assert flops / sum(e.seconds for e in work) / 1e12 == pytest.approx(rate, rel=0.25), tokens


def test_flash_attention_2_reaches_a_third_of_hoppers_peak_as_published():
    """35 % forward (FlashAttention-3, abstract), and up to 335 TFLOP/s of both passes (FlashAttention-2's README)."""
    rates = {}
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), virtual_gpus(1, "H100-SXM", dry=True) as box:
        q = torch.empty(1, 16, 16384, 128, dtype=torch.bfloat16, device="vgpu:0", requires_grad=True)
        F.scaled_dot_product_attention(q, q, q).backward(torch.empty_like(q))
        work = [e for e in box.events if "attention" in e.name and e.lane == "vgpu:0"]
        for passes, flops in (("forward", 4), ("both", 14)):
            seconds = sum(e.seconds for e in work if passes in (e.phase, "both"))
            rates[passes] = flops * 16 * 128 * 16384**2 / seconds / 1e12
    assert rates == {"forward": pytest.approx(346, rel=0.03), "both": pytest.approx(335, rel=0.03)}


def test_attention_with_a_mask_or_in_float32_has_the_slower_kernel_of_those_that_torch_has_for_it():
    found = {}
    with virtual_gpus(1, A100, dry=True) as box:
        for dtype in (torch.float16, torch.float32):
            q = torch.empty(8, 16, 2048, 64, dtype=dtype, device="vgpu:0")
            mask = torch.empty(2048, 2048, dtype=dtype, device="vgpu:0")
            for bias in (None, mask):
                found[dtype, bias is None] = seconds(
                    box, lambda q=q, b=bias: F.scaled_dot_product_attention(q, q, q, attn_mask=b)
                )
    assert found[torch.float16, False] > 2 * found[torch.float16, True]
    assert found[torch.float32, False] == pytest.approx(found[torch.float32, True], rel=0.1)


def test_attention_with_dropout_takes_as_long_as_without():
    found = []
    for dropout in (0.0, 0.1):
        with virtual_gpus(1, A100) as box:
            q = torch.zeros(2, 4, 256, 64, dtype=torch.bfloat16, device="vgpu:0", requires_grad=True)
            box.reset()
            F.scaled_dot_product_attention(q, q, q, dropout_p=dropout).sum().backward()
            found.append([e.seconds for e in box.events if "attention" in e.name and e.lane == "vgpu:0"])
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_depthwise_convolution_takes_the_time_of_its_bytes_if_it_is_channels_last(dtype):
    with virtual_gpus(1, A100, dry=True) as box:
        layer = torch.nn.Conv2d(512, 512, 3, padding=1, groups=512, bias=False).to("vgpu:0", dtype)
        x = torch.empty(64, 512, 56, 56, dtype=dtype, device="vgpu:0").to(memory_format=torch.channels_last)
        box.reset()
        layer(x.requires_grad_()).backward(torch.empty_like(x))
        forward, backward = (e for e in box.events if "convolution" in e.name and e.lane == "vgpu:0")
        kernel, width = box.gpus[0].kernel, box.gpus[0].bandwidth * box.gpus[0].memory_efficiency
        assert forward.flops == 2 * 9 * x.numel() and backward.flops == 2 * forward.flops
        assert forward.seconds == pytest.approx(kernel + 2 * x.nbytes / width, rel=0.01)
        assert backward.seconds == pytest.approx(2 * kernel + 4 * x.nbytes / width, rel=0.01)


# Microseconds on a V100S in float32, forward, batch 128: channels, output channels, groups, image, filter, stride
# (HIT-HPC-Group/Depthwise_Separable_Convolution_Optimization).
FLOAT32_LAYERS = [
    ((144, 144, 144, 56, 3, 1), 1236),
    ((240, 240, 240, 28, 5, 1), 1691),
    ((1152, 1152, 1152, 7, 5, 1), 521),
    ((144, 144, 144, 56, 3, 2), 433),
    ((144, 24, 1, 56, 1, 1), 437),
    ((480, 80, 1, 14, 1, 1), 278),
    ((320, 1280, 1, 7, 1, 1), 514),
]


@pytest.mark.parametrize(("layer", "published"), FLOAT32_LAYERS)
def test_depthwise_and_1x1_convolutions_of_float32_take_about_as_long_as_measured(layer, published):
    channels, filters, groups, image, size, stride = layer
    v100s = replace(GPUS["Tesla V100-SXM2"], name="V100S", flops=16.35e12, bandwidth=1134e9)
    with virtual_gpus(1, v100s, dry=True) as box, torch.device("vgpu:0"):
        net = torch.nn.Conv2d(channels, filters, size, stride, size // 2, groups=groups, bias=False)
        took = seconds(box, lambda: net(torch.empty(128, channels, image, image)))
    assert took * 1e6 == pytest.approx(published, rel=0.25)


def test_a_depthwise_convolution_of_16_bits_is_a_quarter_faster_than_of_float32_if_it_is_not_channels_last():
    found = {}
    with virtual_gpus(1, A100, dry=True) as box, torch.device("vgpu:0"):
        for dtype in (torch.float32, torch.bfloat16):
            net = torch.nn.Conv2d(240, 240, 5, groups=240, bias=False, dtype=dtype)
            x = torch.empty(128, 240, 28, 28, dtype=dtype)
            found[dtype] = seconds(box, lambda net=net, x=x: net(x))
    assert found[torch.float32] / found[torch.bfloat16] == pytest.approx(1.25, rel=0.02)


def test_a_group_of_few_channels_leaves_most_of_a_tile_on_tensor_cores_unused():
    """So many groups save less time than FLOPs."""
    found = {}
    with virtual_gpus(1, A100, dry=True) as box:
        for groups in (1, 4, 32):
            layer = torch.nn.Conv2d(512, 512, 3, groups=groups, bias=False, device="vgpu:0", dtype=torch.half)
            layer = layer.to(memory_format=torch.channels_last)
            x = torch.empty(64, 512, 30, 30, dtype=torch.half, device="vgpu:0").to(memory_format=torch.channels_last)
            found[groups] = seconds(box, lambda x=x, layer=layer: layer(x))
    assert found[4] == pytest.approx(found[1] / 4, rel=0.1)  # 128 channels a group
    assert found[1] / 32 * 3 < found[32] < found[4]  # 16


# Milliseconds of convolutions in mixed precision on a V100, of DeepBench (results/train): width, height of the image,
# channels, batch, filters, their size, padding and stride; forward, gradient of the input, of the weight.
CONVOLUTIONS = [
    ((112, 112, 64, 8, 128, 3, 1, 1), (0.185, 0.300, 0.258)),
    ((56, 56, 128, 8, 256, 3, 1, 1), (0.169, 0.197, 0.185)),
    ((28, 28, 256, 8, 512, 3, 1, 1), (0.186, 0.232, 0.170)),
    ((14, 14, 512, 8, 512, 3, 1, 1), (0.120, 0.139, 0.086)),
    ((112, 112, 64, 16, 128, 3, 1, 1), (0.355, 0.374, 0.423)),
]


@pytest.mark.parametrize(("shape", "published"), CONVOLUTIONS)
def test_convolutions_on_tensor_cores_take_about_as_long_as_measured(shape, published):
    width, height, channels, batch, filters, size, padding, stride = shape
    with virtual_gpus(1, "Tesla V100-SXM2", dry=True) as box, torch.device("vgpu:0"):
        x = torch.empty(batch, channels, height, width, dtype=torch.half).to(memory_format=torch.channels_last)
        weight = torch.empty(filters, channels, size, size, dtype=torch.half, requires_grad=True)
        box.reset()
        y = F.conv2d(x.requires_grad_(), weight, None, stride, padding)
        y.backward(torch.empty_like(y))
        forward, backward = (e.seconds * 1e3 for e in box.events if "convolution" in e.name and e.lane == "vgpu:0")
    assert forward == pytest.approx(published[0], rel=0.25)
    assert backward == pytest.approx(sum(published[1:]), rel=0.35)


# The same in float32, without tensor cores: 3x3 filters with stride 1, which Winograd's algorithm computes, and others.
FLOAT32_CONVOLUTIONS = [
    ((56, 56, 64, 16, 64, 3, 3, 1, 1), (0.179, 0.187, 0.444)),
    ((112, 112, 64, 16, 128, 3, 3, 1, 1), (1.246, 1.209, 1.928)),
    ((28, 28, 128, 16, 128, 3, 3, 1, 1), (0.158, 0.154, 0.153)),
    ((56, 56, 64, 16, 256, 1, 1, 0, 1), (0.161, 0.154, 0.245)),
    ((28, 28, 512, 16, 128, 1, 1, 0, 1), (0.144, 0.143, 0.194)),
    ((14, 14, 1024, 16, 256, 1, 1, 0, 1), (0.186, 0.149, 0.206)),
]


def test_convolutions_of_float32_take_about_as_long_as_measured():
    ratios = []
    for (width, height, channels, batch, filters, columns, rows, padding, stride), published in FLOAT32_CONVOLUTIONS:
        with virtual_gpus(1, "Tesla V100-SXM2", dry=True) as box, torch.device("vgpu:0"):
            x = torch.empty(batch, channels, height, width, requires_grad=True)
            weight = torch.empty(filters, channels, rows, columns, requires_grad=True)
            box.reset()
            y = F.conv2d(x, weight, None, stride, padding)
            y.backward(torch.empty_like(y))
            forward, backward = (e.seconds * 1e3 for e in box.events if "convolution" in e.name and e.lane == "vgpu:0")
        ratios += [forward / published[0], backward / sum(published[1:])]
    assert min(ratios) > 0.6 and max(ratios) < 1.5
    assert statistics.median(ratios) == pytest.approx(1, abs=0.1)


# Microseconds that a step of an LSTM takes forward. On a V100 by DeepBench (results/train), without the products of the
# inputs, which it leaves out; the last by torch itself (pytorch, pull request 62143).
LSTM_STEPS = [
    (512, 32, 25, 1, torch.float32, 45.8),
    (512, 32, 25, 1, torch.float16, 32.2),
    (1024, 32, 25, 1, torch.float16, 51.2),
    (2048, 32, 25, 1, torch.float16, 87.9),
    (1536, 16, 50, 1, torch.float32, 107.4),
    (128, 8, 5005, 4, torch.float32, 26.0),
]


@pytest.mark.parametrize(("units", "batch", "steps", "layers", "dtype", "published"), LSTM_STEPS)
def test_a_recurrent_step_waits_for_the_one_before_about_as_long_as_measured(
    units, batch, steps, layers, dtype, published
):
    with virtual_gpus(1, "Tesla V100-SXM2", dry=True) as box:
        network = torch.nn.LSTM(units, units, layers).to("vgpu:0", dtype)
        x = torch.empty(steps, batch, units, dtype=dtype, device="vgpu:0")
        took = seconds(box, lambda: network(x))
        inputs = layers * 8 * units**2 * batch * steps / box.gpus[0].rate(dtype)
    assert 0.5 < (took - inputs) / steps * 1e6 / published < 1.5


def test_recurrent_steps_are_paid_for_one_by_one():
    def took(steps=1000, layers=1, bidirectional=False, backward=False, cell=torch.nn.LSTM):
        with virtual_gpus(1, "Tesla V100-SXM2", dry=True) as box:
            network = cell(512, 512, layers, bidirectional=bidirectional).to("vgpu:0")
            x = torch.empty(steps, 1, 512, device="vgpu:0")
            box.reset()
            network(x)[0].sum().backward()
            phase = "backward" if backward else "forward"
            return sum(e.seconds for e in box.events if "rnn" in e.name and e.lane == "vgpu:0" and e.phase == phase)

    kernel = GPUS["Tesla V100-SXM2"].kernel
    for cell in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        assert took(cell=cell) > 1000 * 2 * kernel and took(cell=cell, backward=True) > 1000 * 2 * kernel
        assert took(2000, cell=cell) == pytest.approx(2 * took(cell=cell), rel=0.01)
    four = took(layers=4)  # at one time they work on different steps
    assert took() + 3 * 1000 * 2 * kernel <= four < 3 * took()
    assert took(layers=2, bidirectional=True) > 1.9 * took(bidirectional=True)  # and here they cannot


def test_packed_sequences_take_as_many_steps_as_the_longest():
    found = []
    for lengths in ([40, 40], [40, 1]):
        with virtual_gpus(1, "Tesla V100-SXM2") as box:
            network = torch.nn.GRU(8, 64, batch_first=True).to("vgpu:0")
            x = torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(2, 40, 8).to("vgpu:0"), lengths, batch_first=True)
            found.append(seconds(box, lambda x=x, network=network: network(x)))
    assert found[0] == pytest.approx(found[1], rel=0.02)


def test_ctc_loss_takes_longer_the_more_steps_there_are():
    found = {}
    for steps in (500, 1000):
        with virtual_gpus(1, A100) as box:
            x = torch.zeros(steps, 1, 5).log_softmax(-1).to("vgpu:0").requires_grad_()
            targets, lengths = (
                torch.ones(1, 3, dtype=torch.long).to("vgpu:0"),
                (torch.tensor([steps]), torch.tensor([3])),
            )
            box.reset()
            F.ctc_loss(x, targets, *lengths).backward()
            found[steps] = [e.seconds for e in box.events if "ctc" in e.name and e.lane == "vgpu:0"]
    kernel = GPUS[A100].kernel
    for few, many in zip(found[500], found[1000], strict=True):
        assert many - kernel == pytest.approx(2 * (few - kernel), rel=0.01) and many > 100e-6


def test_an_expanded_tensor_is_read_where_it_lies(box):
    a = square()
    row = seconds(box, lambda: a + a[0])
    assert seconds(box, lambda: a + a[:1].expand(4096, 4096)) == pytest.approx(row)
    assert seconds(box, lambda: a + a) > 1.4 * row
    assert seconds(box, lambda: a[:, :1].expand(4096, 4096)) == 0


def test_memory_that_is_only_reserved_takes_no_time_on_the_device(box):
    assert seconds(box, square) == 0 < seconds(box, lambda: torch.zeros(9, device="vgpu:0"))


def test_sorting_goes_through_keys_and_positions_once_for_each_byte_of_a_key(box):
    def moved(dtype):
        a = torch.empty(2**22, dtype=dtype, device="vgpu:0")
        box.reset()
        a.sort()
        return [e.nbytes for e in box.events if e.kind == "compute"][-1] / 2**22

    assert moved(torch.float32) == 4 + 4 + 8 + 4 + 3 * 2 * (4 + 8)  # the first pass makes the positions
    assert moved(torch.float64) > moved(torch.float32) > moved(torch.float16) > 8 * 2


def test_batch_norm_reads_its_images_twice_as_its_statistics_come_first(box):
    x = torch.empty(8, 16, 32, 32, device="vgpu:0", requires_grad=True)
    norm = torch.nn.BatchNorm2d(16).to("vgpu:0")
    for training, sweeps in ((True, 3), (False, 2)):
        box.reset()
        y = norm.train(training)(x)
        (forward,) = (e.nbytes for e in box.events if e.name == "native_batch_norm" and e.kind == "compute")
        assert forward == pytest.approx(sweeps * x.nbytes, rel=0.01)
    box.reset()
    y.backward(torch.zeros_like(y))
    (backward,) = (e.nbytes for e in box.events if e.name == "native_batch_norm_backward" and e.kind == "compute")
    assert backward == pytest.approx(5 * x.nbytes, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "link"),
    [
        (A100, "PCIe 4.0 x16"),
        ("H100-SXM", "PCIe 5.0 x16"),
        ("H200-SXM", "PCIe 5.0 x16"),
        ("B200-SXM", "PCIe 5.0 x16"),
        ("Tesla V100-SXM2", "PCIe 3.0 x16"),
        ("L40S", "PCIe 4.0 x16"),
    ],
)
def test_a_gpu_has_the_link_to_its_host_that_it_is_built_with(gpu, link):
    with virtual_gpus(1, gpu) as box:
        torch.ones(10**6).to("vgpu:0")
        assert box.copies[-1].seconds == pytest.approx(LINKS[link].seconds(4e6, pageable=True))
    with virtual_gpus(2, ["GTX 1080", gpu], host_link="1 GbE") as box:
        torch.ones(10**6).to("vgpu:1")
        assert box.copies[-1].seconds == pytest.approx(LINKS["1 GbE"].seconds(4e6))


@pytest.mark.parametrize("name", GPUS)
def test_every_row_of_the_hardware_table_holds_together(name):
    gpu = GPUS[name]
    assert gpu.name == name and find_link(gpu.host_link)
    assert gpu.flops >= gpu.float64 or gpu.capability >= (8, 0)
    if gpu.capability >= (7, 0):
        assert gpu.float16 >= 2 * gpu.flops * 0.99 and gpu.int8 > gpu.flops
        assert (gpu.tf32 > 0) == (gpu.capability >= (8, 0)) and gpu.tf32 <= gpu.float16 / 1.9
    assert 0.45 < gpu.convolution_efficiency <= gpu.product_efficiency < 1.1
    assert 8 * 2**30 <= gpu.memory <= 180 * 2**30 and 5 < gpu.flops / gpu.bandwidth < 150


def test_a_name_may_be_cut_short_where_it_still_says_which():
    assert find_gpu("A100").name == "A100-SXM4" and find_gpu("B200").name == "B200-SXM"
    for unclear in ("H100", "Tesla", ""):
        with pytest.raises(UserError, match="unknown GPU"):
            find_gpu(unclear)
