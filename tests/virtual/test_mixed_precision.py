"""Autocast and GradScaler on virtual GPUs: CUDA's lists, the CPU's values, bytes by dtype, with data and without."""

import copy
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.models import mlp
from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.gpus.autocast import POLICIES

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
MACROS = {
    "LOWER_PRECISION_FP": "lower precision",
    "FP32": "float32",
    "FP32_SET_OPT_DTYPE": "float32 result",
    "PROMOTE": "promote",
}


@pytest.mark.parametrize("macro", MACROS)
def test_the_lists_are_those_of_the_installed_torch(macro):
    body = re.search(rf"define AT_FORALL_{macro}\(_\)(.*?)(?=\n\n|#define)", HEADER.read_text(), re.S)[1]
    names = re.findall(r"_\((\w+)(?:, (\w+))?\)", body)
    assert [f"{packet}.{overload}".rstrip(".") for packet, overload in names] == list(POLICIES[MACROS[macro]])


def operations(box):
    return [e.name for e in box.events if e.kind == "compute"]


def bytes_of(box, i=0):
    """Return the peak without what cuBLAS takes."""
    return box.ledger.most[i] - sum(w.allocation.nbytes for w in box.workspaces.values())


# -- values --


class Norm(nn.LayerNorm):
    """In float32 whatever the region: CUDA's autocast has layer_norm in its list, the CPU's has not."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=False), torch.autocast("vgpu", enabled=False):
            return super().forward(x.float())


class ViT(nn.Module):
    def __init__(self, width=32, heads=4, blocks=2, size=16, patch=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.place = nn.Parameter(torch.randn(1, (size // patch) ** 2, width))
        parts = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
        self.blocks = nn.ModuleList(
            nn.ModuleList([Norm(width), Norm(width), *(nn.Linear(*shape) for shape in parts)]) for _ in range(blocks)
        )
        self.norm, self.head = Norm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2) + self.place
        batch, n, width = x.shape
        for norm1, norm2, qkv, out, up, down in self.blocks:
            q, k, v = qkv(norm1(x)).view(batch, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            x = x + out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, n, width))
            x = x + down(F.gelu(up(norm2(x))))
        return self.head(self.norm(x).mean(1))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same"), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 4, 2, 2), nn.PReLU(), nn.Flatten(), nn.Linear(4 * 16 * 16, 10),
    )  # fmt: skip


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), mlp([3 * 16 * 16, 20, 20, 10])),
    "cnn": cnn,
    "vit": ViT,
}


def train(model, kind, device, dtype=BF16, steps=3, scale=None, seed=7):
    """Parameters and losses; the loss in float32, for the lists of CPU and CUDA differ in cross_entropy_loss."""
    model, draw = copy.deepcopy(model).to(device), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, foreach=False)
    scaler = torch.amp.GradScaler(kind, **(scale or {}), enabled=scale is not None)
    for _ in range(steps):
        x = torch.randn(4, 3, 16, 16, generator=draw).to(device)
        y = torch.randint(10, (4,), generator=draw).to(device)
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=dtype):
            out = model(x)
            loss = F.cross_entropy(out.float(), y)
        assert out.dtype is dtype and loss.dtype is FP32
        scaler.scale(loss).backward()
        assert all(p.grad.dtype is FP32 for p in model.parameters())
        scaler.step(optimizer)
        scaler.update()
    return [p.detach().cpu() for p in model.parameters()], scaler.state_dict()


@pytest.mark.parametrize(
    "name, dtype, kind",
    [(name, dtype, "vgpu") for name in MODELS for dtype in (BF16, FP16)] + [("mlp", FP16, "cuda")],
)
def test_parameters_after_three_steps_are_bitwise_those_of_autocast_on_the_cpu(name, dtype, kind):
    model = MODELS[name]()
    scale = {"init_scale": 8.0, "growth_interval": 2} if dtype is FP16 else None
    expected, state = train(model, "cpu", "cpu", dtype, scale=scale)
    with virtual_gpus(1) as box:
        got, on_device = train(model, kind, "vgpu:0", dtype, scale=scale)
    assert all(map(torch.equal, expected, got)) and state == on_device
    with virtual_gpus(1, dry=True) as dry:
        _, without = train(model, kind, "vgpu:0", dtype, scale=scale)
    assert operations(dry) == operations(box) and without == state
    assert bytes_of(dry) == bytes_of(box) and dry.now == pytest.approx(box.now)


X = torch.randn(4, 6)
CALLS = {
    "lower precision": {
        "matmul": lambda x: x @ x.mT,
        "linear": lambda x: F.linear(x, x, x[:, 0]),
        "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
        "multi_dot": lambda x: torch.linalg.multi_dot([x, x.mT, x]),
        "conv1d": lambda x: F.conv1d(x[None], x[None, :, :3]),
        "attention": lambda x: F.scaled_dot_product_attention(*(x.view(1, 1, 4, 6),) * 3),
        "prelu": lambda x: F.prelu(x, x[0, :1]),
    },
    "float32": {
        "exp": torch.exp,
        "pow": lambda x: x**2,
        "number to a power": lambda x: 2**x,
        "rsqrt": lambda x: x.abs().rsqrt(),
        "layer_norm": lambda x: F.layer_norm(x, (6,), x[0], x[1]),
        "group_norm": lambda x: F.group_norm(x, 2),
        "mse_loss": lambda x: F.mse_loss(x, x.flip(0)),
        "cosine": lambda x: F.cosine_similarity(x, x.flip(0)),
        "logits": lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).to(x.dtype)),
        "interpolate": lambda x: F.interpolate(x[None], scale_factor=2),
    },
    "float32 result": {
        "softmax": lambda x: F.softmax(x, 1),
        "log_softmax": lambda x: F.log_softmax(x, dim=1),
        "sum": lambda x: x.sum(),
        "sum over one": lambda x: x.sum(1),
        "prod": lambda x: x.prod(1),
        "cumsum": lambda x: x.cumsum(1),
        "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    },
    "float32 overload": {"norm": lambda x: torch.ops.aten.norm(x, 2), "over one": lambda x: x.norm(2, dim=1)},
    "as given": {"relu": F.relu, "add": lambda x: x + x, "gelu": F.gelu, "mean": lambda x: x.mean(0)},
}


@pytest.mark.parametrize("policy, name", [(policy, name) for policy, calls in CALLS.items() for name in calls])
def test_an_operation_gives_the_bits_of_the_dtype_of_its_list(policy, name):
    call = CALLS[policy][name]
    for given in (BF16, FP32):
        wanted = {"lower precision": BF16, "as given": given}.get(policy, FP32)
        expected = call(X.to(given).to(wanted))
        for dry in (False, True):
            with virtual_gpus(1, dry=dry):
                x = X.to("vgpu:0", given)
                with torch.autocast("vgpu", dtype=BF16):
                    got = call(x)
                assert got.dtype is wanted and got.device == torch.device("vgpu:0")
                if not dry:
                    tolerance = 1e-6 if policy == "float32 result" else 0  # sums take another order
                    torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance)
                assert call(x).dtype is given


def test_mixed_dtypes_are_promoted_and_an_explicit_dtype_and_float64_are_respected():
    with virtual_gpus(1), torch.autocast("vgpu", dtype=BF16):
        x, low = X.to("vgpu:0"), X.to("vgpu:0", BF16)
        assert torch.dot(x[0], low[0]).dtype is FP32 and torch.dot(low[0], low[0]).dtype is BF16
        assert torch.atan2(low, x).dtype is FP32
        assert F.softmax(low, 1, dtype=torch.float64).dtype is torch.float64
        assert (x.double() @ x.double().mT).dtype is torch.float64
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x.sigmoid(), x.sigmoid())
        assert (torch.arange(6, device="vgpu:0") * 2).dtype is torch.int64


def test_a_region_is_of_its_kind_of_device():
    with virtual_gpus(1):
        x, here = X.to("vgpu:0"), X.clone()
        with torch.autocast("cpu", dtype=BF16):
            assert (x @ x.mT).dtype is FP32 and (here @ here.mT).dtype is BF16
        with torch.autocast("vgpu"):
            assert (x @ x.mT).dtype is FP16 and (here @ here.mT).dtype is FP32
            assert torch.get_autocast_dtype("vgpu") is FP16 and torch.is_autocast_enabled("vgpu")
            with torch.autocast("vgpu", enabled=False):
                assert (x @ x.mT).dtype is FP32 and not torch.is_autocast_enabled("vgpu")
            with torch.autocast("cuda", dtype=BF16):
                assert (x @ x.mT).dtype is BF16
            assert (x @ x.mT).dtype is FP16
        assert (x @ x.mT).dtype is FP32


def test_outside_of_a_box_autocast_and_the_scaler_are_torch_own():
    with torch.autocast("cpu"):
        assert (X @ X.mT).dtype is BF16
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            assert not torch.amp.GradScaler("cuda").is_enabled()
        with pytest.warns(UserWarning, match="CUDA is not available"), torch.autocast("cuda"):
            assert (X @ X.mT).dtype is FP32


def test_decorators_work_also_those_that_were_made_outside():
    product = torch.autocast("vgpu", dtype=BF16)(lambda x: x @ x.mT)
    with virtual_gpus(1):
        assert product(X.to("vgpu:0")).dtype is BF16
        assert torch.autocast("cuda")(lambda x: x @ x.mT)(X.to("vgpu:0")).dtype is FP16


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch switches autocast for CUDA off where there is none")
def test_autocast_for_cuda_that_torch_switched_off_outside_stays_off_in_a_box():
    with pytest.warns(UserWarning, match="Disabling autocast"):
        product = torch.autocast("cuda", dtype=BF16)(lambda x: x @ x.mT)
    with virtual_gpus(1):
        assert product(X.to("vgpu:0")).dtype is FP32


class Product(torch.autograd.Function):
    seen: list[torch.dtype] = []

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        of_a = gradient @ b.mT
        Product.seen.append(of_a.dtype)
        return of_a, a.mT @ gradient


class InFloat32(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="vgpu", cast_inputs=FP32)
    def forward(ctx, a):
        return a @ a.mT

    @staticmethod
    @torch.amp.custom_bwd(device_type="vgpu")
    def backward(ctx, gradient):
        return gradient


def test_functions_of_ones_own_run_as_their_decorators_say():
    with virtual_gpus(1):
        a = X.to("vgpu:0").requires_grad_()
        with torch.autocast("vgpu", dtype=BF16):
            out = Product.apply(a, a.detach().mT)
            assert InFloat32.apply(a.detach().to(BF16)).dtype is FP32
        Product.seen.clear()
        out.sum().backward()
        assert out.dtype is BF16 and Product.seen == [BF16] and a.grad.dtype is FP32
