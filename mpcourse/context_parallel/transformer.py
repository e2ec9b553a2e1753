"""The GPT of `mpcourse.models.gpt` over ranks that share the tokens of each sequence."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.context_parallel.gather import gathered_attention
from mpcourse.context_parallel.ring import ring_attention
from mpcourse.context_parallel.tokens import SharedSequence
from mpcourse.context_parallel.ulysses import ulysses_attention
from mpcourse.models.gpt import Block, Embedding, Shape, gpt

Tensor = torch.Tensor
WAYS: dict[str, Callable[..., Tensor]] = {
    "ring": ring_attention, "gather": gathered_attention, "ulysses": ulysses_attention,
}  # fmt: skip


class ContextGPT(nn.Module):
    """A GPT whose ranks each compute some tokens of a sequence: int64 (batch, own tokens) to logits of these.

    shape: of the model, which every rank has as a whole.
    way: of attention, "ring", "gather" or "ulysses".
    options: of that function, e.g. fused=False.

    Only attention needs other tokens than the rank's own; everything else treats each token by itself. `layers` is
    `mpcourse.models.gpt.gpt(shape)`, drawn from torch's generator: seed it alike on all ranks.
    Raises ValueError for another way.
    """

    def __init__(self, shape: Shape, way: str = "ring", **options: Any) -> None:
        super().__init__()
        if way not in WAYS:
            raise ValueError(f"way is {', '.join(map(repr, WAYS))}, not {way!r}")
        self.attend = partial(WAYS[way], **options)
        self.layers = gpt(shape)

    def forward(self, own: Tensor, tokens: SharedSequence) -> Tensor:
        """Return logits, (batch, own tokens, vocabulary). All ranks call it.

        own: this rank's tokens, as `tokens.own` cuts them.
        tokens: says which these are.
        """
        embedding, *blocks, head = self.layers
        assert isinstance(embedding, Embedding)
        x = F.embedding(own, embedding.weight) + embedding.positions[tokens.positions]
        for layer in blocks:
            assert isinstance(layer, Block)
            x = x + self._attention(layer, layer.norm1(x), tokens)
            x = x + layer.second(F.gelu(layer.first(layer.norm2(x))))
        return head(x)

    def _attention(self, layer: Block, x: Tensor, tokens: SharedSequence) -> Tensor:
        q, k, v = (part.unflatten(2, (layer.heads, -1)).transpose(1, 2) for part in layer.qkv(x).chunk(3, dim=2))
        return layer.out(self.attend(tokens, q, k, v).transpose(1, 2).flatten(2))
