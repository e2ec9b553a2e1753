"""Exercise e02: one layer over several devices, by columns and by rows.

A Linear layer computes y = x W^T + b, with W of shape (out, in). Over several devices W can be cut

    by outputs, "column parallel":  device i has some of W's rows, and computes some of the outputs
    by inputs,  "row parallel":     device i has some of W's columns, and computes a part of every output

(The names come from papers that write y = x A: there A = W^T, and the words are the other way round.)

Column parallel, then row parallel: what device i computes first is just what it needs next. Between the two layers
nothing is exchanged; after them, one sum. This is how the feed-forward block of large transformers is split.

`copy(x, device)` is exercise e02_copy's. Check with `mpcourse check e02_column_row`; `mpcourse hint e02_column_row`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

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
    """`linear` (an nn.Linear with bias) with its outputs spread evenly over devices.

    self.parts[i] is on devices[i] from the start. It has a copy of the i-th share of the outputs, in order, and is
    trained like `linear`. In forward x goes once to each other device, and nothing else is copied.
    """

    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)  # the check uses numbers that divide
        raise NotImplementedError("e02_column_row: set self.parts to an nn.ModuleList of one linear_on(...) a device, with `share` outputs each")

    def forward(self, x):
        """x: (batch, in) on devices[0]. Returns a list: on device i a tensor (batch, share)."""
        raise NotImplementedError("e02_column_row: return the list of what each part computes, each on its own device")


class RowParallelLinear(nn.Module):
    """`linear` (an nn.Linear with bias) with its inputs spread evenly over devices.

    self.parts[i] is on devices[i] from the start. It has a copy of the i-th share of the inputs, in order, and is
    trained like `linear`; all parts together have one bias. In forward each result goes once to devices[0].
    """

    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        raise NotImplementedError("e02_column_row: set self.parts to an nn.ModuleList of one linear_on(...) a device, with `share` inputs each")

    def forward(self, xs):
        """xs: a list as ColumnParallelLinear returns it. Returns (batch, out) on devices[0]."""
        raise NotImplementedError("e02_column_row: return the sum of what the parts compute, on devices[0]")
