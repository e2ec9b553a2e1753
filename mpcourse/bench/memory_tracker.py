"""Peak memory of a training step without virtual GPUs: fake tensors of the CPU, and a count of the storages alive.

Made to judge the ledger of virtual GPUs, so nothing here is theirs: torch's FakeTensorMode makes the shapes, and a
dispatch mode sees each new storage and, by a weak reference, its end.
"""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Tensor = torch.Tensor


class Tracker(TorchDispatchMode):
    """held, most: bytes of the storages that operations have made and that are alive; now, and at the peak."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.most = 0
        self.alive: dict[int, weakref.finalize] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor):
                self.count(t)
        return out

    def count(self, t: Tensor) -> None:
        storage = t.untyped_storage()
        key = storage._cdata
        if key in self.alive:
            return
        nbytes = storage.nbytes()
        self.held += nbytes
        self.most = max(self.most, self.held)

        def end() -> None:
            del self.alive[key]
            self.held -= nbytes

        self.alive[key] = weakref.finalize(storage, end)


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The operation that CUDA runs, with a mask of a byte for each number; the CPU's is made of others."""
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


_plain_attention = F.scaled_dot_product_attention


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, *rest: Any,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Attention that holds no mask for its dropout: CUDA's kernels draw what they drop anew in backward."""
    return _plain_attention(query, key, value, attn_mask, 0.0, *rest, **options)


@contextlib.contextmanager
def tracking() -> Iterator[Tracker]:
    """In here tensors of the CPU hold no data, and are counted."""
    with (
        FakeTensorMode(),
        Tracker() as tracker,
        mock.patch.multiple(F, dropout=_dropout, scaled_dot_product_attention=_attention),
    ):
        yield tracker
