"""The GPT of `mpcourse.models.gpt` with a mixture of experts in place of each MLP."""

from typing import Any

import torch
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.experts.mixture import Mixture
from mpcourse.models.gpt import Block, Embedding, Head, Shape

Tensor = torch.Tensor


class MixtureBlock(nn.Module):
    """Attention, then a mixture of experts, each after a layer norm and added to its input.

    comm: the expert axis's communicator; None: one rank.
    shape: of the transformer.
    number: of experts. Each has the sizes of the MLP.
    options: of `Mixture`.
    """

    def __init__(self, comm: Comm | None, shape: Shape, number: int, **options: Any) -> None:
        super().__init__()
        block = Block(shape)
        del block.first, block.second
        self.attention = block
        self.mixture = Mixture(comm, shape.width, 4 * shape.width, number, **options)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (batch, length, width) like x, and the balance loss."""
        block = self.attention
        x = x + block.attention(block.norm1(x))
        mixed = self.mixture(block.norm2(x).flatten(0, 1))
        return x + mixed.out.view_as(x), mixed.balance


class MixtureGPT(nn.Module):
    """A GPT whose MLPs are experts: int64 (batch, length) to logits, and the mean balance loss of its layers.

    shape: of the transformer.
    number: of experts in each layer.
    comm: the expert axis's communicator, whose ranks have sequences of their own; None: one rank.
    options: of `Mixture`.

    It is drawn from torch's generator: seed it alike on all ranks.
    """

    def __init__(self, shape: Shape, number: int, comm: Comm | None = None, **options: Any) -> None:
        super().__init__()
        self.embedding = Embedding(shape)
        self.blocks = nn.ModuleList(MixtureBlock(comm, shape, number, **options) for _ in range(shape.layers))
        self.head = Head(shape)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x, losses = self.embedding(tokens), []
        for block in self.blocks:
            x, balance = block(x)
            losses.append(balance)
        return self.head(x), torch.stack(losses).mean()
