"""The memory that virtual GPUs say a training step needs, beside an independent count, for models of others."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils.checkpoint import checkpoint

from mpcourse.common.errors import UserError
from mpcourse.course.bench.record import Record
from mpcourse.virtual import virtual_gpus
from tests.validation.memory_models import MODELS, Model, load_torchvision
from tests.validation.memory_tracker import tracking

PROMISE = 2.0  # percent by which a peak may be off
KINDS = ("train", "evaluate", "checkpoints", "bf16", "autocast", "accumulate")
DTYPES = {"bf16": torch.bfloat16}


def memory(runs: int = 1) -> Iterator[Record]:
    """Compare the peaks of 48 models in percent, for six kinds of run. Bytes are exact, so one run is enough.

    Raises UserError where the libraries of the models are not installed.
    """
    try:
        load_torchvision()
        import diffusers  # noqa: F401
        import timm  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise UserError("the models are those of four libraries: pip install -c constraints.txt '.[models]'") from None
    for model in MODELS:
        for kind in KINDS:
            ours, theirs = both(model, kind)
            yield Record(
                f"{model.head}, {kind}: {theirs / 2**20:.1f} MiB, off by", [100 * abs(ours / theirs - 1)], "%", PROMISE
            )


def both(model: Model, kind: str) -> tuple[int, int]:
    """Return peaks in bytes: of a virtual GPU's ledger without cuBLAS's workspaces, and of the independent count."""
    with virtual_gpus(1, "B200-SXM", dry=True, record=False) as box:
        net = made(model, kind, box.devices[0])
        box.reset()
        run(model, kind, net, box.devices[0])
        ours = box.ledger.most[0] - sum(block.allocation.nbytes for block in box.workspaces.values())
    cpu = torch.device("cpu")
    with tracking() as tracker:
        net = made(model, kind, cpu)
        tracker.most = tracker.held
        run(model, kind, net, cpu)
    return ours, tracker.most


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
