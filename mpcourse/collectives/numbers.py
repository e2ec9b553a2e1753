"""What all algorithms share: x as one row of numbers, cut into chunks, sent, and added up."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

Array = TypeVar("Array", np.ndarray, torch.Tensor)
Op = Callable[[Any, Any], Any]  # of two rows of numbers, e.g. np.maximum, or torch.maximum for tensors


def row(x: Array) -> Array:
    """All of x as one row, on the same memory. Raises TypeError or ValueError for what cannot be summed in place."""
    if type(x) is np.ndarray and x.ndim == 1 and (flags := x.flags).c_contiguous and flags.writeable:  # as most are
        return x
    if isinstance(x, torch.Tensor):
        if x.device.type != "cpu":
            raise ValueError(f"x is on {x.device}: these functions work in the host's memory")
        if not x.is_contiguous():
            raise ValueError(f"x is not contiguous (shape {tuple(x.shape)}, stride {x.stride()})")
        return x.detach().view(-1)
    if not isinstance(x, np.ndarray):
        raise TypeError(f"x is a {type(x).__name__}: a numpy array or a CPU tensor is needed")
    if not x.flags.c_contiguous:
        raise ValueError(f"x is not contiguous (shape {x.shape}, strides {x.strides})")
    if not x.flags.writeable:
        raise ValueError("x is read-only: these functions work in place")
    return x.reshape(-1)


def empty_like(x: Array, length: int) -> Array:
    """A row of `length` numbers of x's dtype."""
    return np.empty(length, x.dtype) if isinstance(x, np.ndarray) else torch.empty(length, dtype=x.dtype)


def wire(x: Array) -> np.ndarray:
    """A row as MPI takes it, to be sliced as the row is: where MPI has no such dtype, a number is its bytes."""
    if isinstance(x, np.ndarray):
        return x.view(np.uint8).reshape(len(x), 2) if x.dtype.char == "e" else x  # "e" is float16
    if x.dtype not in (torch.float16, torch.bfloat16):
        return x.numpy()
    if not len(x):  # its stride may be any number, and then torch does not view it as bytes
        return np.empty((0, 2), np.uint8)
    return x.view(torch.uint8).view(len(x), 2).numpy()


def add(into: Array, other: Array, op: Op | None) -> None:
    """into = op(into, other); None: the sum."""
    if op is None:
        into += other
    else:
        into[:] = op(into, other)


def edges(length: int, pieces: int) -> list[int]:
    """Where chunks begin, and where the last one ends: piece i is from edges[i] to edges[i + 1].

    Lengths differ by 1 at most; where there are fewer numbers than pieces some are empty.
    """
    return [length * i // pieces for i in range(pieces + 1)]


def cut(x: Any, edge: list[int]) -> list[Any]:
    """The pieces of a row between `edges`, on the same memory."""
    return [x[a:b] for a, b in zip(edge[:-1], edge[1:], strict=True)]
