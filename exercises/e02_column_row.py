"""Exercise e02: one layer over several devices, by columns and by rows.

A Linear layer computes y = x W^T + b, with W of shape (out, in). There are two ways to cut W over several devices:

    by outputs, "column parallel":  device i has some of W's rows, and computes some of the outputs
    by inputs,  "row parallel":     device i has some of W's columns, and computes a partial sum of every output

(The names come from papers that write y = x A, where A = W^T. So W's rows are A's columns.)

If a column-parallel layer comes before a row-parallel layer, each device computes in the first layer just what it needs
in the second. The devices exchange nothing between the two layers, and add their results once after them. The
feed-forward block of large transformers is split in this way.

`copy(x, device)` is the function of exercise e02_copy.

Check it with `mpcourse check e02_column_row`. Stuck? `mpcourse hint e02_column_row`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch.nn as nn

from mpcourse.split import copy


def linear_on(device, weight, bias):
    """Return an nn.Linear on `device` with copies of `weight` (out, in) and `bias` (out,). bias may be None."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.to(device)


class ColumnParallelLinear(nn.Module):
    """`linear` (an nn.Linear with bias) with its outputs spread evenly over devices.

    self.parts[i] is on devices[i] from the start. It has copies of the weights and biases of the i-th share of the
    outputs, in order, and is trained like `linear`. forward copies x once to each other device, and nothing else.
    """

    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.out_features // len(devices)  # the check uses numbers that divide
        raise NotImplementedError("e02_column_row: set self.parts to an nn.ModuleList of one linear_on(...) for each device, with `share` outputs each")

    def forward(self, x):
        """Return a list of tensors (batch, share), the i-th on devices[i]. x: (batch, in) on devices[0]."""
        raise NotImplementedError("e02_column_row: return the list of the parts' results, each on its own device")


class RowParallelLinear(nn.Module):
    """`linear` (an nn.Linear with bias) with its inputs spread evenly over devices.

    self.parts[i] is on devices[i] from the start. It has a copy of the weights of the i-th share of the inputs, in
    order, and is trained like `linear`. All parts together have one bias. forward copies the result of each part on
    another device once to devices[0].
    """

    def __init__(self, linear, devices):
        super().__init__()
        self.devices = devices
        share = linear.in_features // len(devices)
        raise NotImplementedError("e02_column_row: set self.parts to an nn.ModuleList of one linear_on(...) for each device, with `share` inputs each")

    def forward(self, xs):
        """Return (batch, out) on devices[0]. xs: a list such as ColumnParallelLinear returns."""
        raise NotImplementedError("e02_column_row: return the sum of the parts' results, on devices[0]")
