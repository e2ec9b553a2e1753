"""What is in p.grad once the gradient has been freed: code that computes with it gets an error that says so."""

from collections.abc import Callable
from typing import Any

import torch

# What still may be done with it: to ask for its properties, and to forget it, as nn.Module.zero_grad does.
HARMLESS = {
    *("__get__", "__set__", "__hash__", "size", "dim", "numel", "stride", "storage_offset", "element_size"),
    *("untyped_storage", "data_ptr", "is_floating_point", "detach", "detach_", "requires_grad_"),
}


class FreedGradient(torch.Tensor):
    """Replaces a gradient, of whose mean this rank keeps at most a chunk.

    With None in its place, torch's clip_grad_norm_ would find no gradients, return 0 and clip nothing.
    """

    @classmethod
    def of(cls, memory: torch.Tensor) -> "FreedGradient":
        """Return a freed gradient, which takes no memory of its own.

        memory: of the gradient's shape, dtype and device; it is neither read nor written to.
        """
        return memory.detach().as_subclass(cls)

    def __repr__(self) -> str:  # type: ignore[override]
        return "<a gradient that was freed>"

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == "zero_":
            return args[0]
        if func.__name__ in HARMLESS:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise RuntimeError(
            f"{func.__name__} asks for whole gradients, and ZeRO has freed them: each rank keeps a chunk of their "
            "mean. To clip, call the sharded optimizer's step(clip=...), which also returns the norm of all gradients"
        )
