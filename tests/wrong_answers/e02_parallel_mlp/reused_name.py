# says: counts twice
# thinks: h0 in the second line is still what first0 has computed.
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
        h0 = self.first0(x)
        h1 = self.first1(copy(x, self.device1))
        h0 = h0 + copy(h1, self.device0)
        h1 = h1 + copy(h0, self.device1)
        y0 = self.second0(F.relu(h0))
        y1 = self.second1(F.relu(h1))
        return y0 + copy(y1, self.device0)
