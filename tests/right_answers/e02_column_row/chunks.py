# right: Cuts with torch's chunk, in comprehensions.
"""Exercise e02: one layer over several devices, by columns and by rows."""

import torch.nn as nn

from mpcourse.split import copy


def linear_on(device, weight, bias):
    """An nn.Linear on `device` that starts from copies of `weight` (out, in) and of `bias` (out,), or has no bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)
        weights, biases = linear.weight.chunk(len(devices)), linear.bias.chunk(len(devices))
        self.parts = nn.ModuleList(linear_on(*dwb) for dwb in zip(devices, weights, biases))

    def forward(self, x):
        return [part(copy(x, part.weight.device)) for part in self.parts]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        weights = linear.weight.chunk(len(devices), dim=1)
        biases = [linear.bias] + [None] * (len(devices) - 1)
        self.parts = nn.ModuleList(map(linear_on, devices, weights, biases))

    def forward(self, xs):
        return sum(copy(part(x), self.devices[0]) for part, x in zip(self.parts, xs))
