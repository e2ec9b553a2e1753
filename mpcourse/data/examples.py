"""What a dataset is here: labelled grey images in memory, in a train part and a test part."""

import operator
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import TensorDataset

from mpcourse.common.errors import UserError


class Examples(TensorDataset):
    """Labelled grey images. `examples[i]` is `(image, label)`, as a DataLoader needs it.

    images: float32 (n, 1, height, width), 0 (paper) to 1 (ink).
    labels: int64 (n,).
    """

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        super().__init__(images, labels)

    @property
    def images(self) -> torch.Tensor:
        """Images, float32 (n, 1, height, width), 0 (paper) to 1 (ink)."""
        return self.tensors[0]

    @property
    def labels(self) -> torch.Tensor:
        """Labels, int64 (n,)."""
        return self.tensors[1]

    def flat(self) -> torch.Tensor:
        """Return the images as rows for a fully connected layer: float32 (n, height * width), on the same memory."""
        _, channels, height, width = self.images.shape  # spelled out, because reshape(n, -1) refuses n = 0
        return self.images.reshape(len(self), channels * height * width)

    def __repr__(self) -> str:
        return f"Examples({len(self)} images of {'x'.join(str(side) for side in self.images.shape[1:])})"


@dataclass(frozen=True)
class Dataset:
    """A train and a test part with the same classes.

    name: "digits", "glyphs" or "mnist".
    train, test: the two parts.
    classes: labels are 0 to `classes - 1`.
    """

    name: str
    train: Examples
    test: Examples
    classes: int = 10


def from_pixels(pixels: np.ndarray, labels: np.ndarray, white: int) -> Examples:
    """Make examples from pixels.

    pixels: uint8 (n, height, width).
    labels: uint8 (n,).
    white: the value of a full pixel.
    """
    images = pixels.astype(np.float32)  # numpy uses one thread, which does not compete with other ranks on this machine
    images /= white
    return Examples(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).to(torch.int64))


def whole_number(value: int, name: str, most: int | None = None) -> int:
    """Return `value` as an int.

    value: what a user gave.
    name: how the error calls it.
    most: the largest that is allowed; None: any.
    Raises UserError where it is not a whole number from 0 to `most`.
    """
    wanted = "0 or more" if most is None else f"0 to {most}"
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or number < 0 or (most is not None and number > most):
        raise UserError(f"{name} must be a whole number, {wanted}, not {value!r}")
    return number
