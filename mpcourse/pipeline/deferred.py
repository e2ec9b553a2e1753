"""Backward in two parts: a layer's input gradient now, its parameters' gradients when they are asked for.

The stage before waits for the first part only; the second can fill time that would be bubble (Qi et al., Zero Bubble
Pipeline Parallelism, 2023). Each layer with parameters gets a small graph of its own, from which autograd computes
either part without the other.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn as nn
from torch.autograd.graph import get_gradient_edge

Later = list[Callable[[], None]]


class _Deferred(torch.autograd.Function):
    """layer(*inputs), with the parameters' part of backward appended to `later`."""

    @staticmethod
    def forward(ctx: Any, later: Later, call: Callable, count: int, *tensors: torch.Tensor) -> torch.Tensor:
        # The parameters are arguments so that the result requires a gradient even if no input does.
        inputs, parameters = tensors[:count], tensors[count:]
        with torch.enable_grad():
            inside = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
            out = call(*inside)
        ctx.later, ctx.inside, ctx.parameters = later, inside, parameters
        ctx.out = get_gradient_edge(out)  # not `out` itself, whose data need not be kept
        return out.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        out, parameters, gradient = ctx.out, ctx.parameters, gradients[0]
        wanted = [x for x in ctx.inside if x.requires_grad]
        computed = iter(torch.autograd.grad(out, wanted, gradient, retain_graph=True) if wanted else ())
        ctx.later.append(lambda: torch.autograd.backward(out, gradient, inputs=parameters))
        of_inputs = [next(computed) if x.requires_grad else None for x in ctx.inside]
        return None, None, None, *of_inputs, *(None for _ in parameters)


@contextlib.contextmanager
def deferring(module: nn.Module, later: Later) -> Iterator[None]:
    """Make a module's backward, within this context, leave the parameters' gradients to the calls in a list.

    module: each of its layers that hold parameters is called with tensors and returns one. Any other layer computes its
    whole backward in the first part: the gradients are the same, but less work is put off.
    later: a list. Each layer's backward appends a call that adds the gradients of the layer's parameters.
    """
    layers = list(_owners(module))
    for layer in layers:
        layer.forward = _later_forward(layer, layer.forward, later)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _owners(module: nn.Module) -> Iterator[nn.Module]:
    """Return the outermost modules that hold parameters themselves, each once, without the modules inside them."""
    seen: set[int] = set()

    def walk(m: nn.Module) -> Iterator[nn.Module]:
        if id(m) in seen:
            return
        seen.add(id(m))
        if any(p is not None for p in m._parameters.values()):
            yield m
        else:
            for child in m.children():
                yield from walk(child)

    return walk(module)


def _later_forward(layer: nn.Module, plain: Callable, later: Later) -> Callable:
    def forward(*inputs: Any, **options: Any) -> Any:
        parameters = [p for p in layer.parameters() if p.requires_grad]
        if not parameters or options or not all(isinstance(x, torch.Tensor) for x in inputs):
            return plain(*inputs, **options)
        return _Deferred.apply(later, plain, len(inputs), *inputs, *parameters)

    return forward
