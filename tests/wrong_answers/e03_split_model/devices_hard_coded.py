# says: asked: layer 0's weight, of stage 0, on vgpu:2
# thinks: Stage i is on vgpu:i.
"""Exercise e03: a model over several devices, layer by layer."""

import torch.nn as nn

from mpcourse.split import copy


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(f"vgpu:{i}") for i, stage in enumerate(stages))

    def forward(self, x):
        for i, stage in enumerate(self.stages):
            x = stage(copy(x, f"vgpu:{i}"))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)
