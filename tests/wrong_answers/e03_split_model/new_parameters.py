# says: moved, not copied
# thinks: A Parameter on another device has to be made anew.
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
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    for stage, device in zip(stages, devices):
        for layer in stage:
            for name, p in list(layer.named_parameters(recurse=False)):
                setattr(layer, name, nn.Parameter(p.detach().to(device)))
    return SplitModel(stages, devices)
