"""Rounding: whether numbers are right but for a shorter dtype on their way; every case asks this first."""

from typing import Any

import numpy as np

# The unit roundoff of each dtype that numbers may have passed through: half the distance from 1 to the next number.
UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# By how much of it a number may be off: it may have been rounded several times, and in sums of others. Between float32
# and float16 there is room for more than between these two.
ROUNDINGS = {"float32": 16, "float16": 3, "bfloat16": 3}


def shorter_dtype(got: Any, want: Any, unit: float = 2.0**-53, scale: Any = None) -> str:
    """Return the name of the shorter dtype whose rounding explains how `got` differs from `want`; empty for none.

    got, want: numbers or arrays of one shape; want: the right values. unit: the unit roundoff of the dtype that was
    asked, 2**-53 for float64. scale: how large the numbers were that were rounded, such as the mean of their absolute
    values where `want` is their mean; without it, as large as `want`.

    Rounding errors scatter: some numbers come out larger, some smaller, each by its own part. A factor or an epsilon
    that is wrong by little changes all numbers by about the same part, and is no rounding. Nor are errors that are much
    smaller than the dtype's. A single number does not show this; there only a difference of float32's size counts.
    """
    got, want = np.atleast_1d(np.asarray(got, np.float64)), np.atleast_1d(np.asarray(want, np.float64))
    if got.shape != want.shape or not np.isfinite(got).all():
        return ""
    scale = np.abs(want) if scale is None else np.atleast_1d(np.asarray(scale, np.float64))
    there = np.abs(want) > 0.1 * np.abs(want).max(initial=0.0)  # small ones may be sums that cancel
    errors = (got[there] - want[there]) / want[there]
    largest = np.abs((got[there] - want[there]) / scale[there]).max(initial=0.0)
    exact = 3 * unit
    if largest <= exact or np.abs(got - want).max() > 2 * largest * scale.max(initial=0.0):
        return ""
    if errors.size < 3:
        return "float32" if unit < UNITS["float32"] and largest <= 3 * UNITS["float32"] else ""
    scatter = errors.max() - errors.min() > np.abs(errors).max() / 2
    fitting = (name for name, its in UNITS.items() if unit < its and its / 32 < largest <= ROUNDINGS[name] * its)
    return next(fitting, "") if scatter else ""
