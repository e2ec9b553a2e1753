"""A weight's gradient is computed where it will be summed: gradient accumulation fusion, as in NVIDIA's Megatron-LM.

Autograd puts every gradient into memory of its own, from where it is copied into its bucket. The gradient of a linear
layer's weight is one product of matrices, and a product can be written anywhere.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import Node

Give = Callable[[torch.Tensor], torch.Tensor | None]
LEAST = 1 << 20  # bytes: to copy less takes about as long as Python takes to do without

# By a parameter's id: itself, and who gives it a place. Not in an attribute of it, which copies of a model would take
# along; nor in torch's WeakTensorKeyDictionary: to look there takes a sixth of what is saved.
_givers: dict[int, tuple[weakref.ref[torch.Tensor], weakref.WeakMethod[Give]]] = {}
_asked = (-1, False)  # the number of a backward pass, and what `_only_adds` found of it


class FusedLinear(nn.Linear):
    """`nn.Linear`, whose weight's gradient is written where a communicator will sum it, if one has a place for it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight  # read once: it may be computed anew each time
        flat = x.dim() == 2 or x.is_contiguous()  # others torch multiplies in another way, with other last bits
        if id(weight) not in _givers or not flat or _otherwise(x):
            return F.linear(x, weight, self.bias)
        if x.dim() == 2:
            return _Linear.apply(x, weight, self.bias)
        y = _Linear.apply(x.reshape(-1, weight.shape[1]), weight, self.bias)
        return y.view(*x.shape[:-1], weight.shape[0])


def fuse_weight_gradients(model: nn.Module, least_bytes: int = LEAST) -> list[str]:
    """Turn large linear layers into `FusedLinear`; their names. Any rank may call it.

    model: changed in place; its parameters and optimizers stay what they were.
    least_bytes: of a layer's weight; smaller ones stay.

    Each rank's gradients stay what they were, bit by bit. Only "bucketed" communicators have places; with any other
    these layers are as before. Between backward and step such a gradient may not be looked at, for it is being summed
    where it lies; and to keep one that a hook was told, or that lay in p.grad, copy it: the next one is written there,
    within `no_sync`, too.
    """
    # Subclasses of nn.Linear stay: nobody knows what their forward does.
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if type(layer) in (nn.Linear, FusedLinear)
        and layer.weight.nbytes >= least_bytes
        and layer.weight.is_floating_point()
    }
    for layer in layers.values():
        layer.__class__ = FusedLinear
    return list(layers)


def offer(p: torch.Tensor, give: Give) -> None:
    """Have `give` asked in backward where a parameter's gradient may be computed.

    p: the parameter.
    give: a method; of p it returns a tensor of p's shape and dtype, or None.
    """
    key = id(p)
    _givers[key] = weakref.ref(p, lambda _: _givers.pop(key, None)), weakref.WeakMethod(give)


def withdraw(p: torch.Tensor, give: Give) -> None:
    """Have `give` not be asked any more, if it is the one that is.

    p: the parameter.
    give: the method that was offered.
    """
    if id(p) in _givers and _givers[id(p)][1]() == give:
        del _givers[id(p)]


def _otherwise(x: torch.Tensor) -> bool:
    """Whether torch is asked to compute in another way: in another dtype, or for torch.func."""
    return torch.is_autocast_enabled(x.device.type) or torch._C._are_functorch_transforms_active()


class _Linear(torch.autograd.Function):
    """x (b, n), weight (m, n), bias (m) or None -> (b, m)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.weight = weight  # itself: with checkpointing, what was saved comes back as another tensor
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            gradient.mm(weight) if of_x else None,
            torch.mm(gradient.t(), x, out=_place(ctx)) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def _place(ctx: Any) -> torch.Tensor | None:
    known = _givers.get(id(ctx.weight))
    give = None if known is None else known[1]()
    return None if give is None or not _only_adds(ctx) else give(ctx.weight)


def _only_adds(ctx: Any) -> bool:
    """Whether the backward pass that is running gives gradients to nobody but p.grad, as plain numbers.

    Who calls torch.autograd.grad may keep what it returns, and with create_graph=True there are gradients of gradients.
    A pass is of one kind: if the first gradient that asks is only added to p.grad, no other one is handed out. It is
    asked once a pass, for that takes long.
    """
    global _asked
    asked, number = _asked, torch._C._current_graph_task_id()
    if asked[0] != number:
        _asked = asked = number, not torch.is_grad_enabled() and _reaches(ctx.next_functions[1][0])
    return asked[1]


def _reaches(accumulate: Node) -> bool:
    """Whether the backward pass that is running comes to the node that adds to a parameter's gradient."""
    try:
        return torch._C._will_engine_execute_node(accumulate)
    except RuntimeError:  # it is asked for what would go into that node, by torch.autograd.grad
        return False
