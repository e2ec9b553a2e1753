"""Compute a weight's gradient where it will be summed: gradient accumulation fusion, as in NVIDIA's Megatron-LM.

Autograd puts every gradient into new memory, from which it is copied into its bucket. The gradient of a linear layer's
weight is one product of matrices, and a product can be written anywhere.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import Node

Give = Callable[[torch.Tensor], torch.Tensor | None]
LEAST = 1 << 20  # bytes: copying less takes about as long as the Python code that avoids it

# By a parameter's id: the parameter, and the method that gives it a place. An attribute of the parameter would be
# copied with a model. torch's WeakTensorKeyDictionary is too slow: a look-up takes a sixth of what is saved.
_givers: dict[int, tuple[weakref.ref[torch.Tensor], weakref.WeakMethod[Give]]] = {}
_asked = (-1, False)  # the number of a backward pass, and what `_only_adds` found for it


class FusedLinear(nn.Linear):
    """`nn.Linear` whose weight's gradient is written where a communicator will sum it, if it has a place for it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight  # read once, because it may be computed anew each time
        flat = x.dim() == 2 or x.is_contiguous()  # torch multiplies others in another way, with other last bits
        if id(weight) not in _givers or not flat or _otherwise(x):
            return F.linear(x, weight, self.bias)
        if x.dim() == 2:
            return _Linear.apply(x, weight, self.bias)
        y = _Linear.apply(x.reshape(-1, weight.shape[1]), weight, self.bias)
        return y.view(*x.shape[:-1], weight.shape[0])


def fuse_weight_gradients(model: nn.Module, least_bytes: int = LEAST) -> list[str]:
    """Turn large linear layers into `FusedLinear`; return their names. Any rank may call it.

    model: changed in place; its parameters and optimizers stay what they were.
    least_bytes: size of a layer's weight from which on it is changed.

    Each rank's gradients stay what they were, bit by bit. Only "bucketed" communicators have places; with any other
    communicator these layers work as before. Do not read such a gradient between backward and step, because it is being
    summed in place. To keep a gradient that a hook was given, or that was in p.grad, copy it: the next one is written
    to the same memory, within `no_sync`, too.
    """
    # Subclasses of nn.Linear stay, because their forward may do anything.
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
    """Register a method that says, in backward, where a parameter's gradient may be computed.

    p: the parameter.
    give: a method; it takes p and returns a tensor of p's shape and dtype, or None.
    """
    key = id(p)
    _givers[key] = weakref.ref(p, lambda _: _givers.pop(key, None)), weakref.WeakMethod(give)


def withdraw(p: torch.Tensor, give: Give) -> None:
    """Remove a method that was registered by `offer`, if it is still the registered one.

    p: the parameter.
    give: the method that was registered.
    """
    if id(p) in _givers and _givers[id(p)][1]() == give:
        del _givers[id(p)]


def _otherwise(x: torch.Tensor) -> bool:
    """Return whether torch is asked to compute differently: in another dtype, or for torch.func."""
    return torch.is_autocast_enabled(x.device.type) or torch._C._are_functorch_transforms_active()


class _Linear(torch.autograd.Function):
    """x (b, n), weight (m, n), bias (m) or None -> (b, m)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.weight = weight  # itself, because with checkpointing the saved tensor comes back as another one
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
    """Return whether the running backward pass only adds gradients to p.grad, as plain numbers.

    A caller of torch.autograd.grad may keep what it returns, and with create_graph=True there are gradients of
    gradients. All gradients of a pass are treated alike: if the first gradient is only added to p.grad, so are all
    others. This is found out once a pass, because it takes long.
    """
    global _asked
    asked, number = _asked, torch._C._current_graph_task_id()
    if asked[0] != number:
        _asked = asked = number, not torch.is_grad_enabled() and _reaches(ctx.next_functions[1][0])
    return asked[1]


def _reaches(accumulate: Node) -> bool:
    """Return whether the running backward pass reaches the node that adds to a parameter's gradient."""
    try:
        return torch._C._will_engine_execute_node(accumulate)
    except RuntimeError:  # torch.autograd.grad asked for the node's input
        return False
