"""Transformers by their configuration: a name of models.toml, or a config.json of the library transformers.

A plan needs no weights, only the sizes of layers. These models are code to be priced, not to be trained.
"""

import difflib
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.common.errors import UserError
from mpcourse.grid.tensor_parallel import copy_in, share, sum_out


@dataclass(frozen=True)
class Configuration:
    """Sizes of a transformer, a decoder or an encoder.

    layers: their number.
    width: numbers that represent a token.
    heads: of attention, for queries.
    groups: heads for keys and values.
    head: width of a head.
    hidden: width of the MLP.
    vocabulary: number of different tokens.
    positions: rows of the position table; 0: rotary positions.
    gated: the MLP has three matrices (SwiGLU); otherwise two, with GELU between them.
    causal: a token attends to earlier ones alone.
    tied: the head's weights are the embedding's.
    qkv_bias, bias: of the queries, keys and values; of all other layers.
    """

    layers: int
    width: int
    heads: int
    groups: int
    head: int
    hidden: int
    vocabulary: int
    positions: int = 0
    gated: bool = False
    causal: bool = True
    tied: bool = False
    qkv_bias: bool = True
    bias: bool = True

    def make(self, comm: Comm | None = None) -> nn.Sequential:
        """Make the model, or a rank's share of it: embedding, layers, head, which returns the loss.

        comm: the communicator of the tensor axis, or None.
        Raises ValueError where heads, hidden units or tokens cannot be shared equally.
        """
        embedding = _Embedding(comm, self)
        head = _Head(comm, self)
        if self.tied:
            head.weight = embedding.weight
        return nn.Sequential(embedding, *(_Layer(comm, self) for _ in range(self.layers)), head)


# By family: the keys of config.json, in the order of _KEYS, and what the family has. A key that is missing from the
# file has the default of the library.
_KEYS = ("layers", "width", "heads", "groups", "head", "hidden", "vocabulary", "positions", "tied")
_USUAL = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "", "tie_word_embeddings",
)  # fmt: skip
_LEARNED = (*_USUAL[:7], "max_position_embeddings", "tie_word_embeddings")
_NEEDED = ("layers", "width", "heads", "vocabulary")
_FAMILIES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "gpt2": (
        ("n_layer", "n_embd", "n_head", "", "", "n_inner", "vocab_size", "n_positions", "tie_word_embeddings"),
        {"tied": True},
    ),
    "opt": ((*_LEARNED[:5], "ffn_dim", *_LEARNED[6:]), {"tied": True}),
    "gpt_neox": (_USUAL, {"tied": False}),
    "bert": (_LEARNED, {"tied": True, "causal": False}),
    "roberta": (_LEARNED, {"tied": True, "causal": False}),
    "llama": (_USUAL, {"gated": True, "qkv_bias": False, "bias": False, "tied": False}),
    "mistral": (_USUAL, {"gated": True, "qkv_bias": False, "bias": False, "tied": False}),
    "qwen2": (_USUAL, {"gated": True, "bias": False, "tied": False}),
}


def configured(name: str) -> Callable[[Comm | None], nn.Sequential]:
    """Return the function that makes a model; it takes the communicator of the tensor axis, or None.

    name: of models.toml, or the path of a config.json.
    Raises UserError for an unknown name, and for a file that is no configuration of a known family.
    """
    configuration = read(name)

    def make(comm: Comm | None) -> nn.Sequential:
        return configuration.make(comm)

    return make


def read(name: str) -> Configuration:
    """Return a configuration.

    name: of models.toml, or the path of a config.json.
    Raises UserError for an unknown name, and for a file that is no configuration of a known family.
    """
    known = tomllib.loads(files("mpcourse.plan").joinpath("models.toml").read_text(encoding="utf-8"))
    if name in known:
        return parsed(known[name]["config"], name)
    path = Path(name)
    if not path.suffix and not path.exists():
        near = difflib.get_close_matches(name.lower(), list(known), 3, 0.5) or list(known)
        raise UserError(f"no model {name!r}: try {', '.join(near)}, or the path of a config.json")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{name} is no readable config.json: {' '.join(str(error).split())}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{name} is no config.json: it holds a {type(fields).__name__}")
    return parsed(fields, name)


def parsed(fields: dict[str, Any], name: str) -> Configuration:
    """Return the configuration that the fields of a config.json describe.

    fields: as the file has them.
    name: of the model or its file, for errors.
    Raises UserError for an unknown family, a mixture of experts, and sizes that are missing or impossible.
    """
    family = fields.get("model_type", "")
    if any("expert" in key for key in fields):
        raise UserError(f"{name} is a mixture of experts, which a plan does not know: give its own FILE:FUNCTION")
    if family not in _FAMILIES:
        raise UserError(
            f"{name} has model_type {family!r}; known are {', '.join(_FAMILIES)}. For others, write a function "
            "that makes the model, and give FILE:FUNCTION"
        )
    keys, own = _FAMILIES[family]
    found = {mine: fields[key] for mine, key in zip(_KEYS, keys, strict=True) if fields.get(key) is not None}
    sizes = dict(own) | found
    missing = [key for mine, key in zip(_KEYS, keys, strict=True) if mine in _NEEDED and mine not in sizes]
    if missing:
        raise UserError(f"{name} lacks {', '.join(missing)}")
    wrong = [key for mine, key in zip(_KEYS, keys, strict=True) if mine != "tied" and not _is_size(sizes.get(mine, 1))]
    if wrong:
        raise UserError(f"{name}: {', '.join(wrong)} must be a whole number from 1 on")
    width, heads = sizes["width"], sizes["heads"]
    if "head" not in sizes and width % heads:
        raise UserError(f"{name}: {heads} heads do not divide a width of {width}")
    usual = {"groups": heads, "head": width // heads, "hidden": 4 * width}
    return Configuration(**(usual | sizes))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _share_of_vocabulary(comm: Comm | None, c: Configuration) -> nn.Parameter:
    """Return weights for a rank's share of the vocabulary, which is padded until all ranks have equally many tokens."""
    t = 1 if comm is None else comm.size
    return nn.Parameter(torch.empty(-(-c.vocabulary // t), c.width))


class _Embedding(nn.Module):
    """Tokens -> (batch, length, width)."""

    def __init__(self, comm: Comm | None, c: Configuration) -> None:
        super().__init__()
        self.comm, self.weight = comm, _share_of_vocabulary(comm, c)
        self.positions = nn.Parameter(torch.empty(c.positions, c.width)) if c.positions else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, length = sum_out(self.comm, F.embedding(tokens, self.weight)), tokens.shape[1]
        if self.positions is None:
            return x
        if length > len(self.positions):
            raise ValueError(f"{length} tokens are more than the {len(self.positions)} positions of the model")
        return x + self.positions[:length]


class _Layer(nn.Module):
    """Attention, then an MLP, each after a norm and added to its input.

    Norms by the root of the mean square are one kernel in today's trainings. torch takes several for it, so layer norms
    stand in, which read and write as much. Rotary positions are one kernel here, too.
    """

    def __init__(self, comm: Comm | None, c: Configuration) -> None:
        super().__init__()
        t, first = (1, True) if comm is None else (comm.size, comm.rank == 0)
        share(comm, c.groups, "heads of keys and values")
        share(comm, c.hidden, "hidden units")
        self.comm, self.c, self.heads, self.groups = comm, c, c.heads // t, c.groups // t
        self.norm1, self.norm2 = (nn.LayerNorm(c.width, bias=c.bias) for _ in range(2))
        self.qkv = nn.Linear(c.width, (self.heads + 2 * self.groups) * c.head, c.qkv_bias)
        self.out = nn.Linear(self.heads * c.head, c.width, c.bias and first)  # one rank adds what all others would too
        self.up = nn.Linear(c.width, c.hidden // t, c.bias)
        self.gate = nn.Linear(c.width, c.hidden // t, c.bias) if c.gated else None
        self.down = nn.Linear(c.hidden // t, c.width, c.bias and first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + sum_out(self.comm, self._attention(copy_in(self.comm, self.norm1(x))))
        h = copy_in(self.comm, self.norm2(x))
        inner = F.gelu(self.up(h)) if self.gate is None else F.silu(self.gate(h)) * self.up(h)
        return x + sum_out(self.comm, self.down(inner))

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        sizes = [n * self.c.head for n in (self.heads, self.groups, self.groups)]
        q, k, v = (part.unflatten(2, (-1, self.c.head)).transpose(1, 2) for part in self.qkv(x).split(sizes, -1))
        if not self.c.positions:
            q, k = (part * part.new_empty(part.shape[-2:]) for part in (q, k))
        grouped = self.heads != self.groups
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.c.causal, enable_gqa=grouped)
        return self.out(mixed.transpose(1, 2).flatten(2))


class _Head(nn.Module):
    """(batch, length, width) -> the loss: cross-entropy in float32 over a rank's share of the vocabulary.

    Three sums over ranks, of a number a token each: the largest logit, the exponentials, the own token's logit.
    """

    def __init__(self, comm: Comm | None, c: Configuration) -> None:
        super().__init__()
        self.comm, self.norm = comm, nn.LayerNorm(c.width, bias=c.bias)
        self.weight = _share_of_vocabulary(comm, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = (copy_in(self.comm, self.norm(x)) @ self.weight.T).float().flatten(0, 1)
        if self.comm is None:
            return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64, device=x.device))
        return (sum_out(self.comm, logits.exp().sum(-1)).log() - sum_out(self.comm, logits[..., 0])).mean()
