"""The GPT of `mpcourse.models.gpt`, with its head tied to its embedding, cut for a grid of ranks."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.context_parallel import SharedSequence, ring_attention
from mpcourse.experts import Mixture
from mpcourse.models.gpt import Block, Embedding, Shape
from mpcourse.split.balance import balance
from mpcourse.tensor_parallel import Generators, ParallelBlock


class FirstLayer(Embedding):
    """Vectors of tokens and positions: int64 (batch, length) to (length, batch, width), as tensor parallelism has it.

    shape: of the transformer.
    tokens: with a context axis, which of them this rank has; None: all.
    """

    def __init__(self, shape: Shape, tokens: SharedSequence | None = None) -> None:
        super().__init__(shape)
        self.tokens = tokens

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        at = slice(tokens.shape[1]) if self.tokens is None else self.tokens.positions
        return (F.embedding(tokens, self.weight) + self.positions[at]).transpose(0, 1).contiguous()


class ExpertBlock(ParallelBlock):
    """A layer with a mixture of experts in place of its MLP: (length, batch, width) to the same.

    comm: the tensor axis's communicator, which cuts the attention. Its ranks have the same experts.
    block: the whole layer, the same on all ranks; its MLP is not used.
    mixture: of experts; its balance loss is not used.
    options: of `ParallelBlock`.
    """

    def __init__(self, comm: Comm | None, block: Block, mixture: Mixture, **options: Any) -> None:
        super().__init__(comm, block, **options)
        del self.mlp
        self.mixture = mixture

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mixture(self.norm2(x).flatten(0, 1)).out.view_as(x)


class TiedHead(nn.Module):
    """Logits: (length, batch, width) to (batch, length, vocabulary).

    shape: of the transformer.
    weight: (vocabulary, width), the embedding's own, because it is tied.
    """

    def __init__(self, shape: Shape, weight: nn.Parameter) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(0, 1)) @ self.weight.T


def transformer(
    shape: Shape,
    comm: Comm | None = None,
    seed: int = 0,
    *,
    tokens: SharedSequence | None = None,
    experts: int = 0,
    expert_comm: Comm | None = None,
    k: int = 1,
) -> nn.Sequential:
    """Make the whole model: FirstLayer, ParallelBlocks, TiedHead. This rank has its share of each layer.

    shape: of the transformer.
    comm: the tensor axis's communicator, whose ranks all call this; None: this rank has all of each layer.
    seed: the same seed gives the same model on all ranks, whatever their number.
    tokens: a sequence that the context axis's ranks share; attention goes round their ring. None: all tokens are here.
    experts: number of experts in each layer, in place of the MLP; 0: none.
    expert_comm: the expert axis's communicator; None: this rank has all experts.
    k: experts of a token. No token is dropped.

    Random numbers elsewhere are not affected.
    Raises ValueError where heads, hidden units or experts cannot be shared equally.
    """
    attend = None if tokens is None else partial(ring_attention, tokens)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedding = FirstLayer(shape, tokens)
        # Every rank draws whole layers and keeps its part, so that the model does not depend on how it is cut.
        generators = Generators(comm, seed)
        blocks: list[ParallelBlock] = []
        for _ in range(shape.layers):
            block = Block(shape)
            if experts:
                mixture = Mixture(expert_comm, shape.width, 4 * shape.width, experts, k)
                blocks.append(ExpertBlock(comm, block, mixture, generators=generators, attend=attend))
            else:
                blocks.append(ParallelBlock(comm, block, generators=generators, attend=attend))
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
