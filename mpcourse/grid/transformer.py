"""A small language model (decoder only, pre-norm, like GPT-2), and its cut for a grid of ranks."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.grid.tensor_parallel import ParallelAttention, ParallelMLP
from mpcourse.split.balance import balance


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer. The hidden width is 4 x width.

    vocabulary: number of different tokens.
    length: of the longest sequence.
    width: numbers that represent a token.
    heads: of a layer.
    layers: their number.
    """

    vocabulary: int
    length: int
    width: int
    heads: int
    layers: int


class Embedding(nn.Module):
    """Embeddings of tokens and of their positions: (batch, length), int64, to (batch, length, width).

    shape: of the transformer.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(shape.vocabulary, shape.width))
        self.positions = nn.Parameter(0.02 * torch.randn(shape.length, shape.width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self.weight) + self.positions[: tokens.shape[1]]


class Block(nn.Module):
    """One layer, (batch, length, width) to the same: attention, then the MLP, each after a layer norm, and added.

    shape: of the transformer.
    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    """

    def __init__(self, shape: Shape, comm: Comm | None) -> None:
        super().__init__()
        width = shape.width
        # Every rank draws the whole layer and keeps its part, so that the model does not depend on how it is cut.
        qkv, out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        first, second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = ParallelAttention(comm, qkv, out, shape.heads)
        self.mlp = ParallelMLP(comm, first, second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Head(nn.Module):
    """Logits: (batch, length, width) to (batch, length, vocabulary).

    shape: of the transformer.
    weight: (vocabulary, width), the embedding's own, because it is tied.
    """

    def __init__(self, shape: Shape, weight: nn.Parameter) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) @ self.weight.T


def transformer(shape: Shape, comm: Comm | None = None, seed: int = 0) -> nn.Sequential:
    """Make the whole model: Embedding, Blocks, Head. This rank has its share of each layer.

    shape: of the transformer.
    comm: the tensor axis's communicator, whose ranks all call this; None: this rank has all of each layer.
    seed: the same seed gives the same model on all ranks, whatever their number.

    Random numbers elsewhere are not affected.
    Raises ValueError where heads or hidden units cannot be shared equally.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedding = Embedding(shape)
        blocks = [Block(shape, comm) for _ in range(shape.layers)]
        return nn.Sequential(embedding, *blocks, Head(shape, embedding.weight))


def stage(model: nn.Sequential, stages: int, number: int) -> tuple[nn.Sequential, dict[str, nn.Parameter]]:
    """Return the consecutive layers that one stage has, and its tied parameter, by name.

    model: made by `transformer`.
    stages: their number.
    number: of the stage, from 0.

    Stages have numbers of blocks that are as equal as possible. The first and the last stage hold the tied weight, each
    its own copy if they are not the same stage.
    Raises ValueError for more stages than blocks.
    """
    blocks = len(model) - 2
    if stages > blocks:
        raise ValueError(f"a transformer of {blocks} layers cannot be cut into {stages} stages")
    sizes = balance([1] * blocks, stages)
    begin = 1 + sum(sizes[:number])
    first, last = number == 0, number == stages - 1
    part = nn.Sequential(*list(model)[0 if first else begin : len(model) if last else begin + sizes[number]])
    embedding, head = model[0], model[-1]
    assert isinstance(embedding, Embedding) and isinstance(head, Head)
    if stages == 1:
        return part, {}
    if last:
        head.weight = nn.Parameter(head.weight.detach().clone())
    if not first and not last:
        return part, {}
    return part, {"tokens": embedding.weight if first else head.weight}
