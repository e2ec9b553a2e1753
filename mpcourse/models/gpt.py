"""A small GPT: a transformer that predicts the next token from all earlier ones.

The layers are those of GPT-2: a block normalises its input, not its output, and a last layer norm follows the blocks
(Alec Radford and others, Language Models are Unsupervised Multitask Learners, 2019, https://github.com/openai/gpt-2).
Unlike GPT-2, this model has no dropout, and its head is untied: it has weights of its own, not the embedding's, so that
the layers can be put on different devices. `mpcourse.grid.transformer` cuts the same blocks for a grid of ranks.

Work: a training step on D tokens takes about 6 N D FLOPs, and the forward pass alone 2 N a token. N counts the
parameters without the two embeddings, which are looked up and not multiplied. Attention adds about 2 x length x width
FLOPs a layer and a token to the forward pass, where pairs with a later token are skipped (Jared Kaplan and others,
Scaling Laws for Neural Language Models, 2020, section 2.1, https://arxiv.org/abs/2001.08361).
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer. The MLP's hidden width is 4 x width.

    vocabulary: number of different tokens.
    length: tokens of the longest sequence.
    width: numbers that represent a token, a multiple of `heads`.
    heads: attention heads of a block.
    layers: number of blocks.
    """

    vocabulary: int
    length: int
    width: int
    heads: int
    layers: int


SMALL = Shape(vocabulary=96, length=64, width=64, heads=4, layers=4)  # 216 448 parameters; trains in seconds
GPT2 = Shape(vocabulary=50257, length=1024, width=768, heads=12, layers=12)  # the smallest GPT-2, for dry runs


class Embedding(nn.Module):
    """Add the embeddings of tokens and of their positions: (batch, length), int64, to (batch, length, width).

    shape: of the transformer.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(shape.vocabulary, shape.width))
        self.positions = nn.Parameter(0.02 * torch.randn(shape.length, shape.width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self.weight) + self.positions[: tokens.shape[1]]


class Block(nn.Module):
    """Attention, then an MLP, each after a layer norm and added to its input: (batch, length, width) to the same.

    shape: of the transformer.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.qkv = nn.Linear(width, 3 * width)  # queries, keys and values, each head by head
        self.out = nn.Linear(width, width)
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.second(F.gelu(self.first(self.norm2(x))))

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Mix each token with the earlier ones, and with no later one: (batch, length, width) to the same.

        x: normalised.
        """
        q, k, v = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (batch, heads, length, width / heads)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Head(nn.Module):
    """Normalise, and compute a logit for each token of the vocabulary: (batch, length, width) to (..., vocabulary).

    shape: of the transformer.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.linear = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(x))


def gpt(shape: Shape = SMALL) -> nn.Sequential:
    """Make a GPT of layers + 2 modules, one after the other. (batch, length), int64 -> (batch, length, vocabulary).

    shape: its sizes.

    Raises ValueError where the heads cannot share the width.
    """
    if shape.width % shape.heads:
        raise ValueError(f"{shape.heads} heads cannot share a width of {shape.width} equally")
    return nn.Sequential(Embedding(shape), *(Block(shape) for _ in range(shape.layers)), Head(shape))


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next token, in nats. One that knows nothing has ln(vocabulary).

    logits: (batch, length, vocabulary), as `gpt` returns them.
    targets: int64 (batch, length), the token that follows.
    """
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
