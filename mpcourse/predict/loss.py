"""The loss of a model whose user has named none."""

from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_flatten

from mpcourse.common.errors import UserError

_UNTRAINED = "the model's output, {}, depends on no parameter by a gradient: there is no backward"


class UsualLoss:
    """Takes a model's output, and returns the loss that such an output usually has.

    tokens: whether the model's input holds tokens.
    name: of the loss of the last output; "" before the first.

    An output with a `loss`, as models of transformers return where they are given labels, has this loss, and so has an
    output that is a scalar. Outputs of two dimensions (examples, classes), and of three where the model's input holds
    tokens (examples, tokens, classes), are logits: cross-entropy, in float32. Any other output has the mean of its
    squares.
    """

    def __init__(self, tokens: bool) -> None:
        self.tokens, self.name = tokens, ""

    def __call__(self, out: Any) -> torch.Tensor:
        own = out.get("loss") if isinstance(out, dict) else getattr(out, "loss", None)
        every = [x for x in tree_flatten(out)[0] if isinstance(x, torch.Tensor)]
        found = [x for x in every if x.is_floating_point()] or every
        if isinstance(own, torch.Tensor):
            self.name, value = "the model's own", own
        elif not found:
            raise UserError("the model's output holds no tensor: forward must return one, or a tuple or dict with one")
        elif not (value := next((x for x in found if x.requires_grad), found[0])).requires_grad:
            raise UserError(_UNTRAINED.format(value.dtype))
        elif value.dim() == 0:
            self.name = "the model's own"
        elif value.dim() == 2 or (self.tokens and value.dim() == 3):
            self.name = "cross-entropy in float32"
            logits = value.flatten(0, -2).float()
            value = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64, device=value.device))
        else:
            self.name, value = "mean of squares", value.square().mean()
        if not value.requires_grad:
            raise UserError(_UNTRAINED.format(value.dtype))
        return value
