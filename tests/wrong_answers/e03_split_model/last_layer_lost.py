# says: the last layers are in no stage
# thinks: A slice's end is its last index, so it is start + size - 1.
"""Exercise e03: a model over several devices, layer by layer."""

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
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size - 1]))
        start += size
    return SplitModel(stages, devices)
