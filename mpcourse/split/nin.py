"""Network in Network (Lin et al. 2014), and the two-GPU version of a blog post of 2015."""

from collections.abc import Sequence

import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse.split.copy import copy


def _mlpconv(channels: int, widths: Sequence[int], kernel: int, stride: int, padding: int) -> nn.Sequential:
    """Return a convolution, then two 1x1 convolutions: a small MLP at each position."""
    layers: list[nn.Module] = []
    for i, (n, m) in enumerate(zip((channels, *widths), widths, strict=False)):
        layers += [nn.Conv2d(n, m, kernel, stride, padding) if i == 0 else nn.Conv2d(n, m, 1), nn.ReLU()]
    return nn.Sequential(*layers)


class NIN(nn.Module):
    """Network in Network (Lin et al. 2014).

    Takes (batch, 3, h, w), returns (batch, classes), h and w from 99 on. Chainer's ImageNet example has 227.

    classes: outputs.
    widths: channels of the four stages; the defaults are Chainer's.
    """

    def __init__(self, classes: int = 1000, widths: Sequence[int] = (96, 256, 384, 1024)) -> None:
        super().__init__()
        a, b, c, d = widths
        self.features = nn.Sequential(
            _mlpconv(3, (a, a, a), 11, 4, 0),
            nn.MaxPool2d(3, 2),
            _mlpconv(a, (b, b, b), 5, 1, 2),
            nn.MaxPool2d(3, 2),
            _mlpconv(b, (c, c, c), 3, 1, 1),
            nn.MaxPool2d(3, 2),
            nn.Dropout(),
            _mlpconv(c, (d, d, classes), 3, 1, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x)


class ParallelNIN(nn.Module):
    """Two whole networks, one on each device. Both see the same batch, and their losses are added.

    forward: images (batch, 3, h, w) and labels (batch,), int64, on device0 -> loss and accuracy, scalars on device0;
    the accuracy is the first network's alone.
    device0: holds the first network.
    device1: holds the second one.
    classes: outputs.
    widths: channels of the four stages; the defaults are Chainer's.

    This is how the post of 2015-11-29 built it. No gradient passes between the networks: each trains as it would alone.
    Twice the work is done, both devices are busy, and neither finishes sooner.
    """

    def __init__(
        self,
        device0: torch.device | str,
        device1: torch.device | str,
        classes: int = 1000,
        widths: Sequence[int] = (96, 256, 384, 1024),
    ) -> None:
        super().__init__()
        self.device0, self.device1 = torch.device(device0), torch.device(device1)
        self.first = NIN(classes, widths).to(self.device0)
        self.second = NIN(classes, widths).to(self.device1)

    def logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run both networks; return their results, (batch, classes) each, both on device0.

        x: images (batch, 3, h, w) on device0.
        """
        x1 = copy(x, self.device1)  # before device0 gets work, because a copy waits for its source's queue
        return self.first(x), copy(self.second(x1), self.device0)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x1, labels1 = copy(x, self.device1), copy(labels, self.device1)
        first, second = self.first(x), self.second(x1)
        loss = F.cross_entropy(first, labels) + copy(F.cross_entropy(second, labels1), self.device0)
        return loss, (first.argmax(1) == labels).float().mean()

    def ensemble_accuracy(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the accuracy of the mean probabilities of both networks, 0 to 1, a scalar on device0.

        x: images (batch, 3, h, w) on device0.
        labels: (batch,), int64, on device0.
        """
        first, second = self.logits(x)
        return ((first.softmax(1) + second.softmax(1)).argmax(1) == labels).float().mean()


class HalvedNIN(nn.Module):
    """The fair comparison: one network. Each device holds a replica and sees half of the batch.

    forward: images (batch, 3, h, w) and labels (batch,), int64, on device0 -> loss and accuracy of all examples,
    scalars on device0. Raises ValueError for a batch of odd size.
    device0: holds the network, and its gradients.
    device1: holds the replica.
    classes: outputs.
    widths: channels of the four stages; the defaults are Chainer's.

    The loss is the mean over the whole batch, and its gradient arrives in `network`, because the replica's parameters
    are copies that autograd sees. Each device does half the work, and the result is one network's, so a second GPU can
    save time. Lesson 06 does the same over MPI.
    """

    def __init__(
        self,
        device0: torch.device | str,
        device1: torch.device | str,
        classes: int = 1000,
        widths: Sequence[int] = (96, 256, 384, 1024),
    ) -> None:
        super().__init__()
        self.device0, self.device1 = torch.device(device0), torch.device(device1)
        self.network = NIN(classes, widths).to(self.device0)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if len(x) % 2:
            raise ValueError(f"each device gets half of the batch: {len(x)} examples cannot be halved")
        near, far = x.chunk(2)
        far = copy(far, self.device1)
        replica = {name: copy(p, self.device1) for name, p in self.network.named_parameters()}
        second = torch.func.functional_call(self.network, replica, (far,))
        logits = torch.cat([self.network(near), copy(second, self.device0)])
        return F.cross_entropy(logits, labels), (logits.argmax(1) == labels).float().mean()
