"""What each layer of a chain costs in time and memory: measured on a real device, predicted on a virtual one."""

import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn

from mpcourse.virtual import active_box


@dataclass(frozen=True)
class LayerCost:
    """What one layer of a chain costs.

    forward: seconds.
    backward: seconds.
    activations: bytes that forward leaves for backward.
    parameters: their bytes. Gradients have as many; an optimizer's state has none, as many, or twice as many.
    """

    forward: float
    backward: float
    activations: int
    parameters: int

    @property
    def seconds(self) -> float:
        """Seconds of forward and backward together."""
        return self.forward + self.backward


def layer_costs(model: nn.Sequential, x: torch.Tensor, runs: int = 3) -> list[LayerCost]:
    """Return the cost of each layer of a chain, on the device where it is. `balance` takes these costs.

    model: layers, one after the other. Their gradients are cleared; batch norm's statistics are changed, as in
    training.
    x: a batch, on the model's device, as the first layer takes it.
    runs: how often a layer runs where seconds are measured; their median is returned.

    On a virtual GPU, seconds are the box's and memory is the ledger's. On a real GPU and on the CPU, seconds are
    measured and memory is what autograd saves.
    """
    costs = []
    for layer in model:
        x = x.detach().requires_grad_(x.is_floating_point())
        clocked = [_once(layer, x) for _ in range(1 if x.device.type == "vgpu" else runs)]
        layer.zero_grad()
        forward, backward = (statistics.median(times) for times in list(zip(*clocked, strict=True))[:2])
        x, activations = clocked[-1][3], clocked[-1][2]
        costs.append(LayerCost(forward, backward, activations, sum(p.nbytes for p in layer.parameters())))
    return costs


def _once(layer: nn.Module, x: torch.Tensor) -> tuple[float, float, int, torch.Tensor]:
    known = {t.untyped_storage().data_ptr() for t in [*layer.parameters(), *layer.buffers()]}
    saved: dict[int, int] = {}

    def count(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return t

    device, own = x.device, x.clone()  # not a leaf, because a layer may work in place
    if device.type == "vgpu":
        before = _held(device.index)
        start = _now(device)
        y = layer(own)
        middle, activations = _now(device), _held(device.index) - before
    else:
        start = _now(device)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
            y = layer(own)
        middle, activations = _now(device), sum(saved.values())
    if y.requires_grad:
        y.backward(torch.ones_like(y))
    return middle - start, _now(device) - middle, activations, y


def _held(index: int) -> int:
    """Return the bytes of tensors on a virtual GPU. A workspace belongs to no layer."""
    kinds = active_box().ledger.kinds(index)
    return sum(nbytes for kind, nbytes in kinds.items() if kind != "workspaces")


def _now(device: torch.device) -> float:
    """Return the time in seconds at which the device has done all work that it was given."""
    if device.type == "vgpu":
        return active_box().synchronize()
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)
    return time.perf_counter()
