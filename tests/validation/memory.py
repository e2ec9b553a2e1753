"""The memory that a training step of public models needs by virtual GPUs, beside an independent count or a real GPU."""

import itertools
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils.checkpoint import checkpoint

from mpcourse.common.errors import UserError
from mpcourse.course.bench.record import Record
from mpcourse.virtual import GPU, virtual_gpus
from tests.validation.memory_models import MODELS, Model, load_torchvision
from tests.validation.memory_tracker import tracking
from tests.validation.truth import data_sheet, existing, free_all, off_by

PROMISE = 2.0  # percent by which a peak may be off
ON_A_GPU = ("train", "autocast")
KINDS = ("train", "evaluate", "checkpoints", "bf16", "autocast", "accumulate")
DTYPES = {"bf16": torch.bfloat16}


def memory(runs: int = 1, device: str | None = None) -> Iterator[Record]:
    """Compare the peaks of 48 models in percent, for six kinds of run. Bytes are exact, so one run is enough.

    device: a real GPU to compare with, for two kinds of run, instead of the independent count.
    Raises UserError where the libraries of the models are not installed, and for a device that is not there.
    """
    try:
        load_torchvision()
        import diffusers  # noqa: F401
        import timm  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise UserError("the models are those of four libraries: pip install -c constraints.txt '.[models]'") from None
    if device is not None:
        yield from beside(existing(device))
        return
    for model, kind in itertools.product(MODELS, KINDS):
        yield compared(model, kind, *both(model, kind))


def compared(model: Model, kind: str, ours: int, theirs: int) -> Record:
    return Record(f"{model.head}, {kind}: {theirs / 2**20:.1f} MiB, off by", [off_by(ours, theirs)], "%", PROMISE)


def beside(device: torch.device) -> Iterator[Record]:
    """Compare with `device`. An error of a model is a row.

    Another process measures, because here autograd does not work on a real GPU after the first virtual one. After an
    error there is a new process: with some errors, the old one can no longer use the GPU.
    """
    name = torch.get_device_module(device).get_device_name(device)
    gpu, _ = data_sheet(name, total=2**50)  # a prediction may need more than the GPU has
    worker = None
    for model, kind in itertools.product(MODELS, ON_A_GPU):
        worker = worker or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            theirs = worker.submit(measured, model, kind, device).result()
        except Exception as error:
            says = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            fits = not isinstance(error, torch.OutOfMemoryError)
            yield Record(f"{model.head}, {kind}: {says}", [1], "errors", 0 if fits else None)
            worker.shutdown()
            worker = None
        else:
            yield compared(model, kind, predicted(model, kind, gpu)[0], theirs)
    if worker is not None:
        worker.shutdown()


def measured(model: Model, kind: str, device: torch.device) -> int:
    """Return the peak in bytes on a real GPU."""
    free_all(device)
    net = made(model, kind, device)
    with torch.no_grad():
        for t in (*net.parameters(), *net.buffers()):
            t.zero_()  # an undefined number may be the index of no row
    module = torch.get_device_module(device)
    module.reset_peak_memory_stats(device)
    run(model, kind, net, device)
    return module.max_memory_allocated(device)


def predicted(model: Model, kind: str, gpu: str | GPU) -> tuple[int, int]:
    """Return the peak of a virtual GPU's ledger, and what cuBLAS's workspaces are of it, in bytes."""
    with virtual_gpus(1, gpu, dry=True, record=False) as box:
        net = made(model, kind, box.devices[0])
        box.reset()
        run(model, kind, net, box.devices[0])
        return box.ledger.most[0], sum(block.allocation.nbytes for block in box.workspaces.values())


def both(model: Model, kind: str) -> tuple[int, int]:
    """Return peaks in bytes: of a virtual GPU's ledger without cuBLAS's workspaces, and of the independent count."""
    peak, workspaces = predicted(model, kind, "B200-SXM")
    cpu = torch.device("cpu")
    with tracking() as tracker:
        net = made(model, kind, cpu)
        tracker.most = tracker.held
        run(model, kind, net, cpu)
    return peak - workspaces, tracker.most


def made(model: Model, kind: str, device: torch.device) -> nn.Module:
    """Make the model on `device`, with undefined weights."""
    torch.set_default_dtype(DTYPES.get(kind, torch.float32))
    try:
        with unset_fake_temporarily(), torch.device("meta"):
            net = model.make()
    finally:
        torch.set_default_dtype(torch.float32)
    moved: dict[int, torch.Tensor] = {}  # what is shared stays so
    for module in net.modules():
        slots: dict[str, torch.Tensor | None]
        for slots in (module._parameters, module._buffers):
            for name, t in slots.items():
                if t is not None and id(t) not in moved:
                    empty = torch.empty(t.shape, dtype=t.dtype, device=device)
                    moved[id(t)] = nn.Parameter(empty, t.requires_grad) if isinstance(t, nn.Parameter) else empty
                if t is not None:
                    slots[name] = moved[id(t)]
    if kind == "checkpoints":
        _checkpoint_blocks(net)
    return net.train(kind != "evaluate")


def _checkpoint_blocks(net: nn.Module) -> None:
    """Checkpoint the network: by its own means, or where it has none, each block of its outermost lists."""
    if hasattr(net, "gradient_checkpointing_enable") and getattr(net, "supports_gradient_checkpointing", True):
        net.gradient_checkpointing_enable({"use_reentrant": False})
        return
    lists = [name for name, module in net.named_modules() if isinstance(module, nn.ModuleList | nn.Sequential) and name]
    for name in lists:
        if not any(name.startswith(f"{other}.") for other in lists):
            for block in net.get_submodule(name).children():
                if next(block.children(), None) is None:
                    continue  # a single layer, whose result the next one may change in place
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def run(model: Model, kind: str, net: nn.Module, device: torch.device) -> None:
    """Run two steps of AdamW (the first makes its state), or two evaluations."""
    size, parts = model.shape[0], 2 if kind == "accumulate" else 1

    def logits() -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=kind == "autocast"):
            return model.output(net, model.batch(device, DTYPES.get(kind, torch.float32), size // parts))

    if kind == "evaluate":
        with torch.no_grad():
            for _ in range(2):
                logits()
        return
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=True)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(parts):
            logits().float().square().mean().backward()
        optimizer.step()
