"""Transformers by their configuration: a name of models.toml, or a config.json of the library transformers.

A plan needs no weights, only the sizes of layers. These models are code to be priced, not to be trained.
"""

import difflib
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.common.errors import UserError
from mpcourse.plan.counting import CountingComm
from mpcourse.plan.losses import LOSSES, Chunked, Fused, plain
from mpcourse.tensor_parallel import copy_in, own_rows, sum_out

ADAPTED = ("q", "k", "v", "out", "gate", "up", "down")


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
    sequence_parallel: ranks of the tensor axis share what is between their products, each with its part of the
    sequence (Korthikanti et al. 2022, section 4.2.2); otherwise each has all of it.
    loss: one of LOSSES (losses.py).
    lora: rank of the adapters that are trained, while all else is frozen (Hu et al. 2021, LoRA); 0: all is trained.
    adapted: layers of a block that have adapters, of ADAPTED.
    experts: MLPs of each layer; a router chooses some of them for each token. 0: one MLP for all tokens.
    chosen: experts of a token.
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
    sequence_parallel: bool = True
    loss: str = "float32"
    lora: int = 0
    adapted: tuple[str, ...] = ADAPTED
    experts: int = 0
    chosen: int = 0

    def make(
        self, comm: Comm | None = None, context: CountingComm | None = None, expert: CountingComm | None = None
    ) -> nn.Sequential:
        """Make the model, or a rank's share of it: embedding, layers, head, which returns the loss.

        comm: the communicator of the tensor axis, or None.
        context: that of a context axis, whose ranks gather keys and values of whole sequences; None: there is none.
        expert: that of an expert axis, whose ranks share the experts of each layer; None: there is none.
        Raises ValueError where heads, hidden units, experts or tokens cannot be shared equally, for adapters or experts
        along the tensor axis, and for adapters of experts.
        """
        if comm is not None and (self.lora or self.experts):
            raise ValueError(f"{'adapters' if self.lora else 'experts'} are not known along the tensor axis")
        if expert is not None and (self.lora or not self.experts):
            raise ValueError("along the expert axis a model needs experts, and has no adapters")
        if self.experts and self.lora and {"gate", "up", "down"} & {*self.adapted}:
            raise ValueError("adapters of experts are not known: give other layers")
        embedding = _Embedding(comm, self)
        head = _Head(comm, self)
        if self.tied:
            head.weight = embedding.weight
        model = nn.Sequential(embedding, *(_Layer(comm, self, context, expert) for _ in range(self.layers)), head)
        if self.lora:
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(".adapters." in name)
        return model


# By family: the keys of config.json, in the order of _KEYS, and what the family has. A key that is missing from the
# file has the default of the library.
_KEYS = (
    "layers", "width", "heads", "groups", "head", "hidden", "vocabulary", "positions", "tied", "experts", "chosen",
)  # fmt: skip
_USUAL = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "", "tie_word_embeddings", "", "",
)  # fmt: skip
_LEARNED = (*_USUAL[:7], "max_position_embeddings", "tie_word_embeddings", "", "")
_GATED: dict[str, Any] = {"gated": True, "qkv_bias": False, "bias": False, "tied": False}
_NEEDED = ("layers", "width", "heads", "vocabulary")
_FAMILIES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "gpt2": (
        ("n_layer", "n_embd", "n_head", "", "", "n_inner", "vocab_size", "n_positions", "tie_word_embeddings", "", ""),
        {"tied": True},
    ),
    "opt": ((*_LEARNED[:5], "ffn_dim", *_LEARNED[6:]), {"tied": True}),
    "gpt_neox": (_USUAL, {"tied": False}),
    "bert": (_LEARNED, {"tied": True, "causal": False}),
    "roberta": (_LEARNED, {"tied": True, "causal": False}),
    "llama": (_USUAL, _GATED),
    "mistral": (_USUAL, _GATED),
    "qwen2": (_USUAL, _GATED | {"qkv_bias": True}),
    "mixtral": ((*_USUAL[:9], "num_local_experts", "num_experts_per_tok"), _GATED),
    "olmoe": ((*_USUAL[:9], "num_experts", "num_experts_per_tok"), _GATED),
    "qwen3_moe": (
        (*_USUAL[:5], "moe_intermediate_size", *_USUAL[6:9], "num_experts", "num_experts_per_tok"),
        _GATED,
    ),
}


def configured(
    name: str, loss: str = "float32", lora: int = 0, adapted: Sequence[str] = ()
) -> Callable[..., nn.Sequential]:
    """Return the function that makes a model; it takes communicators of the tensor, context and expert axis, or None.

    name: of models.toml, or the path of a config.json.
    loss: one of LOSSES (losses.py).
    lora: rank of adapters; 0: there are none.
    adapted: which layers have them, of ADAPTED; empty: all.
    Raises UserError for an unknown name, loss or layer, and for a file that is no configuration of a known family.
    """
    if loss not in LOSSES:
        raise UserError(f"--loss {loss}: choose from {', '.join(LOSSES)}")
    if lora < 0 or not set(adapted) <= set(ADAPTED):
        raise UserError(f"--lora {' '.join(map(str, [lora, *adapted]))}: give a rank, then any of {' '.join(ADAPTED)}")
    configuration = replace(read(name), loss=loss, lora=lora, adapted=tuple(adapted) or ADAPTED)

    def make(
        comm: Comm | None, context: CountingComm | None = None, expert: CountingComm | None = None
    ) -> nn.Sequential:
        return configuration.make(comm, context, expert)

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
    Raises UserError for an unknown family, a mixture of experts of another kind, and sizes that are missing or
    impossible.
    """
    family = fields.get("model_type", "")
    mixture = family in _FAMILIES and bool(_FAMILIES[family][0][-1])
    if not mixture and any("expert" in key for key in fields):
        raise UserError(f"{name} is a mixture of experts of a kind that a plan does not know: give its FILE:FUNCTION")
    if fields.get("mlp_only_layers") or fields.get("decoder_sparse_step", 1) != 1:
        raise UserError(f"{name} has layers without experts among those with experts: give its own FILE:FUNCTION")
    if family not in _FAMILIES:
        raise UserError(
            f"{name} has model_type {family!r}; known are {', '.join(_FAMILIES)}. For others, write a function "
            "that makes the model, and give FILE:FUNCTION"
        )
    keys, own = _FAMILIES[family]
    found = {mine: fields[key] for mine, key in zip(_KEYS, keys, strict=True) if fields.get(key) is not None}
    sizes = dict(own) | found
    needed = (*_NEEDED, "experts", "chosen") if mixture else _NEEDED
    missing = [key for mine, key in zip(_KEYS, keys, strict=True) if mine in needed and mine not in sizes]
    if missing:
        raise UserError(f"{name} lacks {', '.join(missing)}")
    wrong = [key for mine, key in zip(_KEYS, keys, strict=True) if mine != "tied" and not _is_size(sizes.get(mine, 1))]
    if wrong:
        raise UserError(f"{name}: {', '.join(wrong)} must be a whole number from 1 on")
    width, heads = sizes["width"], sizes["heads"]
    if sizes.get("chosen", 0) > sizes.get("experts", 0):
        raise UserError(f"{name}: a token goes to {sizes['chosen']} experts, and there are {sizes['experts']}")
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


class _GatheredProducts(torch.autograd.Function):
    """Gather the parts of a sequence, and multiply by weights; only the own part is saved for backward.

    Backward gathers once more, while it computes, and reduce-scatters the gradient. With the all-gather of `_Scattered`
    this takes as long as one all-reduce, which is counted here. Forward's two are counted there.
    """

    @staticmethod
    def forward(ctx: Any, comm: CountingComm, x: torch.Tensor, *weights: Any) -> Any:
        ctx.comm = comm
        ctx.save_for_backward(x, *weights)
        whole = _whole(comm, x)
        return tuple(F.linear(whole, *pair) for pair in zip(weights[::2], weights[1::2], strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        x, *weights = ctx.saved_tensors
        whole, back, ours = _whole(ctx.comm, x), None, []
        for g, w, b in zip(gradients, weights[::2], weights[1::2], strict=True):
            part = g @ w
            back = part if back is None else back + part
            ours += [g.flatten(0, 1).T @ whole.flatten(0, 1), None if b is None else g.sum((0, 1))]
        assert back is not None
        ctx.comm.count_sum(back.nbytes)
        return None, torch.empty_like(x), *ours


class _Scattered(torch.autograd.Function):
    """Sum over ranks, and keep the own part of the sequence; backward gathers."""

    @staticmethod
    def forward(ctx: Any, comm: CountingComm, x: torch.Tensor) -> torch.Tensor:
        ctx.comm = comm
        comm.count_sum(x.nbytes)
        return x.new_empty(x.shape[0], x.shape[1] // comm.size, x.shape[2])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, _whole(ctx.comm, gradients[0])


def _whole(comm: CountingComm, x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1] * comm.size, x.shape[2])


def _products(comm: Any, parallel: bool, x: torch.Tensor, *layers: Any) -> tuple[torch.Tensor, ...]:
    """Return the products of x with the weights of layers, each for a rank's share of the results."""
    if comm is not None and parallel:
        weights = [w for layer in layers for w in (layer.weight, getattr(layer, "bias", None))]
        return _GatheredProducts.apply(comm, x, *weights)
    x = copy_in(comm, x)
    return tuple(F.linear(x, layer.weight, getattr(layer, "bias", None)) for layer in layers)


def _out(comm: Any, parallel: bool, x: torch.Tensor) -> torch.Tensor:
    """Return the sum over ranks, or a rank's part of it."""
    if comm is None or not parallel:
        return sum_out(comm, x)
    if x.shape[1] % comm.size:
        raise ValueError(f"{x.shape[1]} tokens cannot be shared alike by {comm.size} ranks")
    return _Scattered.apply(comm, x)


class _Embedding(nn.Module):
    """Tokens -> (batch, length, width)."""

    def __init__(self, comm: Comm | None, c: Configuration) -> None:
        super().__init__()
        self.comm, self.parallel, self.weight = comm, c.sequence_parallel, _share_of_vocabulary(comm, c)
        self.positions = nn.Parameter(torch.empty(c.positions, c.width)) if c.positions else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, length = F.embedding(tokens, self.weight), tokens.shape[1]
        if self.positions is not None and length > len(self.positions):
            raise ValueError(f"{length} tokens are more than the {len(self.positions)} positions of the model")
        x = _out(self.comm, self.parallel, x)
        return x if self.positions is None else x + self.positions[: x.shape[1]]


class _Layer(nn.Module):
    """Attention, then an MLP, each after a norm and added to its input.

    Norms by the root of the mean square are one kernel in today's trainings. torch takes several for it, so layer norms
    stand in, which read and write as much. Rotary positions are one kernel here, too.
    """

    def __init__(
        self,
        comm: Comm | None,
        c: Configuration,
        context: CountingComm | None = None,
        expert: CountingComm | None = None,
    ) -> None:
        super().__init__()
        self.context = context
        t, first = (1, True) if comm is None else (comm.size, comm.rank == 0)
        own_rows(comm, c.groups, "heads of keys and values")
        own_rows(comm, c.hidden, "hidden units")
        self.comm, self.c, self.heads, self.groups = comm, c, c.heads // t, c.groups // t
        self.norm1, self.norm2 = (nn.LayerNorm(c.width, bias=c.bias) for _ in range(2))
        self.qkv = nn.Linear(c.width, (self.heads + 2 * self.groups) * c.head, c.qkv_bias)
        self.out = nn.Linear(self.heads * c.head, c.width, c.bias and first)  # one rank adds what all others would too
        if c.experts:
            self.mixture = _Mixture(c, expert)
        else:
            self.up = nn.Linear(c.width, c.hidden // t, c.bias)
            self.gate = nn.Linear(c.width, c.hidden // t, c.bias) if c.gated else None
            self.down = nn.Linear(c.hidden // t, c.width, c.bias and first)

        sizes = {"q": self.heads, "k": self.groups, "v": self.groups}
        shapes = {name: (c.width, heads * c.head) for name, heads in sizes.items()}
        shapes |= {"out": (self.heads * c.head, c.width), "down": (c.hidden, c.width), "up": (c.width, c.hidden)}
        shapes |= {"gate": (c.width, c.hidden)} if c.gated else {}
        self.adapters = nn.ModuleDict(
            {name: _Adapter(*shape, c.lora) for name, shape in shapes.items() if c.lora and name in c.adapted}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parallel, own = self.c.sequence_parallel, self._adapted
        normed = self.norm1(x)
        (qkv,) = _products(self.comm, parallel, normed, self.qkv)
        x = x + _out(self.comm, parallel, self._attention(qkv, normed))
        normed = self.norm2(x)
        if self.c.experts:
            return x + self.mixture(normed)
        if self.gate is None:
            (up,) = _products(self.comm, parallel, normed, self.up)
            inner = F.gelu(own("up", up, normed))
        else:
            gate, up = _products(self.comm, parallel, normed, self.gate, self.up)
            inner = F.silu(own("gate", gate, normed)) * own("up", up, normed)
        return x + _out(self.comm, parallel, own("down", self.down(inner), inner))

    def _adapted(self, name: str, result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return result + self.adapters[name](x) if name in self.adapters else result

    def _attention(self, qkv: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        sizes = [n * self.c.head for n in (self.heads, self.groups, self.groups)]
        parts = [self._adapted(name, part, x) for name, part in zip("qkv", qkv.split(sizes, -1), strict=True)]
        q, k, v = (part.unflatten(2, (-1, self.c.head)).transpose(1, 2) for part in parts)
        if not self.c.positions:
            q, k = (part * part.new_empty(part.shape[-2:]) for part in (q, k))
        grouped, causal = self.heads != self.groups, self.c.causal
        if self.context is not None:
            k, v = (self._gathered(part, self.context) for part in (k, v))
            causal = False
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
        mixed = mixed.transpose(1, 2).flatten(2)
        return self._adapted("out", self.out(mixed), mixed)

    def _gathered(self, x: torch.Tensor, context: CountingComm) -> torch.Tensor:
        """Return as many keys or values as a rank's queries see: of the whole sequence, or under a causal mask of half.

        With a piece from each end (zigzag), the queries of every rank see half of the keys on average.
        """
        context.count_gather(x.nbytes * context.size)
        return x.repeat(1, 1, context.size, 1)[:, :, : x.shape[2] * context.size // (2 if self.c.causal else 1)]


class Experts(nn.Module):
    """Gated MLPs without biases, each for as many tokens: (experts, tokens, width) to the same.

    experts: their number.
    width: numbers that represent a token.
    hidden: width of each MLP.
    """

    def __init__(self, experts: int, width: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(experts, width, 2 * hidden))
        self.second = nn.Parameter(torch.empty(experts, hidden, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = torch.bmm(x, self.first).chunk(2, -1)
        return torch.bmm(F.silu(gate) * up, self.second)


class _Mixture(nn.Module):
    """A router, and a rank's share of the experts: (batch, length, width) to the same.

    All experts get equally many tokens, as with a balance loss that works.
    """

    def __init__(self, c: Configuration, expert: CountingComm | None) -> None:
        super().__init__()
        own_rows(expert, c.experts, "experts")
        self.c, self.expert, self.own = c, expert, c.experts // (1 if expert is None else expert.size)
        self.router = nn.Linear(c.width, c.experts, bias=False)
        self.experts = Experts(self.own, c.width, c.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens, k = x.flatten(0, 1), self.c.chosen
        weights, chosen = self.router(tokens).softmax(-1).topk(k)
        order = chosen.flatten().argsort()
        sent = tokens[order // k]
        self._exchange(sent)
        rows = -(-len(sent) // self.own) * self.own  # what other ranks send is as much
        grouped = F.pad(sent, (0, 0, 0, rows - len(sent))) if rows > len(sent) else sent
        out = self.experts(grouped.view(self.own, -1, self.c.width)).flatten(0, 1)[: len(sent)]
        self._exchange(out)
        back = out[order.argsort()].view(*weights.shape, -1)
        return (back * weights[..., None]).sum(1).view_as(x)

    def _exchange(self, x: torch.Tensor) -> None:
        if self.expert is not None:
            self.expert.sums.append(x.nbytes)


class _Adapter(nn.Module):
    """A product of two thin matrices, whose result is scaled."""

    def __init__(self, width: int, out: int, rank: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, rank, bias=False), nn.Linear(rank, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)) * 2.0


class _Head(nn.Module):
    """(batch, length, width) -> the loss, over a rank's share of the vocabulary.

    Two sums over ranks, of a number a token each: the exponentials, the own token's logit.
    """

    def __init__(self, comm: Comm | None, c: Configuration) -> None:
        super().__init__()
        if comm is not None and c.loss == "chunked":
            raise ValueError("a chunked loss is not known for a vocabulary that ranks share")
        self.comm, self.loss, self.parallel = comm, c.loss, c.sequence_parallel
        self.norm, self.weight = nn.LayerNorm(c.width, bias=c.bias), _share_of_vocabulary(comm, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        if self.loss == "chunked":
            return Chunked.apply(x.flatten(0, 1), self.weight)
        logits = _products(self.comm, self.parallel, x, self)[0].flatten(0, 1)
        if self.loss == "fused":
            sums = Fused.apply(logits)
        elif self.comm is None:
            return plain(logits)
        else:
            sums = logits.float().exp().sum(-1)
        return (sum_out(self.comm, sums).log() - sum_out(self.comm, sums)).mean()
