"""torch is as it was: importing mpcourse replaces nothing of it, and what a box replaces is put back."""

import contextlib
import io
import json
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.gpus import torch_patches
from tests.conftest import ROOT

# What stays: the module `torch.vgpu`; what torch changes when a backend gets its name; registrations of libraries, and
# the operations that were looked up for them.
EXEMPT = re.compile(
    r"torch\.vgpu"
    r"|torch\.utils\.backend_registration\._privateuse1_backend_name"
    r"|torch\._C\.(_autograd\.DeviceType|_profiler\.ProfilerActivity)\.(VGPU|name|__repr__|__str__)"
    r"|torch\.accelerator\.current_accelerator"  # to torch, a backend with a name is this machine's accelerator
    r"|torch\.library\._impls\[.*\]|torch\.ops\.aten\..*|torch\.jit\._builtins\._builtin_table\[.*\]"
)

# Where torch itself notes that a mode is on, and that compiled functions run operation by operation.
OF_MODES = re.compile(r"torch\.utils\._python_dispatch\._is_in_.*|torch\._dynamo\.eval_frame\._stance")

pytestmark = pytest.mark.timeout(300)  # two processes import most of torch


@pytest.fixture(scope="module")
def found():
    """When -> what of torch is other than before mpcourse was imported."""
    program = [sys.executable, "-W", "ignore", str(ROOT / "tests/programs/torch_as_it_was.py")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {when: [where for where in differs if not EXEMPT.fullmatch(where)] for when, differs in found.items()}


@pytest.mark.parametrize(
    "when", ["import", *map("after a {}".format, ("box", "box for cuda", "dry box", "box that was entered again"))]
)
def test_torch_is_as_it_was_after(found, when):
    assert found[when] == []


def test_a_box_replaces_what_its_table_names_and_nothing_else(found):
    seen = [re.search(r"\w+(?='?\]?$)", where)[0] for where in found["in a box"] if not OF_MODES.fullmatch(where)]
    assert sorted(seen) == sorted(name for _, name, _ in torch_patches.TABLE)
    assert "torch.cuda.is_available" in found["in a box for cuda"]


def current():
    """Return what the table's attributes and entries are now."""
    found = []
    for owner, name, _ in torch_patches.TABLE:
        values = owner if isinstance(owner, dict) else vars(owner)
        found.append(values.get(name))
    return found


def test_a_box_that_could_not_be_entered_has_replaced_nothing(monkeypatch):
    before, box = current(), virtual_gpus(1)
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(box, "_entered", lambda box: 1 / 0)
        box.__enter__()
    assert all(a is b for a, b in zip(current(), before, strict=True))
    with box:
        assert torch.ones(1, device="vgpu:0").tolist() == [1]


def test_a_box_is_refused_while_another_thread_is_entering_one(monkeypatch):
    before, slow, opening, left = current(), virtual_gpus(1), threading.Event(), threading.Event()

    @contextlib.contextmanager
    def opened_slowly(box):
        with torch_patches.opened(box):
            opening.set()
            time.sleep(0.3)
            yield

    monkeypatch.setattr(slow, "_opened", opened_slowly)

    def enter():
        with slow:
            left.wait(30)

    with ThreadPoolExecutor(1) as pool:
        entered = pool.submit(enter)
        assert opening.wait(30)
        with pytest.raises(RuntimeError, match="a box inside a box"), virtual_gpus(1):
            pass
        left.set()
        entered.result()
    assert all(a is b for a, b in zip(current(), before, strict=True))


def test_the_table_is_in_force_until_the_last_thread_has_left():
    before, box = current(), virtual_gpus(1, as_cuda=True)
    here, leave = threading.Event(), threading.Event()

    def stay():
        with box.here():
            here.set()
            assert leave.wait(30)

    def replaced():
        return [a is not b for a, b in zip(current(), before, strict=True)]

    with ThreadPoolExecutor(1) as pool:
        for enter in (contextlib.nullcontext(), box):
            with enter:
                staying = pool.submit(stay)
                assert here.wait(30) and all(replaced())
            assert all(replaced())
            leave.set()
            staying.result()
            assert not any(replaced())
            here.clear()
            leave.clear()


def test_what_answers_to_cuda_is_not_in_the_table():
    def places(patches):
        return {(id(owner), name) for owner, name, _ in patches}

    with virtual_gpus(1, as_cuda=True) as box:
        assert not places(torch_patches.TABLE) & places(torch_patches.cuda_patches(box))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 + b * 3


def what_torch_does():
    """Results of functions that a box replaces, on tensors of the CPU."""
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    torch.utils.checkpoint.checkpoint(lambda x: Twice.apply(x)[0].sin(), x, use_reentrant=False).sum().backward()
    with torch.autograd.graph.save_on_cpu(), torch.autocast("cuda"):
        product = x @ x.mT
    optimizer = torch.optim.SGD([x], lr=0.5)
    scaler = torch.amp.GradScaler("cuda")
    scaler.step(optimizer)
    torch.nn.utils.clip_grad_norm_([x], 0.1)
    layer = torch.nn.TransformerEncoderLayer(4, 2, batch_first=True).eval()
    with torch.no_grad():
        for p in layer.parameters():
            p.fill_(0.5)
        encoded = layer(torch.ones(1, 2, 4))
    loaded = [list(batch) for batch in torch.utils.data.DataLoader(torch.arange(4), 2, pin_memory=True)]
    storage = torch.ones(3).untyped_storage()
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    kinds = torch.Generator, torch.Generator(), torch.vmap(torch.sin)(x), torch.nested.nested_tensor([x[0], x[1]])
    return (
        *(x.tolist(), x.grad.tolist(), product.tolist(), product.dtype, encoded.tolist(), torch.load(file).tolist()),
        *(scaler.is_enabled(), scaler.get_scale(), loaded, storage.resize_(8).nbytes(), storage.device),
        *(torch.compile(torch.sin, backend="eager")(x).tolist(), torch.accelerator.is_available()),
        *(isinstance(kinds[1], kinds[0]), kinds[2].tolist(), kinds[3].is_nested, torch.accelerator.device_count()),
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach())).tolist(),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"as_cuda": True}, {"dry": True}])
def test_in_a_thread_without_the_box_torch_does_what_it_does_without_a_box(options):
    expected = what_torch_does()
    with virtual_gpus(2, **options), ThreadPoolExecutor(1) as pool:
        found = pool.submit(what_torch_does).result()
    assert found == expected


@pytest.mark.filterwarnings("ignore")
def test_on_tensors_of_the_cpu_torch_computes_in_a_box_what_it_does_without_one():
    def values():
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        a, b = Twice.apply(x)
        with torch.autograd.graph.save_on_cpu():
            (a.sin() * b).sum().backward()
        optimizer = torch.optim.SGD([x], lr=0.5)
        torch.nn.utils.clip_grad_norm_([x], 0.1)
        optimizer.step()
        storage = torch.ones(3).untyped_storage()
        return x.tolist(), x.grad.tolist(), storage.resize_(8).nbytes(), storage.device, torch.Generator().device

    expected = values()
    with virtual_gpus(1):
        assert values() == expected
