# right: The rest of the stages is a SplitModel within the SplitModel, and Tensor.to crosses the cut.
"""Exercise e03: a model over several devices, layer by layer."""

import torch.nn as nn

from mpcourse.split import copy


class SplitModel(nn.Module):
    def __init__(self, stages, devices):
        super().__init__()
        self.device = devices[0]
        self.first = stages[0].to(devices[0])
        self.rest = SplitModel(stages[1:], devices[1:]) if stages[1:] else nn.Identity()

    def forward(self, x):
        y = self.first(x.to(self.device))
        return self.rest(y)


def split(model, sizes, devices):
    layers = list(model)
    stages, start = [], 0
    for size in sizes:
        stages.append(nn.Sequential(*layers[start : start + size]))
        start += size
    return SplitModel(stages, devices)
