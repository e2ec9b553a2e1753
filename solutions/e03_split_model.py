"""Exercise e03: a model over several devices, layer by layer.

`split(model, [2, 3], ["vgpu:0", "vgpu:1"])` puts the first two layers of an nn.Sequential on vgpu:0 and the next three
on vgpu:1, and returns a module that does what `model` did: its input is on the first device, its output on the last.

Layers are moved, not copied: the result has the very parameters that `model` had. Their requires_grad and the layers'
mode, training or not, stay as they are. What is in `model` itself afterwards does not count. A layer may have layers
inside: it is one layer, and stays whole. A tensor crosses each cut once.

`copy(x, device)` is exercise e02_copy's. Check with `mpcourse check e03_split_model`; `mpcourse hint e03_split_model`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch.nn as nn

from mpcourse.split import copy


class SplitModel(nn.Module):
    """Stages, each on a device of its own."""

    def __init__(self, stages, devices):
        super().__init__()
        # solution: keep the stages so that .parameters() finds them, each moved to its device, and keep the devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))
        self.devices = devices
        # end of solution

    def forward(self, x):
        """x: on the first device. Returns the last stage's output, on the last device."""
        # solution: return x after all stages, copied to each one's device before it
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x
        # end of solution


def split(model, sizes, devices):
    """A SplitModel whose stage i holds the next sizes[i] layers of `model`, in order.

    model: an nn.Sequential. sizes: list of ints, 1 or more each, that sum to len(model). devices: as many devices.
    """
    # solution: cut the layers into stages of sizes[i] each, and return SplitModel(stages, devices)
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    return SplitModel(stages, devices)
    # end of solution
