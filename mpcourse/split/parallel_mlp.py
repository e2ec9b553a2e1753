"""Chainer's model-parallel MNIST example of 2015: an MLP as four blocks of half the width on two GPUs."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse.split.copy import copy


def _block(n_in: int, n_hidden: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(n_in, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_out)
    )


class ParallelMLP(nn.Module):
    """An MLP in four blocks on two devices. (batch, n_in) on device0 -> (batch, n_out) on device0.

    device0: holds the blocks first0 and second0.
    device1: holds the blocks first1 and second1.
    n_in: inputs.
    n_units: hidden units, an even number: half of them on each device.
    n_out: outputs.

    The two halves meet twice. After the first blocks each device needs the sum of both results; after the second
    blocks device0 needs it. A forward pass makes four copies. With device0 = device1 it is the same network on one
    device. It has 3 800 020 parameters at its defaults.
    Raises ValueError for an odd n_units.
    """

    def __init__(
        self,
        device0: torch.device | str,
        device1: torch.device | str,
        n_in: int = 784,
        n_units: int = 1000,
        n_out: int = 10,
    ) -> None:
        super().__init__()
        if n_units % 2:
            raise ValueError(f"n_units is halved over two devices: it must be even, not {n_units}")
        self.device0, self.device1 = torch.device(device0), torch.device(device1)
        half = n_units // 2
        self.first0 = _block(n_in, half, n_units).to(self.device0)
        self.first1 = _block(n_in, half, n_units).to(self.device1)
        self.second0 = _block(n_units, half, n_out).to(self.device0)
        self.second1 = _block(n_units, half, n_out).to(self.device1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x1 = copy(x, self.device1)  # before device0 gets work, because a copy waits for its source's queue
        z0 = self.first0(x)
        z1 = self.first1(x1)
        # First meeting: both devices continue with the whole sum.
        h0 = z0 + copy(z1, self.device0)
        h1 = z1 + copy(z0, self.device1)
        y0 = self.second0(F.relu(h0))
        y1 = self.second1(F.relu(h1))
        # Second meeting: only device0 needs the result.
        return y0 + copy(y1, self.device0)
