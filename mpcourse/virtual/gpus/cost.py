"""What an operation costs on a device: FLOPs, bytes and, by the roofline, seconds (Williams et al. 2009)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from mpcourse.virtual.gpus.attention_time import SOFTMAX, attention_seconds
from mpcourse.virtual.gpus.flops import below_diagonal, counted, formula
from mpcourse.virtual.gpus.layout import channels_last
from mpcourse.virtual.gpus.products import TYPICAL, product_seconds, shape_of
from mpcourse.virtual.specs import GPU

Tensor = torch.Tensor
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

# These overwrite what they change, and do not read it first.
_OVERWRITES = {
    "zero_",
    "fill_",
    "copy_",
    "normal_",
    "uniform_",
    "bernoulli_",
    "random_",
    "_foreach_zero_",
    "_foreach_copy_",
}
# No kernel runs: memory is reserved, and nothing is written.
_EMPTY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_"}
# These read only as much of their first argument as they return.
_PICKS = {"embedding", "index", "index_select", "gather", "slice_backward", "select_backward"}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "linear"}
# A second kernel reads their first argument, or two, once more, because only then the statistics are known (ATen's CUDA
# kernels Normalization.cuh and group_norm_kernel.cu; Jung et al. 2019, Restructuring Batch Normalization, count as
# much).
_NORMS = {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm"}
_NORMS |= {"native_group_norm"}
_NORMS_BACKWARD = {"native_batch_norm_backward", "batch_norm_backward", "cudnn_batch_norm_backward"}
_NORMS_BACKWARD |= {"native_group_norm_backward"}
_SORTS = {"sort", "_unique2", "unique_dim", "mode"}
# The host needs their result before it can continue, so it waits for the device, as on CUDA.
_SYNCHRONIZES = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim"}
# They work element by element, like those that torch tags as pointwise, and are refused in the same words.
_ELEMENTWISE = {"mse_loss", "smooth_l1_loss", "huber_loss", "mse_loss_backward", "binary_cross_entropy"}
# One kernel goes through the steps of all sequences; their number is the first size of this argument. A step reads what
# the step before wrote, which takes two accesses to the cache that multiprocessors share, some 200 cycles each (Jia et
# al. 2018, Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking).
_STEP_BY_STEP = {"_ctc_loss": 0, "_ctc_loss_backward": 1}
STEP = 0.3e-6  # seconds
_INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}


@dataclass(frozen=True)
class Operation:
    """What is known of an aten operation without its arguments.

    view: it makes no data, and takes no time.
    composite: it is made of other operations, and has no kernel of its own.
    causal: positions of is_causal, query and key among the arguments, if it is an attention.
    takes: seconds of its arithmetic on a GPU, where these do not follow from its FLOPs alone.
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
    empty: bool
    causal: tuple[int, int, int] | None
    flops: Callable[..., int] | None
    takes: Callable[[GPU], float] | None = None


def describe(func: Any) -> Operation:
    """Describe an aten overload."""
    packet = func._overloadpacket
    name = packet.__name__
    return Operation(
        name,
        view=func.is_view or func.namespace == "profiler",
        composite=_has_kernel(func, "CompositeImplicitAutograd")
        and not any(
            _has_kernel(func, key)
            for key in ("CPU", "Meta")  # Meta: see fused.py
        ),
        mutates=func._schema.is_mutable,
        overwrites=name in _OVERWRITES,
        picks=name in _PICKS,
        product=name in _PRODUCTS,
        convolution="convolution" in name,
        synchronizes=name in _SYNCHRONIZES,
        pointwise=torch.Tag.pointwise in func.tags or name in _ELEMENTWISE,
        foreach=name.startswith("_foreach"),
        indexes=name in _INDEXES,
        empty=name in _EMPTY,
        causal=_causal([argument.name for argument in func._schema.arguments]),
        flops=formula(packet),
    )


def _has_kernel(func: Any, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def in_parts(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Do a composite operation by the operations that torch's C++ code makes of it."""
    return func._op_dk(_COMPOSITE, *args, **kwargs)


def _causal(names: list[str]) -> tuple[int, int, int] | None:
    if not {"is_causal", "query", "key"} <= set(names):
        return None
    return names.index("is_causal"), names.index("query"), names.index("key")


class Cost(NamedTuple):
    """The cost of an operation.

    nbytes: read and written in the device's memory. seconds: on the device, including an operation's minimum.
    """

    nbytes: int
    flops: int
    seconds: float


def cost(
    op: Operation, gpu: GPU, args: tuple, kwargs: dict, inputs: list[Tensor], fresh: list[Tensor],
    changed: list[Tensor], out: Any,
) -> Cost:  # fmt: skip
    """Return what an operation costs on `gpu`.

    inputs: all tensors among its arguments; fresh: results in new storages; changed: inputs that it changes in place;
    out: what it returned.
    """
    if op.empty:
        return Cost(0, 0, 0.0)
    flops = flops_of(op, args, kwargs, out) if op.flops else 0
    if flops and op.convolution:
        return _convolution(op, gpu, args, kwargs, inputs, fresh, flops)
    nbytes = traffic(op, _reached(inputs), _reached(fresh), _reached(changed)) + _once_more(op, args)
    seconds = nbytes / (gpu.bandwidth * gpu.memory_efficiency)
    if op.takes is not None:
        seconds = max(seconds, op.takes(gpu))
    elif op.name in _STEP_BY_STEP:
        seconds = max(seconds, STEP * args[_STEP_BY_STEP[op.name]].shape[0])
    elif flops and op.causal is not None:
        seconds = max(seconds, _attention(op, gpu, args, kwargs, flops))
    elif flops:
        dtype, tf32 = inputs[0].dtype, rounds_to_tf32("matmul")
        peak, tensor_cores = gpu.peak(dtype, tf32)
        if gpu.by_shape and tensor_cores and (shape := shape_of(op.name, args)):
            reached = peak * gpu.product_efficiency * TYPICAL
            seconds = max(seconds, product_seconds(gpu, reached, *shape, dtype.itemsize))
        else:
            seconds = max(seconds, flops / gpu.rate(dtype, tf32=tf32))
    return Cost(nbytes, flops, gpu.kernel + seconds)


def traffic(op: Operation, inputs: int, fresh: int, changed: int) -> int:
    """Return the bytes that an operation reads and writes in memory: each input once, each result once.

    inputs: bytes of all arguments; fresh: of results in new storages; changed: of arguments changed in place, which
    are among the inputs.
    """
    if op.picks:
        return 2 * fresh
    if op.overwrites:
        return inputs + fresh
    return inputs + fresh + changed


def flops_of(op: Operation, args: tuple, kwargs: dict, out: Any) -> int:
    """Count FLOPs by torch's formula or ours; for causal attention, only the part that is not masked.

    A product of two complex numbers is four products of real numbers, and a sum four sums.
    """
    assert op.flops is not None
    flops = counted(op.flops, op.name, args, kwargs, out)
    if isinstance(args[0], Tensor) and args[0].is_complex():
        flops *= 4
    if op.causal is not None and _is_causal(op.causal, args, kwargs):
        _, query, key = op.causal
        flops = round(flops * below_diagonal(args[query].shape[-2], args[key].shape[-2]))
    return flops


def _is_causal(causal: tuple[int, int, int], args: tuple, kwargs: dict) -> bool:
    position = causal[0]
    return kwargs.get("is_causal") is True or (len(args) > position and args[position] is True)


def _attention(op: Operation, gpu: GPU, args: tuple, kwargs: dict, flops: int) -> float:
    assert op.causal is not None
    query = args[op.causal[1]]
    return attention_seconds(
        gpu,
        next(kernel for kernel in SOFTMAX if kernel in op.name),
        query.dtype,
        query.shape,
        flops,
        backward="backward" in op.name,
        causal=_is_causal(op.causal, args, kwargs),
        tf32=rounds_to_tf32("matmul"),
    )


def rounds_to_tf32(kind: str) -> bool:
    """Return whether torch's switches let CUDA round float32 for "conv", "rnn" or "matmul".

    By default they do for convolutions and recurrent layers, but not for products
    (torch.backends.cudnn.allow_tf32, torch.set_float32_matmul_precision).
    """
    return torch._C._get_fp32_precision_getter("cuda", kind) == "tf32"


def _reached(tensors: Sequence[Tensor]) -> int:
    """Return the bytes in which they lie. An expanded tensor has more numbers than bytes."""
    total = 0  # this loop is several times as fast as sum() of a generator for one or two tensors
    for t in tensors:
        if 0 in (strides := t.stride()):
            numbers = 1
            for size, stride in zip(t.shape, strides, strict=True):
                numbers *= size if stride else min(size, 1)
            total += numbers * t.element_size()
        else:
            total += t.nbytes
    return total


def _once_more(op: Operation, args: tuple) -> int:
    """Return the bytes that further kernels of the same operation read and write."""
    if op.name in _NORMS:
        trains = "group" in op.name or len(args) < 6 or not isinstance(args[5], bool) or args[5]
        return _reached(args[:1]) if trains else 0
    if op.name in _NORMS_BACKWARD:
        return _reached(args[:2])
    if op.name in _SORTS:
        # Radix sort reads and writes keys, and 8 bytes for each position, once for each byte of a key, and counts
        # digits first (Adinets and Merrill 2022, Onesweep). What fits in a block's own memory takes less.
        passes = args[0].element_size()
        return args[0].nbytes + (passes - 1) * 2 * (args[0].nbytes + 8 * args[0].numel())
    return 0


def _convolution(
    op: Operation, gpu: GPU, args: tuple, kwargs: dict, inputs: list[Tensor], fresh: list[Tensor], flops: int
) -> Cost:
    """Return the cost of a convolution: one kernel, or two in backward, each with half of the FLOPs.

    The two compute the gradients of the input and of the weight. Tensor cores need channels last: cuDNN rearranges
    other layouts, before and after (NVIDIA, Convolutional Layers User's Guide).
    """
    backward = "backward" in op.name
    gradient, x, weight = args[:3] if backward else (fresh[0], *args[:2])
    groups = kwargs["groups"] if "groups" in kwargs else args[9 if backward else 8]
    wanted = (True, False, False)
    if backward:
        wanted = kwargs["output_mask"] if "output_mask" in kwargs else args[10]
    dtype = x.dtype
    tensor_cores = gpu.peak(dtype, rounds_to_tf32("conv"))[1]
    images = _reached([gradient]) + x.nbytes
    # Of each kernel, bytes besides images, rows and columns of the product's result, and whether it is the weight's.
    kernels: list[tuple[int, int, int, bool]] = []
    if wanted[0]:
        made = x if backward else gradient
        others = weight.nbytes if backward else _reached(inputs) - x.nbytes
        kernels.append((others, _pixels(made), made.shape[1] // groups, False))
    if wanted[1]:
        kernels.append((weight.nbytes, weight.shape[0] // groups, weight.numel() // weight.shape[0], True))
    width = gpu.bandwidth * gpu.memory_efficiency
    nbytes = _reached([gradient]) if wanted[2] else 0  # the sum that is the bias's gradient
    seconds, launched = nbytes / width, len(kernels) + (nbytes > 0)
    depthwise, last = 1 < groups == x.shape[1], channels_last(x, weight) is not None
    rearranged = tensor_cores and not last and not depthwise
    stride, _, dilation = args[4:7] if backward else args[3:6]
    winograd = groups == 1 and list(weight.shape[2:]) == [3, 3] and set(stride) == set(dilation) == {1}
    for others, rows, columns, of_weight in kernels:
        share = flops // len(kernels)
        if depthwise and not last and gpu.capability >= (7, 0):
            took = share / depthwise_rate(gpu, dtype, of_weight)
        else:
            took = _filtering(gpu, dtype, groups, winograd, share, rows, columns)
        moved = images + others
        seconds += max(moved / width, took) + (2 * images / width if rearranged else 0.0)
        nbytes += moved + (2 * images if rearranged else 0)
    return Cost(nbytes, flops, gpu.kernel * launched + seconds)


def _filtering(gpu: GPU, dtype: torch.dtype, groups: int, winograd: bool, flops: int, rows: int, columns: int) -> float:
    """Return the seconds of a convolution's arithmetic, as a product of this shape for each group (implicit GEMM).

    winograd: whether Winograd's algorithm may be used. On GPUs before Volta, whose layers were not compared with
    measured ones, float32 reaches its part of the peak, whatever the shape.
    """
    tf32 = rounds_to_tf32("conv")
    rate, tensor_cores = gpu.rate(dtype, True, tf32), gpu.peak(dtype, tf32)[1]
    compared = tensor_cores or (dtype is torch.float32 and gpu.capability >= (7, 0))
    if not (compared and gpu.multiprocessors):
        return flops / rate
    inner = flops // (2 * groups * rows * columns)
    took = product_seconds(gpu, rate, groups, rows, columns, inner, dtype.itemsize)
    if not tensor_cores:
        return min(took * (WINOGRAD if winograd else DIRECT), flops / (LEAST * rate))
    # For groups there are also kernels that do not use tensor cores.
    return min(took, flops / gpu.rate(torch.float32)) if groups > 1 else took


# Convolutions of float32 without tensor cores take this part of what the law of products says, for their tiles are
# smaller and their operands arrive sooner. By DeepBench's kernels on a V100 (results/train): 0.8, or 0.5 where the
# filter is 3x3 with stride 1, for which Winograd's algorithm multiplies 2.25 times less (Lavin and Gray 2015). They
# reach at least this part of `GPU.rate`: that of the worst of 24 1x1 layers on a V100S (`depthwise_rate`).
DIRECT, WINOGRAD, LEAST = 0.8, 0.5, 0.36


def depthwise_rate(gpu: GPU, dtype: torch.dtype, of_weight: bool = False) -> float:
    """Return the FLOP/s of a convolution with one filter a channel that is not channels last.

    of_weight: of the kernel that makes the weight's gradient.

    In float32 these are torch's own kernels (ATen's DepthwiseConv2d.cu), which compute more indices than sums. On a
    V100S they reach 4.4 % of the peak in forward, and 2 % in the weight's gradient (medians of 3x3 and 5x5 layers of
    EfficientNet-B0 and MobileNetV2: HIT-HPC-Group/Depthwise_Separable_Convolution_Optimization). cuDNN's kernels of 16
    bits are a quarter faster on an A100 (means of pytorch/pytorch#91735). GPUs of compute capability 7.0 to 8.0 start
    twice as many instructions a cycle as they have units for float32; the others only as many.
    """
    units = gpu.flops if (7, 0) <= gpu.capability <= (8, 0) else gpu.flops / 2
    return (0.02 if of_weight else 0.044) * units * (1.25 if dtype.itemsize == 2 else 1.0)


def _pixels(images: Tensor) -> int:
    return images.numel() // images.shape[1]
