"""Attention as CUDA does it: which kernel torch takes, in which order it writes its result, and what it keeps.

torch takes the first kernel of its list that can do what is asked (aten/src/ATen/native/transformers/cuda/
sdp_utils.cpp). FlashAttention and cuDNN do half precision, and write in the query's order. The memory-efficient kernel
writes (batch, tokens, heads, width). None of them keeps the weights, and with dropout none keeps a mask. What no kernel
can do, torch does by products and softmax. The values are those that torch gives on a CPU.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from mpcourse.virtual.gpus import autocast, kept
from mpcourse.virtual.gpus.cost import in_parts
from mpcourse.virtual.gpus.counted import counted
from mpcourse.virtual.gpus.device_checks import judged
from mpcourse.virtual.gpus.dispatch import DispatchMode
from mpcourse.virtual.gpus.kernels import paused

Tensor = torch.Tensor
aten = torch.ops.aten
_HALF = {torch.float16, torch.bfloat16}
_AUTOGRAD = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradFunctionality)


# -- which kernel --


def _choice(
    gpu: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool, grouped: bool
) -> SDPBackend:
    """Choose as `select_sdp_backend` does. Raises RuntimeError where torch.backends.cuda's switches leave no kernel."""
    order = list(map(SDPBackend, torch._C._get_sdp_priority_order()))
    if gpu.capability[0] in (9, 10):
        order.remove(SDPBackend.CUDNN_ATTENTION)
        order.insert(0, SDPBackend.CUDNN_ATTENTION)
    width, values = q.shape[-1], v.shape[-1]
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    fused = q.dim() == 4 and q.shape[0] == k.shape[0] == v.shape[0] and 0 not in (*q.shape, *k.shape, *v.shape)
    fused &= all(t.stride(-1) == 1 or t.shape[-1] == 1 for t in (q, k, v))
    fused &= mask is None or mask.stride(-1) == 1  # T5's learned bias has another stride
    same_heads = fused and q.shape[1] == k.shape[1] == v.shape[1]
    heads = same_heads or (fused and grouped and k.shape[1] == v.shape[1] and q.shape[1] % k.shape[1] == 0)
    half = q.dtype in _HALF

    def cudnn() -> bool:
        fits = max(width, values) <= 128 or (width, values) == (192, 128)
        fits &= width % 8 == values % 8 == 0 and k.shape[2] > 1 and (p == 0 or q.shape[2] > 1)
        learned = mask is not None and (mask.requires_grad or mask.dim() not in (2, 4))
        exact = (
            torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
        )
        return torch.backends.cuda.cudnn_sdp_enabled() and half and heads and fits and not learned and not exact and (
            p * 16 == int(p * 16)
        )  # fmt: skip

    def flash() -> bool:
        fits = width == values <= 256 and not (causal and q.shape[2] != k.shape[2])
        fits &= not (learns and width > 192 and gpu.capability in ((8, 6), (8, 9), (12, 0), (12, 1)))
        fits &= gpu.capability >= (8, 0) and mask is None
        return torch.backends.cuda.flash_sdp_enabled() and half and heads and fits

    def efficient() -> bool:
        step = 8 if half else 4
        fits = width % step == values % step == 0 and (half or q.dtype is torch.float32)
        return torch.backends.cuda.mem_efficient_sdp_enabled() and same_heads and fits

    can: dict[SDPBackend, Callable[[], bool]] = {
        SDPBackend.CUDNN_ATTENTION: cudnn,
        SDPBackend.FLASH_ATTENTION: flash,
        SDPBackend.EFFICIENT_ATTENTION: efficient,
        SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
    }
    for backend in order:
        if (backend == SDPBackend.MATH or fused) and backend in can and can[backend]():
            return backend
    raise RuntimeError(
        f"no kernel of attention that torch.nn.attention.sdpa_kernel leaves switched on takes {tuple(q.shape)} "
        f"{str(q.dtype).removeprefix('torch.')}{' with a mask' if mask is not None else ''}: leave SDPBackend.MATH on"
    )


def _invalid(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> bool:
    """Return whether torch refuses the arguments on any device."""
    wrong = min(q.dim(), k.dim(), v.dim()) < 2 or not q.dtype == k.dtype == v.dtype
    wrong_mask = mask is not None and mask.dtype not in (torch.bool, torch.float32, q.dtype)
    return wrong or wrong_mask or (mask is not None and causal)


def _attention(
    mode: DispatchMode, func: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None,
    p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Do scaled_dot_product_attention (aten/src/ATen/native/transformers/attention.cpp)."""
    judged(func, (query, key, value, mask), {}, mode.box)
    if torch.is_autocast_enabled("vgpu"):
        query, key, value, mask = (autocast.cast(t, autocast.region_dtype()) for t in (query, key, value, mask))
    options = {"scale": scale, "enable_gqa": enable_gqa}
    if _invalid(query, key, value, mask, is_causal):
        return in_parts(func, query, key, value, mask, p, is_causal, **options)
    block = mode.box.block_of(query)
    assert block is not None
    choice = _choice(mode.box.gpus[block.index], query, key, value, mask, p, is_causal, enable_gqa)
    if choice == SDPBackend.MATH:
        return _by_products(mode, func, query, key, value, mask, p, is_causal, options)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, torch.scalar_tensor(0.0, dtype=query.dtype), -math.inf)
    if choice == SDPBackend.FLASH_ATTENTION:
        width = query.shape[3]
        if rest := -width % 8:
            query, key, value = (F.pad(t, (0, rest)) for t in (query, key, value))
        scale = width**-0.5 if scale is None else scale
        flash = aten._scaled_dot_product_flash_attention.default
        return flash(query, key, value, p, is_causal, False, scale=scale)[0][..., :width]
    if choice == SDPBackend.CUDNN_ATTENTION:
        cudnn = aten._scaled_dot_product_cudnn_attention.default
        return cudnn(query, key, value, mask, learns, p, is_causal, False, scale=scale)[0]
    if mask is not None:
        mask = _aligned(mask).expand(*query.shape[:3], key.shape[2])
    efficient = aten._scaled_dot_product_efficient_attention.default
    return efficient(query, key, value, mask, learns, p, is_causal, scale=scale)[0]


def _aligned(mask: Tensor) -> Tensor:
    """Return the mask in rows that begin at multiples of 8 numbers, as the kernel needs it; a copy if necessary."""
    if mask.stride(-1) == 1 and all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    return F.pad(mask, (0, 8 - mask.shape[-1] % 8))[..., : mask.shape[-1]]


# -- the values of fused kernels --


def _on_cpu(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool, scale: float | None
) -> tuple[Tensor, Any]:
    """Return torch's result on a CPU, and what its backward needs: sums of rows, or the random numbers' state."""
    options: dict[str, Any] = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    if torch._fused_sdp_choice(q, k, v, mask, p, causal, **options) == SDPBackend.FLASH_ATTENTION.value:
        flash = aten._scaled_dot_product_flash_attention_for_cpu.default
        return flash(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    state = torch.get_rng_state()
    return F.scaled_dot_product_attention(q, k, v, mask, p, causal, **options), state


def _forward(func: Any) -> Callable[..., Any]:
    def run(*args: Any, scale: float | None = None) -> Any:
        looks = kept.looks_of(func, args, {"scale": scale})
        if func is _FLASH:
            (q, k, v, p, causal, *_), mask = _filled(func, args), None
        else:
            q, k, v, mask, _, p, causal, *_ = _filled(func, args)
        y, needed = _on_cpu(q, k, v, mask, p, causal, scale)
        rest = (kept.carrier(t, None, y.device) if isinstance(t, Tensor) else t for t in looks[2:])
        return kept.in_look(y, looks[0]), kept.carrier(looks[1], needed, y.device), *rest

    return run


def _backward(func: Any) -> Callable[..., Any]:
    def run(*args: Any, scale: float | None = None) -> Any:
        looks = kept.looks_of(func, args, {"scale": scale})
        names = [a.name for a in func._schema.arguments]
        given = dict(zip(names, _filled(func, args), strict=False))
        q, k, v, mask = given["query"], given["key"], given["value"], given.get("attn_bias")
        needed, learned = kept.carried(given["logsumexp"]), given.get("grad_input_mask", [True] * 3 + [False])[3]
        p, causal, grad = given["dropout_p"], given["is_causal"], args[0]
        if needed.dtype is not torch.uint8:
            flash = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
            grads = flash(grad, q, k, v, given["out"], needed, 0.0, causal, attn_mask=mask, scale=scale)
        else:
            of_q, of_k, of_v = (t.detach().requires_grad_() for t in (q, k, v))
            bias = mask if mask is None else _unexpanded(mask.detach()).requires_grad_(learned)
            with _recording(), torch.random.fork_rng(devices=[]):
                torch.set_rng_state(needed)
                grouped = q.shape[1] != k.shape[1]
                y = F.scaled_dot_product_attention(of_q, of_k, of_v, bias, p, causal, scale=scale, enable_gqa=grouped)
                wanted = [of_q, of_k, of_v, bias] if learned and bias is not None else [of_q, of_k, of_v]
                grads = torch.autograd.grad(y, wanted, grad)
            if learned and mask is not None:  # autograd would sum what returns for the expanded mask; here it is done
                whole = torch.zeros(mask.shape, dtype=mask.dtype)
                whole[tuple(map(slice, grads[3].shape))] = grads[3]
                grads = (*grads[:3], whole)
        pairs = zip(grads, looks, strict=False)
        grads = [None if g is None or look is None else kept.in_look(g, look) for g, look in pairs]
        return (*grads, *[None] * (len(looks) - len(grads)))

    return run


def _unexpanded(mask: Tensor) -> Tensor:
    """Return the mask before `expand`, as far as it can be seen: of each dimension that repeats one row, that row."""
    for dim, stride in enumerate(mask.stride()):
        mask = mask.narrow(dim, 0, 1) if stride == 0 else mask
    return mask


def _filled(func: Any, args: tuple) -> list[Any]:
    """Return the arguments, with defaults for those that were left out."""
    return [*args, *(a.default_value for a in func._schema.arguments[len(args) :] if not a.kwarg_only)]


@contextlib.contextmanager
def _recording() -> Iterator[None]:
    """Let autograd record within this context, although it is below autograd, unseen by modes."""
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with paused(), torch.enable_grad(), torch._C._ForceDispatchKeyGuard(include, exclude - _AUTOGRAD):
        yield


# -- by products and softmax --


def _by_products(
    mode: DispatchMode, func: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool,
    options: dict,
) -> Tensor:  # fmt: skip
    def plan(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor]:
        if mask is not None and mask.dtype is torch.bool:
            mask = torch.where(mask, torch.scalar_tensor(0.0, dtype=q.dtype), -math.inf)
        attention = aten._scaled_dot_product_attention_math.default
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(autocast.KEY)):
            return (in_parts(attention, q, k, v, mask, p, causal, None, **options)[0],)

    def compute(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor]:
        return (func(q, k, v, mask, p, causal, **options),)

    tensors = [q, k, v] + ([] if mask is None else [mask])
    return counted(mode, plan, compute, tensors)[0]


_FLASH = aten._scaled_dot_product_flash_attention.default
KERNELS: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": _attention}
for _name in ("flash", "efficient", "cudnn"):
    for _suffix, _make in (("", _forward), ("_backward", _backward)):
        _func = getattr(aten, f"_scaled_dot_product_{_name}_attention{_suffix}").default
        kept.VALUES[_func] = _make(_func)
