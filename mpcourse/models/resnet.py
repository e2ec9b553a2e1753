"""ResNet-50 (He et al. 2016, with the stride in the 3x3 convolution, as torchvision and most others build it)."""

import torch
import torch.nn as nn


class Bottleneck(nn.Module):
    """1x1 down to `width` channels, 3x3, 1x1 up to four times as many; plus the input, projected where shapes differ.

    (batch, channels, h, w) -> (batch, 4 width, h / stride, w / stride).
    channels: of the input.
    width: channels of the 3x3 convolution.
    stride: of the 3x3 convolution, 1 or 2.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        return self.relu(x)


class ResNet50(nn.Module):
    """ResNet-50, with 25 557 032 parameters at 1000 classes; the names of its state dict are torchvision's.

    (batch, 3, h, w) -> (batch, classes), for h and w from 32 on.
    classes: outputs.
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _layer(64, 64, 3, 1)
        self.layer2 = _layer(256, 128, 4, 2)
        self.layer3 = _layer(512, 256, 6, 2)
        self.layer4 = _layer(1024, 512, 3, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x))))))

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        """Run what comes before layer1. (batch, 3, h, w) -> (batch, 64, h / 4, w / 4).

        x: images, floating point.
        """
        return self.maxpool(self.relu(self.bn1(self.conv1(x))))

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """Run what comes after layer4. (batch, 2048, h / 32, w / 32) -> (batch, classes).

        x: what layer4 returned.
        """
        return self.fc(torch.flatten(self.avgpool(x), 1))


def _layer(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))
