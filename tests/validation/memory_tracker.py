"""Peak memory of a training step without virtual GPUs: fake tensors of the CPU, and a count of the storages alive.

Made to judge the ledger of virtual GPUs, so nothing here is theirs: torch's FakeTensorMode makes the shapes, and a
dispatch mode sees each new storage and, by a weak reference, its end. It takes no operation apart: what autograd calls
is one operation, which holds its results. (Fake tensors that say they are CUDA's would be nearer still, but autograd
asks for CUDA's device guard in C++, which a torch for CPUs lacks.) Four functions of torch choose by the device what
they call: dropout, attention, RMS norm and group norm. What they call on CUDA is written down here a second time, from
torch's C++ code: native/Dropout.cpp, native/transformers/cuda/sdp_utils.cpp, native/layer_norm.cpp and
native/group_norm.cpp. Autocast, whose lists also depend on the device, is in memory_autocast.py.
"""

import contextlib
import math
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.validation.memory_autocast import autocast_as_cuda, in_region

Tensor = torch.Tensor
_group_norm_of_torch = F.group_norm


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
    """Call the operation that CUDA runs, with a mask of a byte for each number; the CPU's is made of others."""
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Call the operation that CUDA of compute capability 10.0 runs, by its own name.

    cuDNN takes half precision, with masks of numbers; the memory-efficient kernel takes float32 with as many heads of
    keys as of queries; the rest is products and a softmax, and so is each mask whose rows are not contiguous.
    """
    q, k, v, attn_mask = in_region(None, q, k, v, attn_mask)
    p, width = dropout_p, q.shape[-1]
    fused = q.dim() == 4 and (attn_mask is None or attn_mask.stride(-1) == 1)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    mask = attn_mask
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, torch.zeros((), dtype=q.dtype), -math.inf)
    by_cudnn = q.dtype is not torch.float32 and width <= 128 and width % 8 == 0
    if fused and by_cudnn and (mask is None or not mask.requires_grad):
        cudnn = torch.ops.aten._scaled_dot_product_cudnn_attention
        return cudnn(q, k, v, mask, learns, p, is_causal, False, scale=scale)[0]
    if fused and q.shape[1] == k.shape[1] and width % (4 if q.dtype is torch.float32 else 8) == 0:
        if mask is not None:
            if any(stride % 8 for stride in mask.stride()[:-1]):
                mask = F.pad(mask, (0, 8 - mask.shape[-1] % 8))[..., : mask.shape[-1]]
            mask = mask.expand(*q.shape[:3], k.shape[2])
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(q, k, v, mask, learns, p, is_causal, scale=scale)[0]
    with torch.autocast("cpu", enabled=False):
        by_products = torch._scaled_dot_product_attention_math
        return by_products(q, k, v, mask, p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]


class _RmsNorm(torch.autograd.Function):
    """CUDA's kernel, which keeps its input, its weight and a number for each row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, rows: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(x, weight, torch.empty(rows, dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight), None


def _rms_norm(x: Tensor, shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    x, weight = in_region(torch.float32, x, weight)
    return _RmsNorm.apply(x, weight, tuple(x.shape[: x.dim() - len(shape)]))


def _group_norm(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Make the contiguous copy that CUDA takes, and keeps for backward. The CPU takes channels last as they are."""
    (x,) = in_region(torch.float32, x)
    return _group_norm_of_torch(x.contiguous(), *args, **kwargs)


@contextlib.contextmanager
def tracking() -> Iterator[Tracker]:
    """Have tensors of the CPU hold no data, and count them."""
    with (
        FakeTensorMode(),
        Tracker() as tracker,
        autocast_as_cuda(),
        mock.patch.multiple(
            F, dropout=_dropout, scaled_dot_product_attention=_attention, rms_norm=_rms_norm, group_norm=_group_norm
        ),
    ):
        yield tracker
