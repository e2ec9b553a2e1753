"""What autocast holds on virtual GPUs: bytes by dtype, casts, and the cache of cast weights."""

import copy
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from mpcourse.models import ResNet50
from mpcourse.virtual import virtual_gpus
from tests.virtual.test_mixed_precision import BF16, FP32, ViT, X, bytes_of, cnn, operations, train


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
