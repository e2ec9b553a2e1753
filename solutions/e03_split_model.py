"""Exercise e03: a model over several devices, layer by layer.

`split(model, [2, 3], ["vgpu:0", "vgpu:1"])` puts the first two layers of an nn.Sequential on vgpu:0 and the next three
on vgpu:1. It returns a module that computes what `model` computed, with its input on the first device and its output on
the last.

Layers are moved, not copied, so the result has the same parameter objects as `model`. These keep their requires_grad,
and the layers keep their mode (train or eval). What `model` contains afterwards does not count. A layer that contains
other layers is one layer and stays whole. One tensor crosses each cut, once.

`copy(x, device)` is the function of exercise e02_copy.

Check it with `mpcourse check e03_split_model`. Stuck? `mpcourse hint e03_split_model`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch.nn as nn

from mpcourse.split import copy


class SplitModel(nn.Module):
    """Stages that run one after the other, each on its own device."""

    def __init__(self, stages, devices):
        super().__init__()
        # solution: move each stage to its device; keep the stages where .parameters() finds them; keep the devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices
        # end of solution

    def forward(self, x):
        """Return the last stage's output, on the last device. x is on the first device."""
        # solution: run x through all stages, each time copied to the stage's device first, and return it
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x
        # end of solution


def split(model, sizes, devices):
    """Return a SplitModel whose stage i has the next sizes[i] layers of `model`, in order.

    model: an nn.Sequential. sizes: a list of ints, each 1 or more. Their sum is len(model). devices: one for each size.
    """
    # solution: cut the layers into stages of sizes[i] each, and return SplitModel(stages, devices)
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)
    # end of solution
