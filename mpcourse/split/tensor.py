"""Tensor parallelism (Megatron-LM, Shoeybi et al. 2019): one layer's work over several devices.

A weight can be cut by its outputs or by its inputs. The first is called column parallel, after the paper's notation
x A; torch stores weights transposed. The second is called row parallel. A column-parallel layer gives the row-parallel
layer behind it exactly the part that it needs, and only one sum is left to exchange.

A copy between two GPUs waits in the queues of both. All copies of the input therefore come before the work of the first
device, and all copies of results after the work of the last: otherwise one device would wait for the other's product.
"""

from collections.abc import Sequence

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse.split.copy import copy

Devices = Sequence[torch.device | str]


def _sizes(n: int, parts: int) -> list[int]:
    """Divide `n` into `parts` shares that differ by at most one, the larger ones first."""
    if not 1 <= parts <= n:
        raise ValueError(f"{n} units over {parts} devices: each needs one at least")
    return [n // parts + (i < n % parts) for i in range(parts)]


def _linear(weight: torch.Tensor, bias: torch.Tensor | None, device: torch.device) -> nn.Linear:
    """Make a layer with its own copies of `weight` (out, in) and `bias` (out,), on `device`."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    made.weight = nn.Parameter(weight.detach().clone().to(device))
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().clone().to(device))
    return made


class ColumnParallelLinear(nn.Module):
    """A linear layer with its outputs spread over devices.

    Takes (..., in) on any device, returns one tensor per device, (..., share of out).

    linear: its weight (out, in) and bias are copied, in shares that differ by at most one.
    devices: one for each share.

    Every device gets the whole input, so the input's gradient is the sum of the gradients from all devices. Autograd
    computes this sum in the backward pass of the copies.
    Raises ValueError for more devices than outputs.
    """

    def __init__(self, linear: nn.Linear, devices: Devices) -> None:
        super().__init__()
        self.devices = [torch.device(d) for d in devices]
        sizes = _sizes(linear.out_features, len(self.devices))
        biases = [None] * len(sizes) if linear.bias is None else linear.bias.split(sizes)
        self.parts = nn.ModuleList(
            _linear(w, b, d) for w, b, d in zip(linear.weight.split(sizes), biases, self.devices, strict=True)
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        xs = [copy(x, device) for device in self.devices]
        return [part(here) for part, here in zip(self.parts, xs, strict=True)]


class RowParallelLinear(nn.Module):
    """A linear layer with its inputs spread over devices, as a ColumnParallelLinear leaves them.

    Takes one tensor per device, (..., share of in) each, returns (..., out) on the first device.
    linear: its weight (out, in) and bias are copied, in shares that differ by at most one.
    devices: one for each share.

    Each device computes part of every output: their sum is the result. The bias is added once, on the first device.
    Raises ValueError for more devices than inputs.
    """

    def __init__(self, linear: nn.Linear, devices: Devices) -> None:
        super().__init__()
        self.devices = [torch.device(d) for d in devices]
        sizes = _sizes(linear.in_features, len(self.devices))
        self.parts = nn.ModuleList(
            _linear(w, None, d) for w, d in zip(linear.weight.split(sizes, 1), self.devices, strict=True)
        )
        self.bias = None
        if linear.bias is not None:
            self.bias = nn.Parameter(linear.bias.detach().clone().to(self.devices[0]))

    def forward(self, xs: Sequence[torch.Tensor]) -> torch.Tensor:
        partial = [part(x) for part, x in zip(self.parts, xs, strict=True)]
        return _sum_on(self.devices[0], partial, self.bias)


def _sum_on(device: torch.device, partial: Sequence[torch.Tensor], bias: torch.Tensor | None) -> torch.Tensor:
    """Sum partial results in the order of their devices, and add the bias."""
    total, *others = [copy(one, device) for one in partial]
    for one in others:
        total = total + one
    return total if bias is None else total + bias


class TensorParallelMLP(nn.Module):
    """A transformer's feed-forward block, Linear - GELU - Linear: the first cut by columns, the second by rows.

    Takes (..., d) on any device, returns (..., d) on the first device. Equals `second(gelu(first(x)))`.
    first: the layer before GELU; its weights are copied.
    second: the layer after it.
    devices: one for each share of the hidden units.

    Nothing is exchanged between the two layers: GELU works on each unit alone.
    Raises ValueError where the two layers do not fit each other, or for more devices than hidden units.
    """

    def __init__(self, first: nn.Linear, second: nn.Linear, devices: Devices) -> None:
        super().__init__()
        if first.out_features != second.in_features:
            raise ValueError(f"{first.out_features} outputs do not fit {second.in_features} inputs")
        self.first, self.second = ColumnParallelLinear(first, devices), RowParallelLinear(second, devices)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second([F.gelu(part) for part in self.first(x)])
