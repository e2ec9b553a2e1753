"""The GPT of `mpcourse.models.gpt`, cut over the ranks of a tensor axis. Activations are (length, batch, width)."""

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import nn

from mpcourse.collectives.tensors import own_rows
from mpcourse.common.comm import Comm
from mpcourse.models.gpt import Block, Embedding, Head, Shape
from mpcourse.tensor_parallel.layers import Attend, ParallelAttention, ParallelMLP, linears
from mpcourse.tensor_parallel.parts import ParallelLayer
from mpcourse.tensor_parallel.random_numbers import Generators, dropout
from mpcourse.tensor_parallel.recompute import recompute
from mpcourse.tensor_parallel.vocabulary import VocabularyEmbedding

Tensor = torch.Tensor


@dataclass(frozen=True)
class Options:
    """How a transformer is cut and trained.

    sequence: between a row-parallel and the next column-parallel layer, each rank has the rows of its own tokens alone
    (sequence parallelism).
    dropout: probability, for attention weights, and for what attention and MLP add to their inputs.
    fused: attention is one call of torch's; with dropout or selective recomputation it is written out.
    overlap: messages travel while products are computed.
    recompute: "none"; "selective", the written-out attention alone; "full", all of each layer but its input.
    """

    sequence: bool = False
    dropout: float = 0.0
    fused: bool = True
    overlap: bool = False
    recompute: str = "none"

    def __post_init__(self) -> None:
        if self.recompute not in ("none", "selective", "full"):
            raise ValueError(f'recompute is "none", "selective" or "full", not {self.recompute!r}')
        if self.fused and (self.dropout or self.recompute == "selective"):
            raise ValueError("dropout and selective recomputation need fused=False")


class ParallelBlock(ParallelLayer):
    """A layer of a transformer, with its attention and its MLP cut: (length, batch, width) to the same.

    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    block: the whole layer, the same on all ranks; this rank's part is copied.
    options: with `sequence`, takes and returns this rank's rows.
    generators: draw for dropout.
    attend: attention over another axis, as in `ParallelAttention`.

    Two all-reduces forward and two backward. With `sequence`, two all-gathers and two reduce-scatters forward, as many
    backward, and two more all-gathers backward.
    """

    def __init__(
        self, comm: Comm | None, block: Block, options: Options | None = None, generators: Generators | None = None,
        attend: Attend | None = None,
    ) -> None:  # fmt: skip
        super().__init__(comm)
        self.options = o = options or Options()
        self.generators = generators or Generators(comm)
        self.norm1, self.norm2 = deepcopy(block.norm1), deepcopy(block.norm2)
        self.attention = ParallelAttention(
            comm, block.qkv, block.out, block.heads, sequence=o.sequence, dropout=o.dropout,
            generators=self.generators, fused=o.fused, again=o.recompute == "selective", overlap=o.overlap,
            attend=attend,
        )  # fmt: skip
        self.mlp = ParallelMLP(comm, block.first, block.second, o.sequence, o.overlap)
        self.partial = _of_norms(self) if o.sequence else []

    def forward(self, x: Tensor) -> Tensor:
        if self.options.recompute == "full":
            return recompute(self._forward, x, generators=self.generators)
        return self._forward(x)

    def _forward(self, x: Tensor) -> Tensor:
        drawn = self.generators.drawn(self.options.sequence)
        x = x + dropout(self.attention(self.norm1(x)), self.options.dropout, drawn)
        return x + dropout(self.mlp(self.norm2(x)), self.options.dropout, drawn)


class ParallelEmbedding(ParallelLayer):
    """Add the embeddings of tokens and of their positions: int64 (batch, length) to (length, batch, width).

    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    embedding: the whole, the same on all ranks; of the vocabulary, this rank's part is copied.
    options: with `sequence`, returns this rank's rows, (length / p, batch, width).
    generators: draw for dropout.
    """

    def __init__(
        self,
        comm: Comm | None,
        embedding: Embedding,
        options: Options | None = None,
        generators: Generators | None = None,
    ) -> None:
        super().__init__(comm)
        self.options = options or Options()
        self.generators = generators or Generators(comm)
        self.sequence = sequence = self.options.sequence
        self.tokens = VocabularyEmbedding(comm, embedding.weight, sequence)
        self.positions = deepcopy(embedding.positions)
        self.partial = ["positions"] if sequence else []

    def forward(self, tokens: Tensor) -> Tensor:
        positions = self.positions[: tokens.shape[1], None]
        if self.sequence:
            positions = positions[own_rows(self.comm, len(positions), "tokens")]
        return dropout(self.tokens(tokens.T) + positions, self.options.dropout, self.generators.drawn(self.sequence))


class ParallelHead(ParallelLayer):
    """Normalise, and compute logits: (length, batch, width) to (length, batch, this rank's part of the vocabulary).

    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    head: the whole, the same on all ranks; this rank's part is copied.
    options: with `sequence`, takes this rank's rows, and returns logits of all.
    """

    def __init__(self, comm: Comm | None, head: Head, options: Options | None = None) -> None:
        super().__init__(comm)
        options = options or Options()
        self.norm = deepcopy(head.norm)
        self.linear = linears(options.overlap)[0](comm, head.linear, options.sequence)
        self.partial = _of_norms(self) if options.sequence else []

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


def parallel_gpt(
    shape: Shape,
    comm: Comm | None = None,
    options: Options | None = None,
    *,
    tied: bool = False,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> nn.Sequential:
    """Make a GPT of layers + 2 modules, cut over the ranks: int64 (batch, length) to (length, batch, part of logits).

    shape: of the whole model.
    comm: the tensor axis's communicator, whose ranks all call this; None: one rank, which has the whole model.
    options: how it is cut and trained.
    tied: the head's weights are the embedding's.
    seed: the same on all ranks; the whole model's weights depend on it alone, not on the number of ranks.
    device: where the model is; None: on torch's default device.

    `vocabulary_loss` takes its logits, and `sum_partial_gradients` is called after backward. Every rank draws a whole
    layer and keeps its part. Random numbers elsewhere are not affected.
    Raises ValueError where heads cannot be shared equally.
    """
    options, place = options or Options(), torch.device(device) if device else torch.get_default_device()
    generators = Generators(comm, seed, "cpu" if place.type == "meta" else place)
    with torch.random.fork_rng(devices=[]), place:
        torch.manual_seed(seed)
        first = ParallelEmbedding(comm, Embedding(shape), options, generators)
        blocks = [ParallelBlock(comm, Block(shape), options, generators) for _ in range(shape.layers)]
        head = ParallelHead(comm, Head(shape), options)
    if tied:
        head.linear.weight = first.tokens.weight
    return nn.Sequential(first, *blocks, head)


def _of_norms(module: nn.Module) -> list[str]:
    """Return the names of all parameters of a layer's own norms."""
    return [name for name, _ in module.named_parameters() if name.startswith("norm")]
