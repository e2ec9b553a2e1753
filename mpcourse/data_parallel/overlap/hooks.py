"""Hooks that keep nothing alive: Python never frees the cycle of a parameter and its hook, because it cannot see it."""

import weakref
from collections.abc import Callable

import torch
from torch.utils.hooks import RemovableHandle


def when_accumulated(p: torch.Tensor, call: Callable[[torch.Tensor], None]) -> RemovableHandle:
    """Call a method after each backward pass that adds to p.grad, as long as the method's object lives.

    p: a parameter.
    call: a bound method; it takes p.
    Returns the hook's handle, by which it can be removed.
    """
    method = weakref.WeakMethod(call)

    def hook(p: torch.Tensor) -> None:
        if (call := method()) is not None:
            call(p)

    return p.register_post_accumulate_grad_hook(hook)
