"""Splitting a model by its layers: each device holds some of them, and activations cross the cut."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn as nn

from mpcourse.models.resnet import ResNet50
from mpcourse.split.copy import copy


class ModelParallelResNet50(ResNet50):
    """ResNet-50 on two devices: up to layer2 on the first, from layer3 on the second.

    Takes (batch, 3, h, w) on any device, returns (batch, classes) on device1.
    device0: holds the layers up to layer2.
    device1: holds the layers from layer3 on.
    classes: outputs.

    The cut is that of an article of 2020-03-29 on two P100s. The state dict is ResNet50's.
    """

    def __init__(self, device0: torch.device | str, device1: torch.device | str, classes: int = 1000) -> None:
        super().__init__(classes)
        self.device0, self.device1 = torch.device(device0), torch.device(device1)
        for name, module in self.named_children():
            module.to(self.device1 if name in ("layer3", "layer4", "avgpool", "fc") else self.device0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(copy(self.first(copy(x, self.device0)), self.device1))

    def first(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layers of device0. (batch, 3, h, w) -> (batch, 512, h / 8, w / 8).

        x: images, float32, on device0.
        """
        return self.layer2(self.layer1(self.stem(x)))

    def second(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layers of device1. (batch, 512, h / 8, w / 8) -> (batch, classes).

        x: what `first` returned, on device1.
        """
        return self.head(self.layer4(self.layer3(x)))


class PipelinedResNet50(ModelParallelResNet50):
    """ResNet-50 on two devices that work at the same time: a batch passes through them in splits.

    device0: holds the layers up to layer2.
    device1: holds the layers from layer3 on.
    split_size: examples of a split; the last one may have fewer.
    classes: outputs.

    Takes (batch, 3, h, w) on any device, returns (batch, classes) on device1.

    While device1 works on one split, device0 begins the next. Python gives work to device1 first, then to device0.
    The copy between them is in both queues, so the two advance in step. Autograd runs the backward passes in reverse,
    without a schedule. Batch norm sees one split at a time. Source: PyTorch's tutorial on model parallelism (2019).
    """

    def __init__(
        self, device0: torch.device | str, device1: torch.device | str, split_size: int, classes: int = 1000
    ) -> None:
        super().__init__(device0, device1, classes)
        self.split_size = split_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        splits = iter(copy(x, self.device0).split(self.split_size))
        crossed = copy(self.first(next(splits)), self.device1)
        outputs = []
        for split in splits:
            outputs.append(self.second(crossed))
            crossed = copy(self.first(split), self.device1)
        outputs.append(self.second(crossed))
        return torch.cat(outputs)


class Split(nn.Sequential):
    """Stages, each on its own device; `split` makes it. The input of a stage is copied to its device first.

    stages: modules, one after the other, which take and return one tensor or several; moved to their devices.
    devices: one for each stage.
    """

    def __init__(self, stages: Sequence[nn.Module], devices: Sequence[torch.device]) -> None:
        super().__init__(*(stage.to(device) for stage, device in zip(stages, devices, strict=True)))
        self.devices = list(devices)

    def forward(self, *given: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Run the stages one after the other. Return what the last one returns, on its device.

        given: one tensor or several, on any device, as the first stage takes them.
        """
        output: torch.Tensor | tuple[torch.Tensor, ...] = given
        for stage, device in zip(self, self.devices, strict=True):
            output = call(stage, [copy(x, device) for x in ([output] if isinstance(output, torch.Tensor) else output)])
        return output


def call(stage: nn.Module, tensors: Sequence[torch.Tensor]) -> Any:
    """Call a stage. Several tensors are its arguments; a plain `nn.Sequential` gets them as one tuple.

    stage: part of a chain of layers.
    tensors: one or several, on its device.

    In the uncut `nn.Sequential`, too, a layer that returns a tuple passes it on as one argument.
    """
    whole = type(stage).forward is nn.Sequential.forward and len(tensors) > 1
    return stage(tuple(tensors)) if whole else stage(*tensors)


def split(model: nn.Sequential, sizes: Sequence[int], devices: Sequence[torch.device | str]) -> Split:
    """Cut a chain of layers into stages of consecutive ones, each on a device. The model's own layers are moved.

    model: layers, one after the other.
    sizes: how many layers each stage has, 1 or more.
    devices: one for each stage. The input may be on any device; the output is on the last.
    Raises ValueError unless sizes are 1 or more, sum to the number of layers, and there are as many as devices; also
    where two stages share a parameter, which cannot be on two devices.
    """
    if len(sizes) != len(devices):
        raise ValueError(f"{len(sizes)} stages need as many devices, not {len(devices)}")
    if min(sizes, default=0) < 1 or sum(sizes) != len(model):
        n = len(model)
        raise ValueError(f"sizes {list(sizes)} do not cut a model of {n} layers: each must be 1 or more, their sum {n}")
    stages, start = [], 0
    for size in sizes:
        stages.append(model[start : start + size])
        start += size
    places = [torch.device(d) for d in devices]
    owner: dict[int, int] = {}
    for i, stage in enumerate(stages):
        for name, p in stage.named_parameters():
            other = owner.setdefault(id(p), i)
            if places[other] != places[i]:
                raise ValueError(
                    f"stages {other} and {i} share the parameter {name!r}, which cannot be on {places[other]} and on "
                    f"{places[i]}"
                )
    return Split(stages, places)
