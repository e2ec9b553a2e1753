"""The models of published plans, built as those that trained them built theirs: Megatron-LM's, and Llama 3."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.plan.counting import CountingComm
from mpcourse.tensor_parallel import copy_in, own_rows, sum_out


class TokenEmbedding(nn.Module):
    """Tokens -> (batch, length, width), each rank with its share of the vocabulary; positions too, where length > 0."""

    def __init__(self, comm: Comm | None, vocabulary: int, length: int, width: int, dropout: float) -> None:
        super().__init__()
        self.comm, self.dropout, own = comm, dropout, own_rows(comm, vocabulary, "tokens")
        self.weight = nn.Parameter(torch.empty(own.stop - own.start, width))
        self.positions = nn.Parameter(torch.empty(length, width)) if length else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = sum_out(self.comm, F.embedding(tokens, self.weight))
        x = x if self.positions is None else x + self.positions
        return F.dropout(x, self.dropout) if self.dropout else x


class LossHead(nn.Module):
    """(batch, length, width) -> the loss of each token: logits of a share of the vocabulary, in float32 for the loss.

    Sums over ranks: of the largest logit, the exponentials and the own token's logit, a number a token each.
    """

    def __init__(self, comm: Comm | None, norm: nn.Module, vocabulary: int, width: int) -> None:
        super().__init__()
        own = own_rows(comm, vocabulary, "tokens")
        self.comm, self.norm = comm, norm
        self.weight = nn.Parameter(torch.empty(own.stop - own.start, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = (copy_in(self.comm, self.norm(x)) @ self.weight.T).float()
        return sum_out(self.comm, logits.exp().sum(-1)).log() - sum_out(self.comm, logits[..., 0])


class MegatronLayer(nn.Module):
    """A layer of Megatron-LM: attention by two products and a softmax, with dropout, as in 2021; biases and GELU.

    Scale, mask and softmax are one kernel there, as softmax is here; so are bias, dropout and addition. This is code to
    be priced, not to be trained: what is to be dropped is not drawn.

    fused: attention is one kernel, as from 2023 on.
    """

    def __init__(self, comm: Comm | None, width: int, heads: int, fused: bool = False, dropout: float = 0.1) -> None:
        super().__init__()
        t, bias = (1, True) if comm is None else (comm.size, comm.rank == 0)  # one rank adds what all others would too
        own_rows(comm, heads, "heads")
        self.comm, self.head, self.fused, self.dropout = comm, width // heads, fused, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width // t), nn.Linear(width // t, width, bias)
        self.first, self.second = nn.Linear(width, 4 * width // t), nn.Linear(4 * width // t, width, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self._dropped_onto(x, sum_out(self.comm, self._attention(copy_in(self.comm, self.norm1(x)))))
        partial = self.second(F.gelu(self.first(copy_in(self.comm, self.norm2(x)))))
        return self._dropped_onto(x, sum_out(self.comm, partial))

    def _dropped_onto(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Compute x + dropout(y) in one kernel, but for a factor."""
        return torch.addcmul(x, y, x.new_empty(x.shape, dtype=torch.uint8))

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (self._by_head(part) for part in self.qkv(x).chunk(3, dim=-1))
        if self.fused:
            q, k, v = (part.unflatten(0, (batch, -1)) for part in (q, k, v))
            return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        nothing = x.new_empty(1, 1, 1).expand(len(q), length, length)
        scores = torch.baddbmm(nothing, q, k.transpose(1, 2), beta=0, alpha=1 / math.sqrt(self.head))
        mixed = torch.bmm(F.dropout(scores.softmax(-1), self.dropout), v)
        return self.out(mixed.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2))

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, heads * head) -> (batch * heads, length, head)."""
        return x.unflatten(2, (-1, self.head)).transpose(1, 2).flatten(0, 1)


def megatron(
    comm: Comm | None, width: int, heads: int, layers: int, vocabulary: int, length: int, fused: bool = False
) -> nn.Sequential:
    """Embedding, layers, head; the weight of the first and the last is one, tied. fused: attention is one kernel."""
    embedding = TokenEmbedding(comm, vocabulary, length, width, 0.1)
    head = LossHead(comm, nn.LayerNorm(width), vocabulary, width)
    head.weight = embedding.weight
    return nn.Sequential(embedding, *(MegatronLayer(comm, width, heads, fused) for _ in range(layers)), head)


class LlamaLayer(nn.Module):
    """A layer of Llama 3: norms, rotary positions, grouped queries with fused causal attention, SwiGLU; no biases.

    Its norms divide by the root of the mean square in one kernel. torch takes several for it, so layer norms stand in,
    which are one kernel and read and write as much. This is code to be priced, not to be trained.

    context: of a context axis, whose ranks have two of 2 x size chunks of each sequence, one from each end, and gather
    keys and values of the whole (Llama 3, section 3.3.2).
    """

    def __init__(
        self, comm: Comm | None, width: int, heads: int, groups: int, hidden: int, context: CountingComm | None
    ) -> None:
        super().__init__()
        self.context = context
        t = 1 if comm is None else comm.size
        own_rows(comm, groups, "groups of heads")
        self.comm, self.head, self.heads, self.groups = comm, width // heads, heads // t, groups // t
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.groups) * self.head, False)
        self.out = nn.Linear(width // t, width, False)
        self.gate, self.up = nn.Linear(width, hidden // t, False), nn.Linear(width, hidden // t, False)
        self.down = nn.Linear(hidden // t, width, False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + sum_out(self.comm, self._attention(copy_in(self.comm, self.norm1(x))))
        h = copy_in(self.comm, self.norm2(x))
        return x + sum_out(self.comm, self.down(F.silu(self.gate(h)) * self.up(h)))

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        sizes = [n * self.head for n in (self.heads, self.groups, self.groups)]
        q, k, v = (part.unflatten(2, (-1, self.head)).transpose(1, 2) for part in self.qkv(x).split(sizes, -1))
        q, k = self._rotated(q), self._rotated(k)
        if self.context is not None:
            k, v = self._of_half_a_sequence(k), self._of_half_a_sequence(v)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.context is None, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _of_half_a_sequence(self, x: torch.Tensor) -> torch.Tensor:
        """Return keys or values of half of the sequence, gathered from all ranks.

        With a chunk from each end, the queries of any rank see half of the keys on average.
        """
        assert self.context is not None
        self.context.count_gather(x.nbytes * self.context.size)
        return x.repeat(1, 1, self.context.size // 2, 1)

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Read and write what rotary positions do, in one kernel: each number once."""
        return x * x.new_empty(x.shape[-2], x.shape[-1])


def llama(
    comm: Comm | None,
    width: int,
    heads: int,
    groups: int,
    hidden: int,
    layers: int,
    vocabulary: int,
    context: CountingComm | None = None,
) -> nn.Sequential:
    """Embedding, layers, head, which is not tied."""
    return nn.Sequential(
        TokenEmbedding(comm, vocabulary, 0, width, 0.0),
        *(LlamaLayer(comm, width, heads, groups, hidden, context) for _ in range(layers)),
        LossHead(comm, nn.LayerNorm(width, bias=False), vocabulary, width),
    )
