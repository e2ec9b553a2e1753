# right: Slices the nn.Sequential itself, at accumulated ends.
"""Exercise e03: a model over several devices, layer by layer."""

from itertools import accumulate

import torch.nn as nn

from mpcourse.split import copy


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices))

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage(copy(x, device))
        return x


def split(model, sizes, devices):
    ends = list(accumulate(sizes))
    return SplitModel([model[end - size : end] for end, size in zip(ends, sizes)], devices)
