"""Autocast and GradScaler on virtual GPUs: CUDA's lists, the CPU's values, bytes by dtype, with data and without."""

import copy
import io
import re
import warnings
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from mpcourse.models import ResNet50, mlp
from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.autocast import POLICIES

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
    """The peak without what cuBLAS takes."""
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


@pytest.mark.parametrize("kind", ["vgpu", "cuda"])
@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("name", MODELS)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        product = torch.autocast("cuda", dtype=BF16)(lambda x: x @ x.mT)
    with virtual_gpus(1):
        assert product(X.to("vgpu:0")).dtype is BF16
        assert torch.autocast("vgpu")(lambda x: x @ x.mT)(X.to("vgpu:0")).dtype is FP16


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


# -- bytes, and the cache --


def test_activations_weigh_two_bytes_and_the_cast_weight_is_counted():
    for dry in (False, True):
        with virtual_gpus(1, dry=dry) as box:
            layer, x = nn.Linear(30, 40).to("vgpu:0"), torch.randn(50, 30).to("vgpu:0").requires_grad_()
            with torch.autocast("vgpu", dtype=BF16):
                y = layer(x)
                inside = box.ledger.kinds(0)["activations"]
            # The result; x and the weight in bfloat16, which backward needs; the bias, which the cache alone holds.
            assert inside == 2 * (50 * 40 + 50 * 30 + 40 * 30 + 40)
            assert box.ledger.kinds(0)["activations"] == inside - 2 * 40
            y.sum().backward()
            assert layer.weight.grad.dtype is FP32
            assert x.grad.dtype is FP32 and box.ledger.kinds(0)["gradients"] == 4 * (40 * 30 + 40 + 50 * 30)
            assert box.ledger.kinds(0)["activations"] == 2 * 50 * 40


def casts(box, program, **options):
    """How many operations `program` casts in."""
    box.reset()
    with torch.autocast("vgpu", dtype=BF16, **options):
        program()
    return operations(box).count("_to_copy")


def test_a_weight_is_cast_once_in_a_region():
    with virtual_gpus(1) as box:
        w, x = nn.Parameter(torch.randn(6, 6)).to("vgpu:0"), X.to("vgpu:0", BF16)
        w = nn.Parameter(w.detach())

        def twice():
            return (x @ w) @ w

        def nested():
            with torch.autocast("vgpu", dtype=BF16):
                x @ w
            with torch.autocast("vgpu", enabled=False):
                pass
            x @ w

        def without_gradients_first():
            with torch.no_grad():
                x @ w
            (x @ w).backward(x)

        assert casts(box, twice) == 1 and casts(box, nested) == 1
        assert casts(box, lambda: (twice(), twice())) == 1
        assert casts(box, twice, cache_enabled=False) == 2
        assert casts(box, lambda: (x @ w.t()) @ w.t()) == 2  # a view is no leaf
        assert casts(box, lambda: (x @ w.detach()) @ w.detach()) == 2
        box.reset()
        before = box.ledger.used[0]
        assert casts(box, without_gradients_first) == 2 and w.grad is not None  # the weight, and its gradient
        with torch.inference_mode():
            assert casts(box, twice) == 2
        del w.grad
        assert box.ledger.used[0] - before <= 2 * box.gpus[0].workspace  # the cache is empty


def test_casts_are_those_of_autocast_on_the_cpu():
    class Names(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(func._overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    model = cnn()
    with Names() as plain:
        train(model, "cpu", "cpu", steps=2)
    with virtual_gpus(1) as box:
        train(model, "vgpu", "vgpu:0", steps=2)
    assert operations(box).count("_to_copy") == plain.names.count("_to_copy") > 20


class Tracker(TorchDispatchMode):
    """Bytes of all storages alive in a plain run on the CPU, and the most that there were."""

    def __init__(self, *known):
        super().__init__()
        self.alive, self.now, self.peak = set(), 0, 0
        for t in known:
            self.see(t)

    def see(self, t):
        storage = t.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        if key not in self.alive:
            self.alive.add(key)
            self.now += nbytes
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.gone, key, nbytes)

    def gone(self, key, nbytes):
        self.alive.remove(key)
        self.now -= nbytes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor):
                self.see(t)
        return out


def forward(model, x, y, kind):
    with torch.autocast(kind, dtype=BF16):
        return F.cross_entropy(model(x).float(), y)


MODELS_OF_SIZE = {"resnet": (ResNet50, (4, 3, 64, 64)), "vit": (lambda: ViT(64, 4, 4, 32), (16, 3, 32, 32))}


@pytest.mark.parametrize("name", MODELS_OF_SIZE)
def test_peaks_are_those_of_an_independent_tracker_and_of_what_autograd_saves(name):
    make, shape = MODELS_OF_SIZE[name]
    model, x, y = make(), torch.randn(shape), torch.randint(10, shape[:1])
    saved = {}

    def pack(t):
        saved[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t

    def step(model, x, y, kind):
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, foreach=False)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = forward(model, x, y, kind)
        held = box.ledger.used[0] if kind == "vgpu" else 0
        loss.backward()
        optimizer.step()
        return held

    with virtual_gpus(1, dry=True) as box:
        held = step(copy.deepcopy(model).to("vgpu:0"), x.to("vgpu:0"), y.to("vgpu:0"), "vgpu")
    saved.clear()
    known = [x, y, *model.parameters(), *model.buffers()]
    with Tracker(*known) as plain:
        step(model, x, y, "cpu")
    assert bytes_of(box) == pytest.approx(plain.peak, rel=0.001)
    kept = saved | {t.untyped_storage()._cdata: t.nbytes for t in known}
    assert held - box.gpus[0].workspace == pytest.approx(sum(kept.values()), rel=0.001)


def test_a_checkpoint_repeats_forward_in_the_dtype_it_had():
    with virtual_gpus(1) as box:
        layer, x = nn.Linear(6, 6).to("vgpu:0"), X.to("vgpu:0").requires_grad_()
        with torch.autocast("vgpu", dtype=BF16):
            y = checkpoint(layer, x, use_reentrant=False)
        y.sum().backward()
        repeated = [e for e in box.events if e.phase == "recompute" and e.kind == "compute"]
        assert y.dtype is BF16 and [e.name for e in repeated].count("_to_copy") == 3 and x.grad.dtype is FP32


def test_two_devices_each_cast_their_own():
    with virtual_gpus(2) as box:
        a, b = nn.Linear(6, 6).to("vgpu:0"), nn.Linear(6, 6).to("vgpu:1")
        with torch.autocast("vgpu", dtype=BF16):
            y = b(a(X.to("vgpu:0")).to("vgpu:1"))
        y.sum().backward()
        copied = [e.nbytes for e in box.copies if e.lane in ("vgpu:0 -> vgpu:1", "vgpu:1 -> vgpu:0")]
        assert copied == [2 * 4 * 6] * 2 and a.weight.grad.dtype is FP32


# -- GradScaler --


def scaled_step(scaler, model, optimizer, factor=1.0):
    x = torch.ones(3, 6).to("vgpu:0")
    optimizer.zero_grad()
    with torch.autocast("vgpu", dtype=FP16):
        loss = model(x).float().mean() * factor
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def test_gradients_that_overflow_in_half_precision_skip_the_step():
    with virtual_gpus(1):
        model = nn.Linear(6, 2).to("vgpu:0")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("vgpu", init_scale=2.0**10, growth_interval=3)
        before = model.weight.detach().clone()
        scaled_step(scaler, model, optimizer, 1e3)  # 1e3 * 1024 / 6 is beyond 65504
        assert model.weight.grad.isinf().any() and torch.equal(model.weight, before)
        assert scaler.get_scale() == 512 and scaler.state_dict()["_growth_tracker"] == 0
        for _ in range(3):
            scaled_step(scaler, model, optimizer)
        assert not torch.equal(model.weight, before) and scaler.get_scale() == 1024
        assert torch.allclose(model.weight.grad, torch.full((2, 6), 0.5, device="vgpu:0"))  # unscaled again


def test_the_scaler_is_kept_and_loaded_and_clips_what_is_unscaled():
    for dry in (False, True):
        with virtual_gpus(1, dry=dry):
            model = nn.Linear(6, 2).to("vgpu:0")
            optimizer = torch.optim.AdamW(model.parameters(), fused=False)
            scaler = torch.amp.GradScaler("cuda", init_scale=64.0, growth_interval=2)
            assert scaler.is_enabled() and scaler.get_scale() == 64
            for _ in range(3):
                scaled_step(scaler, model, optimizer)
            assert scaler.get_scale() == 128 and scaler.state_dict()["_growth_tracker"] == 1
            other = torch.amp.GradScaler("vgpu")
            other.load_state_dict(scaler.state_dict())
            with torch.autocast("vgpu"):
                loss = model(X.to("vgpu:0")).mean()
            other.scale(loss).backward()
            other.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            other.step(optimizer)
            other.update()
            assert other.get_scale() == 256
            buffer = io.BytesIO()
            torch.save(other.state_dict(), buffer)


def test_the_step_waits_for_the_check_for_infinities():
    for dry in (False, True):
        with virtual_gpus(1, dry=dry) as box:
            model = nn.Linear(6, 2).to("vgpu:0")
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            scaled_step(torch.amp.GradScaler("vgpu"), model, optimizer)
            waits = [e.name for e in box.events if e.kind == "wait"]
            assert waits[-1] == "_local_scalar_dense"
            with pytest.raises(RuntimeError, match="holds no data") if dry else torch.no_grad():
                X.to("vgpu:0").sum().item()
