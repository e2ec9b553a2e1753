"""A 3-D U-Net (Cicek et al. 2016): an encoder that shrinks, a decoder that grows, and skips between the two."""

from collections.abc import Sequence

import torch
import torch.nn as nn


def _double(channels: int, width: int) -> nn.Sequential:
    """Make two 3x3x3 convolutions, each with batch norm and ReLU; the volume keeps its size."""
    layers: list[nn.Module] = []
    for n in (channels, width):
        layers += [nn.Conv3d(n, width, 3, padding=1, bias=False), nn.BatchNorm3d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Encoder(nn.Module):
    """The shrinking half: (batch, channels, d, h, w) -> one tensor per level, the widest first, the deepest last.

    channels: of the input.
    widths: channels of each level.
    """

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_double(n, m) for n, m in zip((channels, *widths), widths, strict=False))
        self.pool = nn.MaxPool3d(2)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        features = []
        for i, level in enumerate(self.levels):
            x = level(self.pool(x) if i else x)
            features.append(x)
        return features


class Decoder(nn.Module):
    """The growing half: the encoder's tensors, one per level -> (batch, classes, d, h, w).

    widths: channels of each level.
    classes: channels of the result.
    """

    def __init__(self, widths: Sequence[int], classes: int) -> None:
        super().__init__()
        pairs = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.ups = nn.ModuleList(nn.ConvTranspose3d(n, m, 2, stride=2) for n, m in pairs)
        self.levels = nn.ModuleList(_double(2 * m, m) for _, m in pairs)
        self.out = nn.Conv3d(widths[0], classes, 1)

    def forward(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        *skips, x = features
        for up, level, skip in zip(self.ups, self.levels, reversed(skips), strict=True):
            x = level(torch.cat([skip, up(x)], 1))
        return self.out(x)


class UNet3D(nn.Module):
    """The whole network: (batch, channels, d, h, w) -> (batch, classes, d, h, w).

    d, h and w are multiples of 2 ** (levels - 1).
    channels: of the input.
    classes: channels of the result.
    widths: channels of each level, two levels or more.
    devices: two: the encoder is on the first and the decoder on the second; the skips, and the deepest level, cross.
    None: both are where torch puts them.
    Raises ValueError for fewer levels, or another number of devices.
    """

    def __init__(
        self,
        channels: int = 1,
        classes: int = 2,
        widths: Sequence[int] = (32, 64, 128),
        devices: Sequence[torch.device | str] | None = None,
    ) -> None:
        super().__init__()
        if len(widths) < 2:
            raise ValueError(f"a U-Net has two levels or more: got widths={list(widths)}")
        if devices is not None and len(devices) != 2:
            raise ValueError(f"an encoder and a decoder need two devices, not {len(devices)}")
        self.encoder, self.decoder = Encoder(channels, widths), Decoder(widths, classes)
        self.devices = devices and [torch.device(d) for d in devices]
        if self.devices:
            self.encoder.to(self.devices[0])
            self.decoder.to(self.devices[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.encoder(x)
        if self.devices:
            features = [t.to(self.devices[1]) for t in features]
        return self.decoder(features)
