"""Networks of published step times that no library that we use has as they were measured, in their sizes."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.models import ResNet50

Tensor = torch.Tensor


class BertLarge(nn.Module):
    """BERT-large of NVIDIA's DeepLearningExamples: attention of single operations, and a loss for the task.

    pretraining: the loss is that of 15 % of the tokens, which are masked; else of two logits a token (SQuAD).
    """

    def __init__(self, pretraining: bool, width: int = 1024, layers: int = 24, words: int = 30528) -> None:
        super().__init__()
        self.pretraining = pretraining
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(_BertLayer(width) for _ in range(layers))
        if pretraining:
            self.transform, self.bias = nn.Linear(width, width), nn.Parameter(torch.zeros(words))
            self.transform_norm = nn.LayerNorm(width)
        else:
            self.head = nn.Linear(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        """Return the loss of words (batch, tokens)."""
        batch, tokens = words.shape
        mask = torch.zeros(batch, 1, 1, tokens, device=words.device)
        x = F.dropout(self.norm(self.words(words) + self.positions(torch.zeros_like(words[0]))), 0.1)
        for layer in self.layers:
            x = layer(x, mask)
        if not self.pretraining:
            begin, end = self.head(x).unbind(-1)
            return (F.cross_entropy(begin, words[:, 0]) + F.cross_entropy(end, words[:, 0])) / 2
        few = x[:, : round(0.15 * tokens)].reshape(-1, x.shape[-1])
        logits = F.linear(self.transform_norm(F.gelu(self.transform(few))), self.words.weight, self.bias)
        return F.cross_entropy(logits, words[:, : round(0.15 * tokens)].reshape(-1))


class _BertLayer(nn.Module):
    def __init__(self, width: int, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        split = (x.shape[0], x.shape[1], self.heads, -1)
        q, k, v = (part(x).view(split).transpose(1, 2) for part in (self.query, self.key, self.value))
        weights = F.dropout(F.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + mask, -1), 0.1)
        y = (weights @ v).transpose(1, 2).reshape(x.shape)
        x = self.norms[0](x + F.dropout(self.out(y), 0.1))
        return self.norms[1](x + F.dropout(self.down(F.gelu(self.up(x))), 0.1))


class SSD300(nn.Module):
    """SSD of 300 x 300 images on the first four stages of ResNet-50, whose fourth keeps its size."""

    def __init__(self) -> None:
        super().__init__()
        body = ResNet50()
        for module in body.layer3.modules():
            if isinstance(module, nn.Conv2d):
                module.stride = (1, 1)
        self.body = nn.Sequential(*list(body.children())[:7])
        sizes = (1024, 512, 512, 256, 256, 256)
        self.blocks = nn.ModuleList()
        for i, (before, after, inner) in enumerate(zip(sizes, sizes[1:], (256, 256, 128, 128, 128), strict=False)):
            second = nn.Conv2d(inner, after, 3, 2 if i < 3 else 1, 1 if i < 3 else 0, bias=False)
            first = nn.Conv2d(before, inner, 1, bias=False)
            norms = nn.BatchNorm2d(inner), nn.BatchNorm2d(after)
            self.blocks.append(nn.Sequential(first, norms[0], nn.ReLU(True), second, norms[1], nn.ReLU(True)))
        boxes = (4, 6, 6, 6, 4, 4)
        self.places = nn.ModuleList(nn.Conv2d(n, 4 * b, 3, padding=1) for n, b in zip(sizes, boxes, strict=True))
        self.classes = nn.ModuleList(nn.Conv2d(n, 81 * b, 3, padding=1) for n, b in zip(sizes, boxes, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of images (batch, 3, 300, 300): of places, and of classes with the hardest negatives."""
        maps = [self.body(x)]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        batch = x.shape[0]
        places = torch.cat([f(m).reshape(batch, 4, -1) for f, m in zip(self.places, maps, strict=True)], 2).float()
        classes = torch.cat([f(m).reshape(batch, 81, -1) for f, m in zip(self.classes, maps, strict=True)], 2)
        target = torch.zeros_like(places[:, 0], dtype=torch.int64)
        mask = target > 0
        place = (F.smooth_l1_loss(places, torch.zeros_like(places), reduction="none").sum(1) * mask).sum(1)
        loss = F.cross_entropy(classes.float(), target, reduction="none")
        rank = loss.detach().sort(1, descending=True)[1].sort(1)[1]
        return (place + (loss * (mask | (rank < 30))).sum(1)).mean()


class NNUNet(nn.Module):
    """nnU-Net of NVIDIA's DeepLearningExamples for task 01: five halvings, instance norm, no deep supervision."""

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        conv, norm, up = (getattr(nn, f"{kind}{dimensions}d") for kind in ("Conv", "InstanceNorm", "ConvTranspose"))
        widths = [min(32 * 2**i, 320 if dimensions == 3 else 512) for i in range(6)]

        def block(before: int, after: int, stride: int = 1) -> nn.Sequential:
            return nn.Sequential(
                conv(before, after, 3, stride, 1, bias=False), norm(after, affine=True), nn.LeakyReLU(0.01),
                conv(after, after, 3, 1, 1, bias=False), norm(after, affine=True), nn.LeakyReLU(0.01),
            )  # fmt: skip

        self.down = nn.ModuleList(
            block(before, after, 1 + (before != 4)) for before, after in zip([4, *widths], widths, strict=False)
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(up(below, above, 2, 2) for below, above in pairs)
        self.merge = nn.ModuleList(block(2 * above, above) for _, above in pairs)
        self.head = conv(widths[0], 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of volumes (batch, 4, ...): of overlaps (Dice), and cross-entropy."""
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = merge(torch.cat([up(x), skip], 1))
        logits = self.head(x)
        target = torch.zeros_like(logits[:, 0], dtype=torch.int64)
        chosen = F.one_hot(target, 4).movedim(-1, 1)[:, 1:].to(logits.dtype)
        likely = F.softmax(logits, 1)[:, 1:]
        dims = [0, *range(2, logits.dim())]
        both, either = (chosen * likely).sum(dims), chosen.sum(dims) + likely.sum(dims)
        return (1 - (2 * both + 1e-5) / (either + 1e-5)).mean() + F.cross_entropy(logits, target)


class GNMT(nn.Module):
    """GNMT v2 of NVIDIA's DeepLearningExamples: four LSTM layers read, the first in both directions, and four write."""

    def __init__(self, width: int = 1024, words: int = 32320) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.both = nn.LSTM(width, width, bidirectional=True)
        self.read = nn.ModuleList([nn.LSTM(2 * width, width), *(nn.LSTM(width, width) for _ in range(2))])
        self.query, self.key, self.score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.write = nn.ModuleList([nn.LSTM(width, width), *(nn.LSTM(2 * width, width) for _ in range(3))])
        self.head = nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        """Return the loss of words (batch, tokens), which are the source and as many of the target."""
        words = words.t()
        x = self.both(F.dropout(self.words(words), 0.2))[0]
        x = self.read[0](F.dropout(x, 0.2))[0]
        for layer in self.read[1:]:
            x = x + layer(F.dropout(x, 0.2))[0]
        y = self.write[0](F.dropout(self.words(words), 0.2))[0]
        q, k = self.query(y).transpose(0, 1), self.key(x).transpose(0, 1)
        scores = self.score(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))).squeeze(-1)  # Bahdanau's
        seen = torch.bmm(F.softmax(scores, -1).to(x.dtype), x.transpose(0, 1)).transpose(0, 1)
        for i, layer in enumerate(self.write[1:]):
            z = layer(F.dropout(torch.cat([y, seen], 2), 0.2))[0]
            y = z if i == 0 else y + z
        return F.cross_entropy(self.head(y).flatten(0, 1).float(), words.reshape(-1), label_smoothing=0.1)
