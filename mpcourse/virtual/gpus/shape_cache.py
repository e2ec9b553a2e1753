"""A cache of results' shapes, because torch makes most operations' shapes on meta tensors in Python.

That takes a tenth of a millisecond or more, for each of a network's layers, in each step, although nothing has changed.
"""

from typing import Any

import torch

Tensor = torch.Tensor
MOST = 10_000  # calls
# By operation and look of its arguments: how to make its results. None: they have to be asked for each time.
_results: dict[Any, tuple | None] = {}
_PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
_TENSORS = {Tensor, torch.nn.Parameter}
_FIRST, _NOTHING = ("first",), ("nothing",)  # for operations in place


def shapes_of(run: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Return what `run(*args, **kwargs)` returns, on tensors without data. Except in place, `run` must be pure.

    run: the operation `func` of aten, or a function that makes its results' shapes.
    """
    if func.namespace != "aten" or torch.Tag.inplace_view in func.tags:  # such as set_, which replaces the storage
        return run(*args, **kwargs)
    tensors: list[Tensor] = []
    exact = not func.__name__.startswith("_foreach")  # Adam's factors differ in each step, and change no shape
    look = _look(args, tensors, exact), _look(kwargs.items(), tensors, exact) if kwargs else ()
    if not tensors or None in look:
        return run(*args, **kwargs)
    key = func, look, torch.get_default_dtype()  # the dtype of divided integers
    how = _results.get(key, ())
    if how:
        if how is _FIRST:
            return args[0]
        if how is _NOTHING:
            return None
        made = [None if of is None else torch.empty_strided(of[0], of[1], dtype=of[2], device="meta") for of in how[1:]]
        return made[0] if how[0] is Tensor else how[0](made)
    held = [t.untyped_storage().nbytes() for t in tensors]
    out = run(*args, **kwargs)
    if how is not None:
        if len(_results) >= MOST:
            _results.clear()
        same = [t.untyped_storage().nbytes() for t in tensors] == held and _look(args, [], exact) == look[0]
        _results[key] = _how(func, args, tensors, out) if same else None
    return out


def _look(values: Any, tensors: list[Tensor], exact: bool) -> tuple | None:
    """Return all that a result's shape, strides and dtype depend on, or None if it is not known. Extends `tensors`.

    exact: whether results may depend on the values of floating-point numbers.
    """
    looks: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _TENSORS:
            # torch recognises numbers in tensors of their own, on the CPU, by a mark that is not seen here.
            if not value.is_meta or value.layout is not torch.strided or value.is_nested or value.dtype.is_complex:
                return None
            tensors.append(value)
            looks.append((value.shape, value.stride(), value.dtype))
        elif kind is float and not exact:
            looks.append(kind)
        elif kind in _PLAIN:
            looks.append((kind, value))  # 1, 1.0 and True are equal, but make results of different dtypes
        elif kind is list or kind is tuple:
            inside = _look(value, tensors, exact)
            if inside is None:
                return None
            looks.append((kind, inside))
        else:
            return None
    return tuple(looks)


def _how(func: Any, args: tuple, tensors: list[Tensor], out: Any) -> tuple | None:
    """Return how to make results like `out`, if only their looks matter; None otherwise."""
    if func._schema.is_mutable:
        if out is None:
            return _NOTHING
        return _FIRST if out is args[0] else None
    kind = type(out)
    if kind is not Tensor and kind is not tuple and kind is not list:
        return None
    outputs = [out] if kind is Tensor else out
    seen = {t.untyped_storage()._cdata for t in tensors}
    looks: list[Any] = []
    for t in outputs:
        if t is None:
            looks.append(None)
            continue
        if type(t) is not Tensor or not t.is_meta or t.layout is not torch.strided or t.dtype.is_complex:
            return None
        storage = t.untyped_storage()
        again = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        if storage._cdata in seen or t.storage_offset() or storage.nbytes() != again.untyped_storage().nbytes():
            return None
        seen.add(storage._cdata)
        looks.append((tuple(t.shape), t.stride(), t.dtype))
    return kind, *looks
