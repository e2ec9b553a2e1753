"""The small networks of the lessons."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn as nn


def mlp(widths: Sequence[int] = (784, 1000, 1000, 10)) -> nn.Sequential:
    """Make linear layers with a ReLU between them. (batch, widths[0]) or (batch, 1, h, w) -> (batch, widths[-1]).

    widths: of the input, of each hidden layer, and of the output.

    The default is the network of Chainer's MNIST example (2015), 1 796 010 parameters.
    Raises ValueError for fewer than two widths, or one below 1.
    """
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"widths must name at least an input and an output, each 1 or more: got {list(widths)}")
    layers: list[nn.Module] = [nn.Flatten()]
    for n, m in pairwise(widths):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def conv_net(side: int = 28, classes: int = 10) -> nn.Sequential:
    """Make two 3x3 convolutions with 2x2 pooling, then a hidden layer. (batch, 1, side, side) -> (batch, classes).

    side: height and width of the images, at least 4.
    classes: outputs.
    Raises ValueError for smaller images.
    """
    if side < 4:
        raise ValueError(f"two poolings need images of at least 4x4 pixels: got side={side}")
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def mnist_cnn(width: int = 1) -> nn.Sequential:
    """Make the network of TensorFlow's MNIST tutorial of 2018. (batch, 1, 28, 28) -> (batch, 10).

    width: the numbers of channels are multiplied by it.

    Two 5x5 convolutions of 32 and 64 channels, each with 2x2 pooling, then 1024 units: 3 274 634 parameters.
    """
    return nn.Sequential(
        nn.Conv2d(1, 32 * width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32 * width, 64 * width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(49 * 64 * width, 1024),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.Linear(1024, 10),
    )


def transformer(side: int = 28, width: int = 64, layers: int = 2, classes: int = 10) -> nn.Sequential:
    """Make a small transformer that reads an image row by row. (batch, 1, side, side) -> (batch, classes).

    side: height and width of the images.
    width: numbers that represent a row, a multiple of its four heads.
    layers: 1 or more.
    classes: outputs.

    It has no dropout, and no code for a row's place: it is made to be timed, with many short parameters, and not to be
    the best reader of digits.
    Raises ValueError for another width, or no layer.
    """
    if width < 4 or width % 4 or layers < 1:
        raise ValueError(f"a width that four heads can share, and a layer or more: got width={width}, layers={layers}")
    blocks = [nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(layers)]
    return nn.Sequential(nn.Flatten(1, 2), nn.Linear(side, width), *blocks, MeanOverRows(), nn.Linear(width, classes))


class MeanOverRows(nn.Module):
    """Mean over the rows: (batch, rows, width) -> (batch, width)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)
