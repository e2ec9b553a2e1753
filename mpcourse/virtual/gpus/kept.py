"""What a CUDA kernel returns and keeps for backward, where the CPU's returns or keeps something else.

The values stay the CPU's. Only what a device holds of them changes: logsigmoid has a buffer only on a CPU, the
statistics of norms in half precision are float32 on CUDA (native/cuda/layer_norm_kernel.cu, Normalization.cuh), and
embedding_bag records other things about its bags. Each function here takes the arguments of its operation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from mpcourse.virtual.gpus.shape_cache import shapes_of

Tensor = torch.Tensor
aten = torch.ops.aten
_CARRIED = "mpcourse_carried"  # an attribute of a storage
_HALF = {torch.float16, torch.bfloat16}


# -- results with CUDA's look --


def looks_of(func: Any, args: Sequence[Any], kwargs: dict) -> Any:
    """Return what CUDA's kernel returns, without data."""
    twins = tuple(_without_data(a) for a in args)
    return shapes_of(SHAPES.get(func, func), func, twins, {k: _without_data(v) for k, v in kwargs.items()})


def _without_data(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(map(_without_data, x))
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, Tensor) else x


def in_look(value: Tensor, look: Tensor) -> Tensor:
    """Return `value` with the strides of `look`."""
    if value.stride() == look.stride():
        return value
    return torch.empty_strided(look.shape, look.stride(), dtype=value.dtype, device=value.device).copy_(value)


def carrier(look: Tensor, value: Any, device: torch.device) -> Tensor:
    """Make a tensor that takes memory as `look` does, and carries what the CPU's backward needs in its place."""
    made = torch.empty_strided(look.shape, look.stride(), dtype=look.dtype, device=device)
    setattr(made.untyped_storage(), _CARRIED, value)
    return made


def carried(x: Tensor) -> Any:
    """Return what a tensor carries, or the tensor itself."""
    return getattr(x.untyped_storage(), _CARRIED, x)


def carry_over(x: Tensor, copy: Tensor) -> None:
    """Let a copy on another device carry the same."""
    if not is_lazy(x) and hasattr(x.untyped_storage(), _CARRIED):
        setattr(copy.untyped_storage(), _CARRIED, carried(x))


# -- logsigmoid --


def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    return aten.log_sigmoid_forward.default(x)[0], x.new_empty(0)


def _log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    return aten.log_sigmoid_backward.default(grad, x, aten.log_sigmoid_forward.default(x)[1])


# -- norms --


def _norm(func: Any, results: int = 3) -> Callable[..., Any]:
    """Return the kernel with its second and third results, statistics, in float32, unless the input is float64."""

    def run(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        out = func(x, *args, **kwargs)
        return (out[0], out[1].float(), out[2].float(), *out[3:]) if x.dtype in _HALF else out

    return run


def _layer_norm_backward(grad: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, *rest: Any) -> Any:
    dtype = x.dtype if rest[0] is None else rest[0].dtype
    return aten.native_layer_norm_backward.default(grad, x, shape, mean.to(dtype), rstd.to(dtype), *rest)


def _batch_norm_backward(func: Any, first: int) -> Callable[..., Any]:
    """Return the kernel for statistics in arguments `first` and the next, which are empty in evaluation."""

    def run(grad: Tensor, x: Tensor, weight: Tensor | None, *rest: Any, **kwargs: Any) -> Any:
        dtype, rest = x.dtype if weight is None else weight.dtype, (grad, x, weight, *rest)
        statistics = [s if s is None else s.to(dtype) for s in rest[first : first + 2]]
        return func(*rest[:first], *statistics, *rest[first + 2 :], **kwargs)

    return run


# -- embedding_bag --


def _bags(func: Any) -> Callable[..., Any]:
    def run(weight: Tensor, *args: Any, **kwargs: Any) -> Any:
        y, *notes = func(weight, *args, **kwargs)
        looks = looks_of(func, (weight, *args), kwargs)[1:]
        return (y, *(carrier(look, note, y.device) for look, note in zip(looks, notes, strict=True)))

    return run


def _with_carried(func: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return func(*(carried(a) if isinstance(a, Tensor) else a for a in args), **kwargs)

    return run


# -- softmax of float16 into float32, which CUDA does in one kernel --


def _softmax(func: Any) -> Callable[..., Any]:
    def run(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        return func(x.float() if half_to_float else x, dim, False)

    return run


def _softmax_backward(func: Any) -> Callable[..., Any]:
    def run(grad: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        return func(grad, y, dim, grad.dtype).to(dtype)

    return run


def _kept_loss(x: Tensor, target: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    """Return the shape of a loss summed where its terms were: the number keeps their storage (native/Loss.cpp)."""
    reduction = kwargs.get("reduction", next((a for a in reversed(rest[:2]) if type(a) is int), 1))
    dtype = torch.promote_types(x.dtype, target.dtype) if target.is_floating_point() else x.dtype
    terms = x.new_empty(torch.broadcast_shapes(x.shape, target.shape), dtype=dtype)
    return terms.resize_(()) if reduction else terms


def _like(position: int) -> Callable[..., Tensor]:
    """Return a function that makes a gradient's shape: that of the argument at `position`."""
    return lambda *args, **kwargs: torch.empty_like(args[position], memory_format=torch.contiguous_format)


def _col2im(columns: Tensor, size: Sequence[int], kernel: Sequence[int], *rest: Any) -> Tensor:
    """Return the shape of an image that replaces its columns, and keeps their storage (native/cuda/Col2Im.cu)."""
    shape = (*columns.shape[:-2], columns.shape[-2] // (kernel[0] * kernel[1]), *size)
    return torch.empty_like(columns, memory_format=torch.contiguous_format).resize_(shape)


def _geqrf(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x.mT, memory_format=torch.contiguous_format).mT, x.new_empty(
        *x.shape[:-2], min(x.shape[-2:])
    )


def _index_put(func: Any) -> Callable[..., Tensor]:
    """Return the kernel for index_put by a mask without data: the result has the shape of what it changes."""

    def run(x: Tensor, indices: Sequence[Tensor | None], *rest: Any, **kwargs: Any) -> Tensor:
        if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
            return x if func._schema.is_mutable else torch.empty_like(x)
        return func(x, indices, *rest, **kwargs)

    return run


def _lstm_cell(gates: Tensor, of_state: Tensor, cell: Tensor, *biases: Tensor | None) -> tuple[Tensor, ...]:
    """Return the cell's shapes, because torch's own function for this fails where there are no biases."""
    return *(torch.empty_like(cell, memory_format=torch.contiguous_format) for _ in range(2)), torch.empty_like(gates)


_NORMS = (
    *(aten.native_layer_norm.default, aten.native_batch_norm.default, aten._native_batch_norm_legit.default),
    *(aten._native_batch_norm_legit.no_stats, aten._batch_norm_with_update.default),
    aten._batch_norm_no_update.default,
)
VALUES: dict[Any, Callable[..., Any]] = {
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    **{func: _norm(func) for func in _NORMS},
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten.native_batch_norm_backward.default: _batch_norm_backward(aten.native_batch_norm_backward.default, 5),
    aten.batch_norm_backward.default: _batch_norm_backward(aten.batch_norm_backward.default, 5),
    aten._embedding_bag.default: _bags(aten._embedding_bag.default),
    aten._embedding_bag_forward_only.default: _bags(aten._embedding_bag_forward_only.default),
    aten._embedding_bag_backward.default: _with_carried(aten._embedding_bag_backward.default),
    aten._embedding_bag_dense_backward.default: _with_carried(aten._embedding_bag_dense_backward.default),
    aten._embedding_bag_per_sample_weights_backward.default: _with_carried(
        aten._embedding_bag_per_sample_weights_backward.default
    ),
    aten.max_unpool2d.default: lambda *args: aten.max_unpool2d.default(*args).contiguous(),
    aten._softmax.default: _softmax(aten._softmax.default),
    aten._log_softmax.default: _softmax(aten._log_softmax.default),
    aten._softmax_backward_data.default: _softmax_backward(aten._softmax_backward_data.default),
    aten._log_softmax_backward_data.default: _softmax_backward(aten._log_softmax_backward_data.default),
}
SHAPES: dict[Any, Callable[..., Any]] = {
    aten.log_sigmoid_forward.default: lambda x: (torch.empty_like(x), x.new_empty(0)),
    aten.mse_loss.default: _kept_loss,
    aten.smooth_l1_loss.default: _kept_loss,
    aten.soft_margin_loss.default: _kept_loss,
    aten.binary_cross_entropy.default: _kept_loss,
    aten.col2im.default: _col2im,
    aten.multi_margin_loss_backward.default: _like(1),
    aten.multilabel_margin_loss_backward.default: _like(1),
    aten.fractional_max_pool3d_backward.default: _like(1),
    aten.geqrf.default: _geqrf,
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    **{
        func: _index_put(func)
        for func in (
            *(aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default),
            aten._unsafe_index_put.default,
        )
    },
}
