"""FLOPs of operations that torch's own registry does not know, or does not know exactly.

A multiplication and an addition are two FLOPs. Factorizations are counted as in Golub and Van Loan, Matrix
Computations.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

Tensor = torch.Tensor


def _attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return sdpa_flop_count(query.shape, key.shape, value.shape)


def _attention_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return sdpa_backward_flop_count(grad.shape, query.shape, key.shape, value.shape)


def _convolution(
    x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, *rest: Any,
    **options: Any,
) -> int:  # fmt: skip
    """Count the weight once for each point of the result, or of the input if the convolution is transposed."""
    return _filtered(x if transposed else options["out_val"], weight)


def _convolution_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, output_mask: Sequence[bool], **options: Any,
) -> int:  # fmt: skip
    """Count as many FLOPs as in forward for the gradient of the input, and as many for that of the weight.

    torch's own formula for the latter ignores groups.
    """
    return (output_mask[0] + output_mask[1]) * _filtered(x if transposed else gradient, weight)


def _filtered(images: Tensor, weight: Tensor) -> int:
    return 2 * images.shape[0] * math.prod(images.shape[2:]) * weight.numel()


def _recurrent(x: Tensor, of_input: Tensor, of_state: Tensor, *rest: Any, **options: Any) -> int:
    """Count both weights, each once a step, for x of (steps, batch, features)."""
    return 2 * x.shape[0] * x.shape[1] * (of_input.numel() + of_state.numel())


def _product(first: int, second: int) -> Callable[..., int]:
    """Count a product of the arguments at two positions: (..., m, k) and (..., k, n), or a vector for either."""

    def flops(*args: Any, **options: Any) -> int:
        a, b = args[first], args[second]
        return 2 * a.numel() * (b.shape[-1] if b.dim() > 1 else 1)

    return flops


def _by_rows(x: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    """Count a product of (m, k) and a weight of m rows of outputs, however it is packed."""
    return 2 * x.numel() * options["out_val"].shape[-1]


def _grouped(a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    """Count a product of groups of rows, columns or summed elements; one tensor or both have the groups' dimension."""
    return 2 * (a[0].numel() if a.dim() > b.dim() else a.numel()) * b.shape[-1]


def _trilinear(a: Tensor, b: Tensor, c: Tensor, *rest: Any, **options: Any) -> int:
    """Count F.bilinear: the weight, for each example."""
    return 2 * b.numel() * (a.numel() // a.shape[-1])


def _square(part: float) -> Callable[..., int]:
    """Count `part` n^3 for (..., n, n)."""
    return lambda x, *rest, **options: int(part * x.numel() * x.shape[-1])


def _solve(x: Tensor, right: Tensor, *rest: Any, **options: Any) -> int:
    return _square(2 / 3)(x) + 2 * x.shape[-1] * right.numel()


def _tall(m_m_n: float, m_n_n: float, n_n_n: float) -> Callable[..., int]:
    """Count the sum of the terms' multiples for (..., m, n), or the transpose where it is wide."""

    def flops(x: Tensor, *rest: Any, **options: Any) -> int:
        n, m = sorted(x.shape[-2:])
        return int(math.prod(x.shape[:-2]) * (m_m_n * m * m * n + m_n_n * m * n * n + n_n_n * n**3))

    return flops


_FORMULAS: dict[str, Callable[..., int]] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    # operations that only the CPU has
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": lambda *args, **options: 2 * _recurrent(*args),
    # products that torch's registry leaves out
    "_int_mm": _product(0, 1),
    "mv": _product(0, 1),
    "addmv": _product(1, 2),
    "addmv_": _product(1, 2),
    "addmm_": _product(1, 2),
    "baddbmm_": _product(1, 2),
    "_addmm_activation": _product(1, 2),
    "addbmm": _product(1, 2),
    "addbmm_": _product(1, 2),
    "dot": _product(0, 1),
    "vdot": _product(0, 1),
    "_trilinear": _trilinear,
    "_euclidean_dist": lambda a, b, **options: 2 * a.numel() * b.shape[-2],
    "_cdist_forward": lambda a, b, *rest, **options: 3 * a.numel() * b.shape[-2],
    "_weight_int8pack_mm": _by_rows,
    "_weight_int4pack_mm": _by_rows,
    "_grouped_mm": _grouped,
    "_scaled_grouped_mm": _grouped,
    # factorizations
    "linalg_cholesky_ex": _square(1 / 3),
    "cholesky": _square(1 / 3),
    "linalg_lu_factor_ex": _tall(0, 1, -1 / 3),
    "linalg_lu": _tall(0, 1, -1 / 3),
    "linalg_inv_ex": _square(2),
    "_linalg_det": _square(2 / 3),
    "_linalg_slogdet": _square(2 / 3),
    "_linalg_solve_ex": _solve,
    "linalg_lu_solve": lambda lu, pivots, right, **options: 2 * lu.shape[-1] * right.numel(),
    "cholesky_solve": lambda right, factor, *rest, **options: 2 * factor.shape[-1] * right.numel(),
    "_cholesky_solve_helper": lambda right, factor, *rest, **options: 2 * factor.shape[-1] * right.numel(),
    "cholesky_inverse": _square(2 / 3),
    "linalg_solve_triangular": lambda x, right, **options: x.shape[-1] * right.numel(),
    "linalg_qr": _tall(0, 4, -4 / 3),  # R, and the columns of Q that go with it
    "geqrf": _tall(0, 2, -2 / 3),
    "_linalg_eigh": _square(9),
    "linalg_eig": _square(25),
    "_linalg_svd": _tall(4, 8, 9),
}


def formula(packet: Any) -> Callable[..., int] | None:
    """Return the function that counts an aten operation's FLOPs, or None if it does no arithmetic worth counting."""
    return _FORMULAS.get(packet.__name__) or flop_registry.get(packet)


def below_diagonal(queries: int, keys: int) -> float:
    """Return the part of an attention matrix that a causal mask leaves: query i sees keys 0 to i."""
    if queries <= keys:
        return (queries + 1) / (2 * keys)
    return (keys * (keys + 1) / 2 + (queries - keys) * keys) / (queries * keys)


_seen: dict[Any, int] = {}


def counted(formula: Callable[..., int], name: str, args: tuple, kwargs: dict, out: Any) -> int:
    """Count by the formula; where it depends on shapes alone, reuse its result for the same shapes."""
    if name == "mm":  # backward is made of these, and looking the shapes up would take longer
        (m, k), n = args[0].shape, args[1].shape[1]
        return 2 * m * k * n
    if not hasattr(formula, "__wrapped__"):  # a formula that reads tensors
        return formula(*args, **kwargs, out_val=out)
    key = (name, _shapes(args), _shapes(tuple(kwargs.items())))
    if key not in _seen:
        _seen[key] = formula(*args, **kwargs, out_val=out)
    return _seen[key]


def _shapes(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape
    return tuple(map(_shapes, value)) if isinstance(value, list | tuple) else value
