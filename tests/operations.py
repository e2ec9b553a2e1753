"""Calls of all operations: torch's own database of them, and what of torch.nn.functional it leaves out."""

import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map


def database() -> list[Any]:
    """torch.testing's OpInfos. It imports expecttest for tests of its own, which nothing here needs."""
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def _randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


# {name: (function, positional arguments; floating-point tensors among them learn)}
OWN: dict[str, tuple[Any, tuple]] = {
    "affine_grid": (F.affine_grid, (_randn(2, 2, 3), [2, 3, 4, 4], False)),
    "conv_tbc": (F.conv_tbc, (_randn(6, 2, 3), _randn(3, 3, 4), _randn(4))),
    "dropout1d": (F.dropout1d, (_randn(2, 3, 4), 0.5)),
    "fold": (F.fold, (_randn(2, 12, 9), (4, 4), (2, 2))),
    "gumbel_softmax": (F.gumbel_softmax, (_randn(3, 4),)),
    "lp_pool1d": (F.lp_pool1d, (_randn(2, 3, 8), 2.0, 2)),
    "lp_pool2d": (F.lp_pool2d, (_randn(2, 3, 8, 8), 2.0, 2)),
    "lp_pool3d": (F.lp_pool3d, (_randn(2, 3, 4, 4, 4), 2.0, 2)),
    "native_channel_shuffle": (F.native_channel_shuffle, (_randn(2, 4, 3, 3), 2)),
    "upsample": (F.upsample, (_randn(2, 3, 4, 4), None, 2)),
    "max_pool1d_with_indices": (F.max_pool1d_with_indices, (_randn(2, 3, 8), 2)),
    "max_pool2d_with_indices": (F.max_pool2d_with_indices, (_randn(2, 3, 8, 8), 2)),
    "max_pool3d_with_indices": (F.max_pool3d_with_indices, (_randn(2, 3, 4, 4, 4), 2)),
    "adaptive_max_pool1d_with_indices": (F.adaptive_max_pool1d_with_indices, (_randn(2, 3, 8), 3)),
    "adaptive_max_pool2d_with_indices": (F.adaptive_max_pool2d_with_indices, (_randn(2, 3, 8, 8), 3)),
    "adaptive_max_pool3d_with_indices": (F.adaptive_max_pool3d_with_indices, (_randn(2, 3, 4, 4, 4), 3)),
    "fractional_max_pool2d_with_indices": (F.fractional_max_pool2d_with_indices, (_randn(2, 3, 8, 8), 2, 3)),
    "fractional_max_pool3d_with_indices": (F.fractional_max_pool3d_with_indices, (_randn(2, 3, 6, 6, 6), 2, 3)),
    # In place, on a product so that it may be: a leaf that learns may not.
    **{
        name: (lambda x, *rest, _change=change: _change(x * 1, *rest), (_randn(3, 4), *rest))
        for name, change, *rest in (
            *(("celu_", F.celu_), ("elu_", F.elu_), ("hardtanh_", F.hardtanh_), ("leaky_relu_", F.leaky_relu_)),
            *(("relu_", F.relu_), ("rrelu_", F.rrelu_, 0.1, 0.3, True), ("selu_", F.selu_)),
            ("threshold_", F.threshold_, 0.1, 0.2),
        )
    },
    # Cells and norms that are modules' alone.
    "lstm_cell": (
        lambda x, h, c, a, b: torch.lstm_cell(x, (h, c), a, b),
        (_randn(4, 6), _randn(4, 7), _randn(4, 7), _randn(28, 6), _randn(28, 7)),
    ),
    "gru_cell": (torch.gru_cell, (_randn(4, 6), _randn(4, 7), _randn(21, 6), _randn(21, 7))),
    # Attention as the database does not call it.
    "attention, mask": (
        lambda q, mask: F.scaled_dot_product_attention(q, q, q, mask > 0),
        (_randn(2, 4, 16, 8), _randn(16, 16)),
    ),
    "attention, groups": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (_randn(2, 4, 16, 8), _randn(2, 2, 16, 8)),
    ),
    "attention, dropout": (
        lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.25, is_causal=True),
        (_randn(2, 4, 16, 8),),
    ),
}
# Not of tensors, or of formats of numbers that no CPU computes in.
_NOT = {
    *("assert_int_or_pair", "boolean_dispatch", "handle_torch_function", "has_torch_function"),
    *("has_torch_function_unary", "has_torch_function_variadic", "grouped_mm", "scaled_mm", "scaled_grouped_mm"),
}


def left_out() -> set[str]:
    """Functions of torch.nn.functional that neither the database nor `OWN` calls."""
    called = {info.name.rpartition(".")[2] for info in database()} | set(OWN) | _NOT
    public = [n for n in dir(F) if not n.startswith("_") and callable(getattr(F, n))]
    functions = [n for n in public if not isinstance(getattr(F, n), type)]
    return {n for n in functions if (getattr(F, n).__module__ or "").startswith("torch")} - called


def calls(dtype: torch.dtype, most: int) -> Iterator[tuple[str, Any, tuple, dict]]:
    """(name, function, args, kwargs), up to `most` for each operation that a CPU does in `dtype`."""
    for info in database():
        if dtype in info.supported_dtypes("cpu"):
            name = f"{info.name}.{info.variant_test_name}".rstrip(".")
            yield name, (info, dtype, most), (), {}
    for name, (function, args) in OWN.items():
        yield name, function, tree_map(lambda a: _given(a, dtype), args), {}


def _given(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype).requires_grad_() if isinstance(value, torch.Tensor) else value


def samples(function: Any, args: tuple, kwargs: dict) -> list[tuple[Any, tuple, dict]]:
    """Return what `calls` gave, as calls that can be made."""
    if not isinstance(function, tuple):
        return [(function, args, kwargs)]
    info, dtype, most = function
    given = list(info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd))
    given = [s for s in given if all(t.layout is torch.strided for t in tensors((s.input, s.args, s.kwargs)))]
    step = max(1, len(given) // most)
    return [(info.op, (s.input, *s.args), s.kwargs) for s in given[::step][:most]]


def on(device: str, value: Any) -> Any:
    """Copy the tensors in `value` to a device; the copies learn where those do.

    A view is copied with all of its storage, for as_strided may reach the rest.
    """

    def copy(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        there = t.detach()
        if t.layout is torch.strided and t.untyped_storage().nbytes() > t.numel() * t.element_size():
            whole = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
            there = whole.to(device).as_strided(t.shape, t.stride(), t.storage_offset())
        return there.to(device).requires_grad_(t.requires_grad)

    return tree_map(copy, value)


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]
