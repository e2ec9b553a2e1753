"""Hooks that let go: torch never frees a parameter whose hook leads back to it, for Python cannot see that circle."""

import weakref
from collections.abc import Callable

import torch
from torch.utils.hooks import RemovableHandle


def when_accumulated(p: torch.Tensor, tell: Callable[[torch.Tensor], None]) -> RemovableHandle:
    """Call `tell(p)` whenever a backward pass has added to p.grad, as long as the object whose method it is lives."""
    method = weakref.WeakMethod(tell)

    def hook(p: torch.Tensor) -> None:
        if (tell := method()) is not None:
            tell(p)

    return p.register_post_accumulate_grad_hook(hook)
