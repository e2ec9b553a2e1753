"""What virtual GPUs cost this machine: a step in the box against the plain one, and a dry step of a large model."""

import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse.course.bench.record import Record
from mpcourse.models import mlp
from mpcourse.split import ModelParallelResNet50
from mpcourse.virtual import virtual_gpus

STEPS = 20
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "Adam": torch.optim.Adam,
}


def virtual(runs: int = 5) -> Iterator[Record]:
    """Time a step of the 784-1000-1000-10 MLP at batch 100, in a box and out of it, and a dry step of ResNet-50."""
    for name, make in OPTIMIZERS.items():
        plain, boxed, _ = zip(*(_both(make, STEPS) for _ in range(runs)), strict=True)
        what = f"MLP, {name}"
        yield Record(f"{what}: plain step", [s * 1e3 for s in plain], "ms")
        yield Record(f"{what}: step in a box", [s * 1e3 for s in boxed], "ms")
        ratios = [b / p for p, b in zip(plain, boxed, strict=True)]
        yield Record(f"{what}: box / plain", ratios, "times", promise=1.5)
        yield Record(f"{what}: parameters of other bits", [_differing(make) for _ in range(runs)], "of 6", promise=0)
    yield Record("ResNet-50, 10x3x1024x1024, cut: dry step", _dry(runs), promise=1.0)


def _differing(make: Callable[..., torch.optim.Optimizer]) -> int:
    """Count the parameters that differ after some steps, with one thread.

    On a busy machine MKL takes now one thread and now two, and twice the same plain steps give different bits.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _both(make, 5)[2]
    finally:
        torch.set_num_threads(threads)


def _both(make: Callable[..., torch.optim.Optimizer], steps: int) -> tuple[float, float, int]:
    """Return median seconds of a plain step and of one in a box, in turns, and how many parameters then differ."""
    model, box = mlp(), virtual_gpus(1)
    optimizer = make(model.parameters())
    with box:
        twin = mlp()
        twin.load_state_dict(model.state_dict())
        twin.to("vgpu:0")
        other = make(twin.parameters())
    seconds: tuple[list[float], list[float]] = [], []
    for i in range(steps + 2):
        x, y = torch.randn(100, 784), torch.randint(10, (100,))
        plain = _timed(model, optimizer, x, y, "cpu")
        with box:
            boxed = _timed(twin, other, x, y, "vgpu:0")
        if i >= 2:  # the first steps allocate
            seconds[0].append(plain)
            seconds[1].append(boxed)
    with box:
        pairs = zip(model.parameters(), twin.parameters(), strict=True)
        differing = sum(not torch.equal(p, q.cpu()) for p, q in pairs)
    return statistics.median(seconds[0]), statistics.median(seconds[1]), differing


def _timed(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, device: str) -> float:
    start = time.perf_counter()
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
    return time.perf_counter() - start


def _dry(runs: int) -> list[float]:
    seconds = []
    with virtual_gpus(2, dry=True) as box:
        model = ModelParallelResNet50("vgpu:0", "vgpu:1")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(runs + 1):
            x = torch.empty(10, 3, 1024, 1024, device="vgpu:0")
            start = time.perf_counter()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if i:  # the first step learns what each operation is
                seconds.append(time.perf_counter() - start)
            box.reset()
    return seconds
