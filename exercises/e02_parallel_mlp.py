"""Exercise e02: Chainer's MLP of 2015, split over two devices.

The network has four blocks of half the width, two on each device:

            device0                     device1
    x  ->   first0(x)                   first1(x)
              |  \\                     /  |
              |    each other's result    |
            first0(x) + first1(x)       first0(x) + first1(x)      the same sum, on both
            relu                        relu
            second0(...)                second1(...)
              |                       /
            second0(...) + second1(...)                            on device0 only

`copy(x, device)` is the function of exercise e02_copy. It is differentiable, and returns x itself if x is already on
the device. The check compares your network with the same network on one device.

Check it with `mpcourse check e02_parallel_mlp`. Stuck? `mpcourse hint e02_parallel_mlp`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

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
        """Return the network's output, (batch, n_out) on device0, with four copies and no more.

        x: (batch, n_in) on device0.
        """
        raise NotImplementedError("e02_parallel_mlp: apply relu to the sum of first0 and first1, then return the sum of second0 and second1, on device0")
