"""What results look like, remembered: torch makes the shapes of most operations on meta tensors in Python.

That takes a tenth of a millisecond or more, for each of a network's layers, in each step, though nothing has changed.
"""

from typing import Any

import torch

Tensor = torch.Tensor
MOST = 10_000  # calls
# By operation and what its arguments look like: how to make its results; None: that has to be asked each time.
_results: dict[Any, tuple | None] = {}
_PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
_TENSORS = {Tensor, torch.nn.Parameter}
_FIRST, _NOTHING = ("first",), ("nothing",)  # of an operation in place


def shapes_of(run: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """What `run(*args, **kwargs)` returns, on tensors without data; `run` is pure, but for operations in place.

    run: the operation `func` of aten, or what makes its shapes in its place.
    """
    if func.namespace != "aten" or torch.Tag.inplace_view in func.tags:  # as set_, which replaces a tensor's storage
        return run(*args, **kwargs)
    tensors: list[Tensor] = []
    exact = not func.__name__.startswith("_foreach")  # Adam's factors are others in each step, and change no shape
    look = _look(args, tensors, exact), _look(kwargs.items(), tensors, exact) if kwargs else ()
    if not tensors or None in look:
        return run(*args, **kwargs)
    key = func, look, torch.get_default_dtype()  # of what integers are divided into
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
    """All that a result's shape, strides and dtype depend on; None where that is not known. Adds to `tensors`.

    exact: whether it may depend on floating-point numbers' values.
    """
    looks: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _TENSORS:
            # Of numbers in tensors of their own, which are the CPU's, torch knows by a mark that is not seen here.
            if not value.is_meta or value.layout is not torch.strided or value.is_nested or value.dtype.is_complex:
                return None
            tensors.append(value)
            looks.append((value.shape, value.stride(), value.dtype))
        elif kind is float and not exact:
            looks.append(kind)
        elif kind in _PLAIN:
            looks.append((kind, value))  # 1, 1.0 and True are equal, and make results of different dtypes
        elif kind is list or kind is tuple:
            inside = _look(value, tensors, exact)
            if inside is None:
                return None
            looks.append((kind, inside))
        else:
            return None
    return tuple(looks)


def _how(func: Any, args: tuple, tensors: list[Tensor], out: Any) -> tuple | None:
    """How to make results such as `out`, if nothing but their looks matters."""
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
