"""What all algorithms do with an array: make it one flat buffer, cut it into chunks, send it by MPI, add it up."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch

Array = TypeVar("Array", np.ndarray, torch.Tensor)
Op = Callable[[Any, Any], Any]  # of two flat buffers, e.g. np.maximum, or torch.maximum for tensors


def flatten(x: Array) -> Array:
    """Return all elements of x as a buffer of one dimension, on the same memory.

    x: a numpy array or CPU tensor of any shape and dtype.
    Raises TypeError where x is neither; ValueError where it is not contiguous, not writeable, or not in the host's
    memory, because no sum could be written into it.
    """
    if type(x) is np.ndarray and x.ndim == 1 and (flags := x.flags).c_contiguous and flags.writeable:  # the usual case
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


def empty_like(x: Array, length: int | None = None) -> Array:
    """Return a flat buffer of x's dtype whose elements are not set: a numpy array for a numpy array, else a CPU tensor.

    x: a numpy array or CPU tensor; flat, if `length` is None.
    length: elements of the buffer; None: as many as x has.
    """
    length = len(x) if length is None else length
    return np.empty(length, x.dtype) if isinstance(x, np.ndarray) else torch.empty(length, dtype=x.dtype)


def mpi_buffer(x: Array) -> np.ndarray:
    """Return the flat buffer x as a numpy array that MPI takes, on the same memory.

    x: a numpy array or contiguous CPU tensor of one dimension.

    Where MPI lacks the dtype (float16, bfloat16), the array holds its bytes, as uint8.
    """
    if isinstance(x, np.ndarray):
        return x.view(np.uint8) if x.dtype.char == "e" else x  # "e" is float16
    if x.dtype not in (torch.float16, torch.bfloat16):
        return x.numpy()
    if not len(x):  # its stride may be any number, and then torch does not view it as bytes
        return np.empty(0, np.uint8)
    return x.view(torch.uint8).numpy()


def accumulate(into: Array, other: Array, op: Op | None = None) -> None:
    """Compute into = op(into, other), written into `into`.

    into, other: flat buffers of the same length and dtype.
    op: an operation on both; None: the sum.
    """
    if op is None:
        into += other
    else:
        into[:] = op(into, other)


def offsets(length: int, parts: int) -> list[int]:
    """Return where `parts` chunks of `length` elements begin and end: chunk i is from offsets[i] to offsets[i + 1].

    length: elements to be cut, 0 or more.
    parts: chunks, 1 or more.

    Lengths of chunks differ by at most 1, and no chunk is longer than the last. With fewer elements than parts, some
    chunks are empty.
    """
    return [length * i // parts for i in range(parts + 1)]


def chunks(x: Array, parts: int) -> list[Array]:
    """Cut all elements of x into `parts` flat buffers on the same memory; their lengths differ by at most 1.

    x: a contiguous numpy array or CPU tensor of any shape.
    parts: 1 or more.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
    """
    flat = flatten(x)
    at = offsets(len(flat), parts)
    return [flat[begin:end] for begin, end in pairwise(at)]
