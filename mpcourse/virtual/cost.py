"""What an operation costs on a device: FLOPs, bytes and, by the roofline, seconds (Williams et al. 2009)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

Tensor = torch.Tensor
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

# These write what they change, and do not read it first.
_OVERWRITES = {"zero_", "fill_", "copy_", "normal_", "uniform_", "bernoulli_", "random_", "_foreach_zero_"}
# These read of their first argument only as much as they give back.
_PICKS = {"embedding", "index", "index_select", "gather", "slice_backward", "select_backward"}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "linear"}
# The host must know their result before it can go on: it waits for the device, as on CUDA.
_SYNCHRONIZES = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim"}
# Element by element like those that torch tags as pointwise, and refused in the same words.
_ELEMENTWISE = {"mse_loss", "smooth_l1_loss", "huber_loss", "mse_loss_backward", "binary_cross_entropy"}
_INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}


def _attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return sdpa_flop_count(query.shape, key.shape, value.shape)


def _attention_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return sdpa_backward_flop_count(grad.shape, query.shape, key.shape, value.shape)


def _recurrent(x: Tensor, of_input: Tensor, of_state: Tensor, *rest: Any, **options: Any) -> int:
    """(steps, batch, features), and both weights, each used once a step."""
    return 2 * x.shape[0] * x.shape[1] * (of_input.numel() + of_state.numel())


# Of operations that only the CPU has; torch's registry has those of GPUs.
_MORE_FLOPS: dict[str, Callable[..., int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": lambda *args, **options: 2 * _recurrent(*args),
}


@dataclass(frozen=True)
class Operation:
    """What is known of an aten operation before its arguments are. view: it makes no data, and takes no time.

    composite: it is made of other operations, and has no kernel of its own.
    """

    name: str
    view: bool
    composite: bool
    mutates: bool
    overwrites: bool
    picks: bool
    product: bool
    convolution: bool
    synchronizes: bool
    pointwise: bool
    foreach: bool
    indexes: bool
    flops: Callable[..., int] | None


def describe(func: Any) -> Operation:
    """The description of an aten overload."""
    packet = func._overloadpacket
    name = packet.__name__
    return Operation(
        name,
        view=func.is_view or func.namespace == "profiler",
        composite=torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
        mutates=func._schema.is_mutable,
        overwrites=name in _OVERWRITES,
        picks=name in _PICKS,
        product=name in _PRODUCTS,
        convolution="convolution" in name,
        synchronizes=name in _SYNCHRONIZES,
        pointwise=torch.Tag.pointwise in func.tags or name in _ELEMENTWISE,
        foreach=name.startswith("_foreach"),
        indexes=name in _INDEXES,
        flops=flop_registry.get(packet) or _MORE_FLOPS.get(name),
    )


def in_parts(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Do a composite operation by what torch's C++ code makes of it."""
    return func._op_dk(_COMPOSITE, *args, **kwargs)


def traffic(op: Operation, inputs: int, fresh: int, changed: int) -> int:
    """Bytes that an operation reads and writes in the device's memory: each input once, each result once.

    inputs: bytes of all arguments; fresh: of results in new storages; changed: of arguments changed in place, which
    are among the inputs.
    """
    if op.picks:
        return 2 * fresh
    if op.overwrites:
        return inputs + fresh
    return inputs + fresh + changed


_seen: dict[Any, int] = {}


def flops_of(op: Operation, args: tuple, kwargs: dict, out: Any) -> int:
    """By torch's formula; where that is made for shapes alone, what it said of the same ones before."""
    assert op.flops is not None
    if op.name == "mm":  # backward is made of these; to look the shapes up takes longer
        (m, k), n = args[0].shape, args[1].shape[1]
        return 2 * m * k * n
    if not hasattr(op.flops, "__wrapped__"):  # a formula that reads tensors
        return op.flops(*args, **kwargs, out_val=out)
    key = (op.name, _shapes(args), _shapes(tuple(kwargs.items())))
    if key not in _seen:
        _seen[key] = op.flops(*args, **kwargs, out_val=out)
    return _seen[key]


def _shapes(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape
    return tuple(map(_shapes, value)) if isinstance(value, list | tuple) else value
