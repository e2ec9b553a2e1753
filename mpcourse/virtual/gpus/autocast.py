"""Automatic mixed precision on virtual GPUs, by CUDA's lists.

torch gives autocast a dispatch key for each kind of device, in front of autograd, so that autograd saves what was cast.
The "vgpu" backend's is AutocastPrivateUse1. The tensors of a box are CPU or meta tensors and do not carry that key; a
thread that is in a box (modes.py) sets it for all of them. `torch.autocast("vgpu")` switches it, as every autocast does
its own. So nesting, decorators, `custom_fwd` and activation checkpointing need no code here. The kernels below cast the
tensors that are on a virtual GPU, and pass the call on.

The values are those of the CPU's own kernels in bfloat16 or float16. They are also those of `torch.autocast("cpu")`
where the two lists agree. The lists differ in layer_norm, group_norm, softmax, exp, pow, sum, norm and the other
operations that only CUDA computes in float32; in cross_entropy, which the CPU computes in float32 as a whole, and CUDA
as log_softmax in the dtype of its input and nll_loss in float32; and in 3-D pooling, padding, linear algebra and
Fourier transforms, which only the CPU computes in float32.

Sources in torch: aten/src/ATen/autocast_mode.h has the lists and the policies, autocast_mode.cpp the cache.
"""

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from mpcourse.virtual.gpus.box import TAG

Tensor = torch.Tensor
KEY = torch._C._dispatch_key_parse("AutocastPrivateUse1")
_KEYS = torch._C.DispatchKeySet(KEY)

# What CUDA's autocast does with an operation (AT_FORALL_LOWER_PRECISION_FP and its like in autocast_mode.h).
# Operations in no list run in the dtypes that they are given.
POLICIES: dict[str, tuple[str, ...]] = {
    # All inputs are cast to the dtype of the region, float16 unless it names another one.
    "lower precision": (
        "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
        "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul",
        "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot",
        "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
        "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
    ),
    # All inputs are cast to float32.
    "float32": (
        "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
        "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm",
        "native_layer_norm", "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim",
        "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
        "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss",
        "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
        "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp", "upsample_nearest1d",
        "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_nearest3d",
        "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "_upsample_bilinear2d_aa",
        "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
    ),
    # The result is in float32 where the caller asks for no other dtype; the input is not cast beforehand.
    "float32 result": (
        "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
        "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
    ),
    # The same for overloads that take no dtype: the overload that takes one is called.
    "float32 overload": ("norm.Scalar", "norm.ScalarOpt_dim"),
    # All inputs are cast to the widest dtype among them.
    "promote": (
        "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
        "scatter_add",
    ),
    # Their gradients overflow in float16.
    "refused": ("binary_cross_entropy",),
}  # fmt: skip


def eligible(x: Any) -> bool:
    """Return whether autocast casts `x`: a floating-point tensor on a virtual GPU, except float64."""
    return (
        isinstance(x, Tensor)
        and x.is_floating_point()
        and x.dtype is not torch.float64
        and x.layout is torch.strided
        and hasattr(x.untyped_storage(), TAG)
    )


def region_dtype() -> torch.dtype:
    return torch.get_autocast_dtype("vgpu")


# -- the cache of cast weights --


class _Casts(threading.local):
    def __init__(self) -> None:
        self.of: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}  # id of a weight -> the weight, and its cast copy


_casts = _Casts()
_clear = torch.clear_autocast_cache


def clear_cache() -> None:
    """Clear the cache; torch.autocast calls this when its outermost region is left."""
    _casts.of.clear()
    _clear()


def cast(x: Any, dtype: torch.dtype) -> Any:
    """Return `x`, or the tensors in the list `x`, in `dtype`, if they are eligible; cast a weight once per region.

    As in torch, the cache keeps casts of float32 leaves that require gradients to the region's own dtype.
    """
    if isinstance(x, list | tuple):
        return [cast(each, dtype) for each in x]
    if not eligible(x) or x.dtype is dtype:
        return x
    kept = (
        x.dtype is torch.float32
        and dtype is region_dtype()
        and x.requires_grad
        and x.is_leaf
        and not x._is_view()
        and torch.is_autocast_cache_enabled()
        and not torch.is_inference_mode_enabled()
    )
    if not kept:
        return x.to(dtype)
    entry = _casts.of.get(id(x))
    if entry is not None and entry[0]() is x:
        return entry[1]
    with torch.enable_grad():  # so that a cast made without gradients also serves a later use with them
        made = x.to(dtype)
    _casts.of[id(x)] = weakref.ref(x), made
    return made


# -- the policies --

Kernel = Callable[..., Any]


def _behind(run: Kernel) -> Kernel:
    """Return the kernel: autocast is off in what it calls, and torch functions are torch's own."""

    @functools.wraps(run)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS), torch._C.DisableTorchFunction():
            return run(*args, **kwargs)

    return kernel


def _in(func: Any, dtype_of: Callable[[tuple], torch.dtype]) -> Kernel:
    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = dtype_of((*args, *kwargs.values()))
        return func(*[cast(a, dtype) for a in args], **{k: cast(v, dtype) for k, v in kwargs.items()})

    return run


def _float32_result(func: Any) -> Kernel:
    arguments = func._schema.arguments
    position = next(i for i, a in enumerate(arguments) if a.name == "dtype")
    by_name = arguments[position].kwarg_only

    def run(*args: Any, **kwargs: Any) -> Any:
        if not eligible(args[0]):
            return func(*args, **kwargs)
        if by_name:
            return func(*args, **kwargs | {"dtype": kwargs.get("dtype") or torch.float32})
        filled = [*args, *(a.default_value for a in arguments[len(args) : position + 1])]
        filled[position] = filled[position] or torch.float32
        return func(*filled, **kwargs)

    return run


def _float32_overload(func: Any) -> Kernel:
    with_dtype = getattr(
        func._overloadpacket, {"Scalar": "ScalarOpt_dtype"}.get(func._overloadname, "ScalarOpt_dim_dtype")
    )
    defaults = [a.default_value for a in func._schema.arguments]

    def run(*args: Any) -> Any:
        dtype = torch.float32 if eligible(args[0]) else args[0].dtype
        return with_dtype(*args, *defaults[len(args) :], dtype=dtype)

    return run


def _widest(args: tuple) -> torch.dtype:
    given = {x.dtype for a in args for x in (a if isinstance(a, list | tuple) else (a,)) if eligible(x)}
    if not given <= {region_dtype(), torch.float32}:
        raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")  # torch's words
    return torch.float32 if torch.float32 in given else region_dtype()


def _refused(func: Any) -> Kernel:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not eligible(args[0]):
            return func(*args, **kwargs)
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: leave out the "
            "sigmoid before it, and use torch.nn.functional.binary_cross_entropy_with_logits or "
            "torch.nn.BCEWithLogitsLoss"
        )

    return run


_MAKE: dict[str, Callable[[Any], Kernel]] = {
    "lower precision": lambda func: _in(func, lambda args: region_dtype()),
    "float32": lambda func: _in(func, lambda args: torch.float32),
    "float32 result": _float32_result,
    "float32 overload": _float32_overload,
    "promote": lambda func: _in(func, _widest),
    "refused": _refused,
}

_libraries = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
_libraries[0].fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
for _policy, _names in POLICIES.items():
    for _name in _names:
        _packet, _, _overload = _name.partition(".")
        _func = getattr(getattr(torch.ops.aten, _packet), _overload or "default")
        _libraries[1].impl(_name, _behind(_MAKE[_policy](_func)), "AutocastPrivateUse1")
