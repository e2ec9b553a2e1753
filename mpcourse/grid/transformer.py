"""The GPT of `mpcourse.models.gpt`, with its head tied to its embedding, cut for a grid of ranks."""

import torch
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.grid.tensor_parallel import ParallelAttention, ParallelMLP
from mpcourse.models.gpt import Block, Embedding, Shape
from mpcourse.split.balance import balance


class ParallelBlock(nn.Module):
    """One layer, (batch, length, width) to the same, with its attention and its MLP cut along the tensor axis.

    block: the whole layer, the same on all ranks; this rank's share is copied.
    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    """

    def __init__(self, block: Block, comm: Comm | None) -> None:
        super().__init__()
        self.norm1, self.norm2 = block.norm1, block.norm2
        self.attention = ParallelAttention(comm, block.qkv, block.out, block.heads)
        self.mlp = ParallelMLP(comm, block.first, block.second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TiedHead(nn.Module):
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
    """Make the whole model: Embedding, ParallelBlocks, TiedHead. This rank has its share of each layer.

    shape: of the transformer.
    comm: the tensor axis's communicator, whose ranks all call this; None: this rank has all of each layer.
    seed: the same seed gives the same model on all ranks, whatever their number.

    Random numbers elsewhere are not affected.
    Raises ValueError where heads or hidden units cannot be shared equally.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedding = Embedding(shape)
        # Every rank draws whole layers and keeps its part, so that the model does not depend on how it is cut.
        blocks = [ParallelBlock(Block(shape), comm) for _ in range(shape.layers)]
        return nn.Sequential(embedding, *blocks, TiedHead(shape, embedding.weight))


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
    assert isinstance(embedding, Embedding) and isinstance(head, TiedHead)
    if stages == 1:
        return part, {}
    if last:
        head.weight = nn.Parameter(head.weight.detach().clone())
    if not first and not last:
        return part, {}
    return part, {"tokens": embedding.weight if first else head.weight}
