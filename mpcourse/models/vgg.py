"""VGG-16 (Simonyan & Zisserman 2015): 138 357 544 parameters, 124 million of them in three linear layers."""

from torch import nn

_CHANNELS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Sequential):
    """13 convolutions of 3x3, with 2x2 pooling after each group, and 3 linear layers.

    (batch, 3, 224, 224) -> (batch, classes).
    classes: outputs.
    """

    def __init__(self, classes: int = 1000) -> None:
        layers: list[nn.Module] = []
        before = 3
        for group in _CHANNELS:
            for channels in group:
                layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
                before = channels
            layers.append(nn.MaxPool2d(2))
        layers.append(nn.Flatten())
        for inputs, outputs in ((512 * 7 * 7, 4096), (4096, 4096)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout()]
        super().__init__(*layers, nn.Linear(4096, classes))
