"""A wrong answer, said so that a learner can act on it: what was asked, what came back, the likely misconception."""

import math
import numbers
import re
from collections.abc import Mapping
from typing import Any


class Wrong(AssertionError):
    """Raised by an exercise's check on the rank that found the difference.

    asked, got: what the task wants and what the learner's code did, each a phrase of one line.
    why: the misconception that most likely lies behind it, one or two sentences; empty where none is known.
    """

    def __init__(self, asked: str, got: str, why: str = "") -> None:
        super().__init__(f"asked: {asked}; got: {got}")
        self.asked, self.got, self.why = asked, got, why


def short(value: object, limit: int = 70) -> str:
    """Return the repr of a value on one line, cut to `limit` characters; also where its own repr raises."""
    try:
        text = " ".join(without_numbers(repr(value)).split())
    except BaseException as error:  # it may be the learner's: even sys.exit
        text = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return text if len(text) <= limit else text[: limit - 4] + " ..."


def without_numbers(text: str) -> str:
    """Cut each place in a text that prints many numbers of a tensor to its beginning."""
    return re.sub(r"(tensor\(\[[^()]{40})[^()]{20,}\)", r"\1 ...)", text)


def same(got: Any, want: Any, what: str, why: str = "", rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raise Wrong at the first place where `got` differs from `want`.

    what: how to call the value in the message, e.g. "the list on rank 0".
    rtol, atol: allowed relative and absolute difference of numbers; both 0 means equal to the last bit.
    Understands None, strings, numbers, lists, tuples, dicts, numpy arrays and torch tensors. NaN is named as such.
    """
    difference = first_difference(got, want, what, rtol, atol)
    if difference:
        asked, shown = difference
        raise Wrong(asked, shown, why or why_not_finite(asked, shown))


def why_not_finite(asked: str, got: str) -> str:
    """Say where NaN or infinity comes from, if a difference is about one; else empty."""
    if "NaN" in got and "NaN" not in asked:
        return "NaN is 0/0, infinity minus infinity, or memory that was never written (torch.empty, np.empty)."
    if re.match(r"-?inf\b", got) and "inf" not in asked:
        return "inf is a division by 0, or a number too large for its type."
    return ""


def first_difference(got: Any, want: Any, what: str, rtol: float = 0.0, atol: float = 0.0) -> tuple[str, str] | None:
    """Return (asked, got) phrases for the first difference, or None where there is none."""
    if hasattr(want, "shape") and hasattr(want, "dtype"):
        return _array_difference(got, want, what, rtol, atol)
    if isinstance(want, (list, tuple)):
        return _sequence_difference(got, want, what, rtol, atol)
    if isinstance(want, Mapping):
        return _mapping_difference(got, want, what, rtol, atol)
    if isinstance(want, (int, float)) and not isinstance(want, bool):
        return _number_difference(got, want, what, rtol, atol)
    if type(got) is not type(want):
        return f"{what} to be {short(want)}", f"{_with_type(got)}"
    return None if got == want else (f"{what} to be {short(want)}", short(got))


def to_numpy(value: Any) -> Any:
    """Return a numpy array or torch tensor as a numpy array; numpy has no bfloat16, so that is widened."""
    import numpy as np  # costs 0.06 s, and most checks of messages need no array

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    return np.asarray(value)


def _with_type(value: Any) -> str:
    return "None" if value is None else f"{short(value)}, a {type(value).__name__}"


def _number_difference(got: Any, want: float, what: str, rtol: float, atol: float) -> tuple[str, str] | None:
    if isinstance(got, bool) or not hasattr(got, "__float__") or getattr(got, "shape", ()) != ():
        return f"{what} to be {want!r}, a number", _with_type(got)
    try:
        number = float(got)
    except OverflowError:
        return f"{what} to be {want!r}", short(got)
    if math.isnan(number):
        return f"{what} to be {want!r}", "NaN"
    if math.isinf(number) and not math.isinf(want):
        return f"{what} to be {want!r}", f"{number!r}"
    if isinstance(want, numbers.Integral) and not isinstance(got, numbers.Integral):
        return f"{what} to be {want!r}, an int", _with_type(got)
    equal = got == want or abs(number - want) <= atol + rtol * abs(want)
    return None if equal else (f"{what} to be {want!r}", f"{got!r}")


def _sequence_difference(got: Any, want: Any, what: str, rtol: float, atol: float) -> tuple[str, str] | None:
    if not isinstance(got, type(want)):
        return f"{what} to be {short(want)}", _with_type(got)
    for i, (g, w) in enumerate(zip(got, want, strict=False)):
        if difference := first_difference(g, w, f"element {i} of {what}", rtol, atol):
            return difference
    if len(got) != len(want):
        return f"{what} to have {len(want)} elements", f"{len(got)} elements: {short(got)}"
    return None


def _mapping_difference(got: Any, want: Any, what: str, rtol: float, atol: float) -> tuple[str, str] | None:
    if not isinstance(got, Mapping):
        return f"{what} to be a dict with the keys {', '.join(map(repr, want))}", _with_type(got)
    for key in want:
        if key not in got:
            return f"{what} to have the key {key!r}", f"only the keys {', '.join(map(repr, got)) or '(none)'}"
    for key in want:
        if difference := first_difference(got[key], want[key], f"{what}[{key!r}]", rtol, atol):
            return difference
    extra = [key for key in got if key not in want]
    return (f"{what} to have no key but {', '.join(map(repr, want))}", f"also {extra[0]!r}") if extra else None


def _dtype(array: Any) -> str:
    """Return its name, which numpy and torch have in common."""
    return str(array.dtype).removeprefix("torch.")


def _array_difference(got: Any, want: Any, what: str, rtol: float, atol: float) -> tuple[str, str] | None:
    import numpy as np

    if not (hasattr(got, "shape") and hasattr(got, "dtype")):
        return f"{what} to be an array of shape {tuple(want.shape)}", _with_type(got)
    if tuple(got.shape) != tuple(want.shape):
        return f"{what} to have shape {tuple(want.shape)}", f"shape {tuple(got.shape)}"
    if got.dtype is not want.dtype and _dtype(got) != _dtype(want):
        return f"{what} to have dtype {want.dtype}", f"dtype {got.dtype}"
    g, w = to_numpy(got), to_numpy(want)
    if np.array_equal(g, w):  # as most are: isclose, which is asked else, takes several times as long
        return None
    unequal = ~np.isclose(g, w, rtol=rtol, atol=atol, equal_nan=True)
    if not unequal.any():
        return None
    index = tuple(int(i) for i in np.argwhere(unequal)[0])
    place = f"element {index[0] if len(index) == 1 else index} of {what}" if index else what
    shown = "NaN" if np.isnan(g[index]) else f"{g[index].item()!r}"
    return f"{place} to be {w[index].item()!r}", f"{shown} ({int(unequal.sum())} of {g.size} elements differ)"
