"""Predictions held against what is known: a published memory table, and a real GPU where there is one."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn as nn

from mpcourse.common.errors import UserError
from mpcourse.course.bench.record import Record
from mpcourse.data.published import TWO_P100
from mpcourse.models import ResNet50, UNet3D, conv_net, mlp
from mpcourse.predict import OPTIMIZERS, predict, train_step
from mpcourse.predict.loss import UsualLoss
from mpcourse.virtual import GPU, GPUS

MiB = 2**20
PROMISE = 5.0  # percent by which predicted memory may be off
ENOUGH = 8  # pairs
WARM_UP = 3


@dataclass(frozen=True)
class Pair:
    """A model and a batch. tokens: size of the vocabulary, if the batch holds tokens."""

    name: str
    make: Callable[[], nn.Module]
    batch: tuple[int, ...]
    optimizer: str = "momentum"
    tokens: int | None = None


class Language(nn.Module):
    """(batch, length) of tokens -> (batch, length, tokens): an encoder of the usual blocks."""

    def __init__(self, tokens: int = 8192, width: int = 512, blocks: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        block = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, blocks, enable_nested_tensor=False)
        self.head = nn.Linear(width, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(x)))


PAIRS = (
    Pair("MLP 784-1000-1000-10, batch 100", mlp, (100, 784), "adam"),
    Pair("MLP 784-1000-1000-10, batch 16384", mlp, (16384, 784), "adam"),
    Pair("MLP of 4 x 4096, batch 4096", lambda: mlp([4096] * 5), (4096, 4096)),
    Pair("conv net, 28x28, batch 4096", conv_net, (4096, 1, 28, 28), "adam"),
    Pair("ResNet-50, 224x224, batch 16", ResNet50, (16, 3, 224, 224)),
    Pair("ResNet-50, 224x224, batch 64", ResNet50, (64, 3, 224, 224)),
    Pair("ResNet-50, 1024x1024, batch 4", ResNet50, (4, 3, 1024, 1024), "sgd"),
    Pair("3-D U-Net, 64x64x64, batch 2", UNet3D, (2, 1, 64, 64, 64), "adam"),
    Pair("transformer, 256 tokens, batch 8", Language, (8, 256), "adamw", 8192),
    Pair("transformer, 1024 tokens, batch 4", Language, (4, 1024), "adamw", 8192),
)


def truth(runs: int = 5, device: str | None = None) -> Iterator[Record]:
    """Predict the published table row by row; with a device, first measure and predict memory and time of PAIRS.

    Raises UserError for a device that is not there, or on which fewer than 8 pairs fit.
    """
    if device is not None:
        yield from compared(PAIRS, existing(device), runs)
    yield from _table()


def _table() -> Iterator[Record]:
    prediction = predict(ResNet50, [10, 3, 1024, 1024], "Tesla P100-SXM2", 2, cut=["layer2"], optimizer="sgd")
    for i, (d, published) in enumerate(zip(prediction.devices, TWO_P100.MiB, strict=True)):
        workspaces = d.peak.get("workspaces", 0)
        rows = {
            "tensors at the peak": d.allocated - workspaces,
            "cuBLAS's workspaces": workspaces,
            "kept by the allocator besides": d.reserved - d.allocated,
            "CUDA context (assumed)": d.context,
            "predicted, in all": d.total,
            "published": published * MiB,
            "not explained": published * MiB - d.total,
        }
        for name, nbytes in rows.items():
            yield Record(f"two P100, GPU {i}: {name}", [nbytes / MiB], "MiB")


def compared(pairs: Sequence[Pair], device: torch.device, runs: int) -> Iterator[Record]:
    """Measure and predict on `device` the peak memory and the seconds of a step of each pair.

    All is measured before anything is predicted: after the first virtual GPU, autograd does not work on a real one.
    """
    module = torch.get_device_module(device)
    found: list[tuple[Pair, tuple[int, int, list[float]]]] = []
    for pair in pairs:
        with contextlib.suppress(torch.OutOfMemoryError):
            found.append((pair, measured(pair, device, runs)))
    free, total = module.mem_get_info(device)  # by now all libraries that a step needs are loaded
    taken = total - free - module.memory_reserved(device)
    name = module.get_device_name(device)
    if len(found) < ENOUGH:
        raise UserError(f"{len(found)} of {len(pairs)} models fit into what is free on {name}: {ENOUGH} are needed")
    spec, known = data_sheet(name, total)
    rooflines: list[tuple[float, float, int, float]] = []
    for pair, (peak, reserved, seconds) in found:
        prediction = predict(pair.make, pair.batch, spec, optimizer=pair.optimizer, tokens=pair.tokens)
        (predicted,) = prediction.devices
        yield Record(f"{pair.name}: peak memory measured", [peak / MiB], "MiB")
        yield Record(f"{pair.name}: peak memory predicted", [predicted.allocated / MiB], "MiB")
        yield Record(f"{pair.name}: peak memory off", [off_by(predicted.allocated, peak)], "%", PROMISE)
        yield Record(f"{pair.name}: reserved memory off", [off_by(predicted.reserved, reserved)], "%")
        record = Record(f"{pair.name}: step measured", [s * 1e3 for s in seconds], "ms")
        yield record
        if known and prediction.seconds is not None:
            yield Record(f"{pair.name}: step predicted", [prediction.seconds * 1e3], "ms")
            rooflines.append((predicted.flops, predicted.traffic, predicted.operations, record.median / 1e3))
    yield Record(f"{name}: CUDA context, and what other programs hold", [taken / MiB], "MiB")
    yield Record(f"{name}: CUDA context assumed", [spec.context / MiB], "MiB")
    if known:
        yield from _fitted(spec, rooflines)


def _fitted(spec: GPU, rooflines: list[tuple[float, float, int, float]]) -> Iterator[Record]:
    """Yield the efficiencies that explain the measured times best, to replace the data sheet's."""
    try:
        fitted = spec.fitted(rooflines)
    except UserError:  # the runs do not tell them apart
        return
    yield Record(f"{spec.name}: part of the peak FLOP/s reached, fitted", [fitted.product_efficiency], "")
    yield Record(f"{spec.name}: part of the bandwidth reached, fitted", [fitted.memory_efficiency], "")
    yield Record(f"{spec.name}: an operation, fitted", [fitted.kernel * 1e6], "us")


def measured(pair: Pair, device: torch.device, runs: int) -> tuple[int, int, list[float]]:
    """Measure a step on `device`: peaks of allocated and of reserved bytes, and the seconds of each run."""
    module = torch.get_device_module(device)
    free_all(device)
    torch.manual_seed(0)
    x = torch.randn(*pair.batch) if pair.tokens is None else torch.randint(pair.tokens, pair.batch)
    model = pair.make().to(device)
    optimizer = OPTIMIZERS[pair.optimizer][0](model.parameters())
    seconds: list[float] = []
    for i in range(WARM_UP + runs):
        if i == WARM_UP:
            module.reset_peak_memory_stats(device)
        start = time.perf_counter()
        train_step(model, x, optimizer, device, loss=UsualLoss(pair.tokens is not None))
        module.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return module.max_memory_allocated(device), module.max_memory_reserved(device), seconds[WARM_UP:]


def free_all(device: torch.device) -> None:
    """Free what the model before has left on `device`."""
    if device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
    gc.collect()
    torch.get_device_module(device).empty_cache()


def off_by(predicted: float, actual: float) -> float:
    return 100 * abs(predicted / actual - 1)


def existing(name: str) -> torch.device:
    """Return the real GPU of that name. Raises UserError where there is none."""
    try:
        device = torch.device(name)
        module: Any = torch.get_device_module(device)
    except RuntimeError as error:
        raise UserError(f"--device {name}: {str(error).splitlines()[0]}") from None
    count = module.device_count() if hasattr(module, "mem_get_info") else 0
    if (device.index or 0) >= count:
        there = f"{count} of that kind" if count else "none of that kind"
        raise UserError(f"--device {name}: there is no such GPU here ({there}; torch {torch.__version__})")
    return torch.device(device.type, device.index or 0)


def data_sheet(name: str, total: int) -> tuple[GPU, bool]:
    """Return the table's GPU that a driver calls `name`, with the memory that it has, and whether there is one."""
    words = set(name.replace("-", " ").split())
    known = [g for g in GPUS.values() if set(g.name.split("-")[0].split()) <= words]

    def alike(gpu: GPU) -> tuple[int, int]:
        own = set(gpu.name.replace("-", " ").split())
        return len(own & words), -len(own - words)

    # The driver writes PCIe, but not SXM, into an H100's name: of two that are as much alike, the one with SXM.
    spec = max(known, key=lambda g: (*alike(g), "SXM" in g.name), default=GPUS["A100-SXM4"])
    return replace(spec, name=name, memory=total), bool(known)
