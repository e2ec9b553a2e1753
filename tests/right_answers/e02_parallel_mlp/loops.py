# right: Written for a list of devices, with loops and a table of copies.
"""Exercise e02: Chainer's MLP of 2015, split over two devices."""

import torch.nn as nn
import torch.nn.functional as F

from mpcourse.split import copy


def block(n_in, n_hidden, n_out):
    return nn.Sequential(
        nn.Linear(n_in, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_out)
    )


class ParallelMLP(nn.Module):
    def __init__(self, device0, device1, n_in=784, n_units=1000, n_out=10):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.first0 = block(n_in, n_units // 2, n_units).to(device0)
        self.first1 = block(n_in, n_units // 2, n_units).to(device1)
        self.second0 = block(n_units, n_units // 2, n_out).to(device0)
        self.second1 = block(n_units, n_units // 2, n_out).to(device1)

    def forward(self, x):
        devices = [self.device0, self.device1]
        first, second = [self.first0, self.first1], [self.second0, self.second1]
        parts = [f(copy(x, d)) for f, d in zip(first, devices)]
        ys = []
        for device, layer in zip(devices, second):
            total = sum(copy(p, device) for p in parts)
            ys.append(layer(F.relu(total)))
        return sum(copy(y, self.device0) for y in ys)
