"""ResNet-101 and a U-Net as one flat chain of layers, which a pipeline can cut between any two.

A skip connection then has to travel through the cut. So layers pass on a tensor or, while skips are open, a tuple: the
remembered tensors, from which the last is taken first, and after them the current one.
The layers are numbered as in the benchmarks of torchgpipe (Kim et al. 2020), whose published balances fit them.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn as nn

Passed = torch.Tensor | tuple[torch.Tensor, ...]


class Flat(nn.Sequential):
    """Layers of this file in a row. A slice, model[a:b], is one too: a part, called as part(*tensors) or part(tuple).

    It returns a tensor, or a tuple where tensors remain remembered.
    """

    def forward(self, *given: Passed) -> Passed:
        # nn.Sequential takes one argument; a part that begins between a Keep and its taker is given several.
        return super().forward(_passed(_stack(given)))


class Plain(nn.Module):
    """A layer of one tensor, applied to the current one; remembered tensors pass unchanged.

    layer: takes and returns one tensor.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *given: Passed) -> Passed:
        *remembered, x = _stack(given)
        return _passed((*remembered, self.layer(x)))


class Keep(nn.Module):
    """Remembers the current tensor, and passes it on."""

    def forward(self, *given: Passed) -> Passed:
        *remembered, x = _stack(given)
        return *remembered, x, x


class Add(nn.Module):
    """Takes the tensor that was remembered last and adds it to the current one.

    downsample: is applied to the remembered tensor first; None: nothing is.
    """

    def __init__(self, downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.downsample = downsample

    def forward(self, *given: Passed) -> Passed:
        *remembered, skip, x = _with_skip(given)
        return _passed((*remembered, x + (skip if self.downsample is None else self.downsample(skip))))


class Join(nn.Module):
    """Takes the tensor that was remembered last and puts its channels after those of the current one."""

    def forward(self, *given: Passed) -> Passed:
        *remembered, skip, x = _with_skip(given)
        return _passed((*remembered, torch.cat([x, skip], 1)))


def flat_resnet101(classes: int = 1000) -> Flat:
    """Make ResNet-101 (He et al. 2016) in 370 layers; 44 549 160 parameters at 1000 classes.

    classes: outputs.

    (batch, 3, h, w) -> (batch, classes), for h and w from 32 on. There are 4 layers, then 33 blocks of 11 (a `Keep`,
    the 9 of the block, an `Add` before the last of them), then 3. The stride is in the 3x3 convolution, as in
    `ResNet50`. Parameters and buffers are in the order of torchvision's state dict, under other names.
    """
    return _flat_resnet((3, 4, 23, 3), classes)


def flat_unet(depth: int = 5, convs: int = 5, channels: int = 64, inputs: int = 3, outputs: int = 1) -> Flat:
    """Make a U-Net (Ronneberger et al. 2015) in 2 depth (4 convs + 2) + 4 convs + 1 layers; 241 by default.

    (batch, inputs, h, w) -> (batch, outputs, h, w); h and w are multiples of 2 ** depth, and one of them is larger than
    that, because instance norm needs more than one pixel.
    depth: number of times that the image is halved.
    convs: convolutions at each depth on either side, each with dropout, instance norm and leaky ReLU.
    channels: of the uppermost level, doubled at each halving.
    inputs: channels of images.
    outputs: channels of the result.

    It has 232 687 328 parameters by default.
    Raises ValueError where depth or convs is below 1, or channels below 2.
    """
    if depth < 1 or convs < 1 or channels < 2:
        raise ValueError(
            "a flat U-Net needs depth and convs of 1 or more and channels of 2 or more: got "
            f"depth={depth}, convs={convs}, channels={channels}"
        )
    widths = [channels * 2**i for i in range(depth + 1)]
    layers: list[nn.Module] = []
    for before, width in zip((inputs, *widths), widths[:-1], strict=False):
        layers += [*_cell(before, width, width, convs), Keep(), nn.MaxPool2d(2)]
    layers += _cell(widths[-2], widths[-1], widths[-2], convs)
    for width in reversed(widths[:-1]):
        # Half the width goes up, where it is joined with a skip of as many channels.
        layers += [nn.Upsample(scale_factor=2), Join(), *_cell(2 * width, width // 2, width // 2, convs)]
    return _chain([*layers, nn.Conv2d(channels // 2, outputs, 1, bias=False)])


def _flat_resnet(blocks: Sequence[int], classes: int, width: int = 64) -> Flat:
    """Make a ResNet. blocks: of each stage. width: channels of the stem and of the first stage's 3x3 convolutions."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    channels = width
    for stage, count in enumerate(blocks):
        inner = width * 2**stage
        for i in range(count):
            layers += _bottleneck(channels, inner, 2 if stage and not i else 1)
            channels = 4 * inner
    model = _chain([*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)])
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _bottleneck(channels: int, width: int, stride: int) -> list[nn.Module]:
    """Make a block in 11 layers: (batch, channels, h, w) -> (batch, 4 width, h / stride, w / stride)."""
    downsample = None
    if stride != 1 or channels != 4 * width:
        downsample = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
    # No ReLU works in place: a part of a pipeline may begin with any layer, and must not change its input.
    return [
        Keep(),
        nn.Conv2d(channels, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 4 * width, 1, bias=False),
        nn.BatchNorm2d(4 * width),
        Add(downsample),
        nn.ReLU(),
    ]


def _cell(channels: int, width: int, out: int, convs: int) -> list[nn.Module]:
    """Make `convs` units of 4 layers: (batch, channels, h, w) -> (batch, out, h, w), with `width` channels between."""
    layers: list[nn.Module] = []
    for n, m in pairwise([channels, *[width] * (convs - 1), out]):
        layers += [nn.Conv2d(n, m, 3, padding=1, bias=False), nn.Dropout2d(0.1), nn.InstanceNorm2d(m), nn.LeakyReLU()]
    return layers


def _chain(layers: Sequence[nn.Module]) -> Flat:
    return Flat(*(layer if isinstance(layer, Keep | Add | Join) else Plain(layer) for layer in layers))


def _stack(given: tuple[Passed, ...]) -> tuple[torch.Tensor, ...]:
    """Return the arguments of a layer or part, whether one tensor, one tuple or several tensors, as one tuple."""
    return given[0] if len(given) == 1 and not isinstance(given[0], torch.Tensor) else given  # type: ignore[return-value]


def _with_skip(given: tuple[Passed, ...]) -> tuple[torch.Tensor, ...]:
    stack = _stack(given)
    if len(stack) < 2:
        raise ValueError(
            "this layer takes a remembered tensor, but was given the current one alone: give a part of a flat model "
            "all that the part before it returns, part(*tensors)"
        )
    return stack


def _passed(stack: tuple[torch.Tensor, ...]) -> Passed:
    return stack[0] if len(stack) == 1 else stack
