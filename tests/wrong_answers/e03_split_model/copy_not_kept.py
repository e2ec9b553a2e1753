# says: copy(x, device) brings a tensor there first
# thinks: copy(x, device) moves x, as module.to(device) moves a module.
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
            copy(x, device)
            x = stage(x)
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)
