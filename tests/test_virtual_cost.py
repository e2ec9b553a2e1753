"""What operations cost, held against what was published: peaks, products, ResNet-50; and against each other."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

from mpcourse.errors import UserError
from mpcourse.models import ResNet50
from mpcourse.virtual import GPUS, LINKS, busy, virtual_gpus
from mpcourse.virtual.specs import find_gpu, find_link

A100 = "A100-SXM4"


def seconds(box, run):
    """What `run` keeps the device busy."""
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
        assert seconds(box, lambda: F.conv2d(x, weight)) > 3 * rounded
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
    [(A100, "PCIe 4.0 x16"), ("H100-SXM", "PCIe 5.0 x16"), ("H200-SXM", "PCIe 5.0 x16"), ("B200-SXM", "PCIe 5.0 x16")]
    + [("Tesla V100-SXM2", "PCIe 3.0 x16"), ("L40S", "PCIe 4.0 x16")],
)
def test_a_gpu_has_the_link_to_its_host_that_it_is_built_with(gpu, link):
    with virtual_gpus(1, gpu) as box:
        torch.ones(10**6).to("vgpu:0")
        assert box.copies[-1].seconds == pytest.approx(LINKS[link].seconds(4e6))
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
    assert 0.6 < gpu.convolution_efficiency <= gpu.product_efficiency <= 1
    assert 8 * 2**30 <= gpu.memory <= 180 * 2**30 and 5 < gpu.flops / gpu.bandwidth < 150


def test_a_name_may_be_cut_short_where_it_still_says_which():
    assert find_gpu("A100").name == "A100-SXM4" and find_gpu("B200").name == "B200-SXM"
    for unclear in ("H100", "Tesla", ""):
        with pytest.raises(UserError, match="unknown GPU"):
            find_gpu(unclear)
