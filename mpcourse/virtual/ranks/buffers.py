"""What a program gives as a buffer, in all the forms that mpi4py takes, as a flat numpy array on the same memory.

As in mpi4py, elements travel in the order in which they lie in memory: an array in Fortran's order that is received
into an array in C's order comes transposed.
"""

import itertools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.threads import loaded_torch

NONE = np.empty(0, np.uint8)
BYTES = (np.dtype(np.uint8), np.dtype(np.int8))  # any memory may be sent as these
PLAIN = frozenset("?bBhHiIlLqQefdgFDG")  # dtypes that MPI has


class Counted(NamedTuple):
    """A flat array, with the counts and displacements of its specification, in elements; None: not given."""

    array: np.ndarray
    counts: Any = None
    displacements: Any = None


def flat(spec: Any, writable: bool = False) -> np.ndarray:
    """Return the memory that `spec` means, as a 1-D array. Raises ClusterError for what is no buffer."""
    if (
        type(spec) is np.ndarray
        and (flags := spec.flags).c_contiguous
        and spec.dtype.char in PLAIN
        and spec.dtype.isnative
    ):  # the usual case
        if writable and not flags.writeable:
            raise ClusterError("buffer", "this array is read-only: nothing can be received into it")
        return spec if spec.ndim == 1 else spec.reshape(-1)
    array, counts, displacement = counted(spec, writable)
    if counts is None and displacement is None:
        return array
    begin, count = _integers(displacement) or 0, _integers(counts)
    if isinstance(begin, list) or isinstance(count, list):
        raise ClusterError("counts", "one count, and one displacement, are needed here, not one for each rank")
    count = len(array) - begin if count is None else count
    if begin < 0 or count < 0 or begin + count > len(array):
        raise ClusterError("buffer", f"{count} elements from {begin} on, but the buffer has {len(array)}")
    return array[begin : begin + count]


def counted(spec: Any, writable: bool = False) -> Counted:
    """Return a buffer as a flat array, with its counts: [data, count], [data, (counts, displacements), type], ..."""
    if not isinstance(spec, list | tuple):
        return Counted(_memory(spec, writable))
    if not 1 <= len(spec) <= 4:
        raise ClusterError("buffer", f"a buffer is [data, count, datatype] or less, not a list of {len(spec)}")
    data, *rest = spec
    datatype = rest.pop() if rest and (isinstance(rest[-1], str) or hasattr(rest[-1], "typestr")) else None
    if datatype is None and len(rest) > 1 and rest[-1] is None:
        rest.pop()
    counts: Any = None
    displacements: Any = None
    if len(rest) == 2:
        counts, displacements = rest
    elif rest and isinstance(rest[0], tuple) and len(rest[0]) == 2:
        counts, displacements = rest[0]
    elif rest:
        counts = rest[0]
    array = _memory(data, writable)
    if datatype is not None:
        dtype = np.dtype(datatype if isinstance(datatype, str) else datatype.typestr)
        if dtype != array.dtype:
            if array.nbytes % dtype.itemsize:
                raise ClusterError("buffer", f"{array.nbytes} bytes are no whole number of {dtype}")
            array = array.view(np.uint8).view(dtype)
    return Counted(array, counts, displacements)


def _memory(data: Any, writable: bool) -> np.ndarray:
    if data is None or is_named(data, "BOTTOM"):
        return NONE
    if is_named(data, "IN_PLACE"):
        raise ClusterError(
            "buffer",
            "MPI.IN_PLACE takes the place of sendbuf, and recvbuf is the buffer (at the root of a scatter it is the "
            "other way round)",
        )
    if (torch := loaded_torch()) and isinstance(data, torch.Tensor):
        data = _of_tensor(data, torch.uint8, torch.bfloat16)
    elif not isinstance(data, np.ndarray):
        try:
            data = np.asarray(memoryview(data))
        except (TypeError, ValueError, BufferError):
            raise ClusterError(
                "buffer",
                f"{_a(type(data).__name__)} is no buffer: upper-case methods send memory such as numpy arrays, "
                "lower-case ones send any object",
            ) from None
    if not data.dtype.isnative:
        raise ClusterError(
            "buffer",
            f"the bytes of {data.dtype.str} are in the other order than this machine's, and MPI does not turn them: "
            'send x.astype(x.dtype.newbyteorder("="))',
        )
    if data.dtype.kind in "OUSMmV":
        raise ClusterError("buffer", f"an array of {data.dtype} is no buffer of numbers: use the lower-case method")
    if not (data.flags.c_contiguous or data.flags.f_contiguous):
        raise ClusterError(
            "buffer",
            f"this array is not contiguous (shape {data.shape}, strides {data.strides}): its elements do not lie side "
            "by side. Send a copy, np.ascontiguousarray(x), or receive into one",
        )
    if writable and not data.flags.writeable:
        raise ClusterError("buffer", "this buffer is read-only: nothing can be received into it")
    return data.ravel(order="K")


def _of_tensor(x: Any, uint8: Any, bfloat16: Any) -> np.ndarray:
    if x.requires_grad:
        raise ClusterError("buffer", "this tensor requires a gradient: send x.detach()")
    if x.device.type != "cpu":
        raise ClusterError(
            "buffer", f"this tensor is on {x.device}: send x.cpu(), for this MPI reads the host's memory"
        )
    if not x.is_contiguous():
        raise ClusterError(
            "buffer", f"this tensor is not contiguous (shape {tuple(x.shape)}, stride {x.stride()}): x.contiguous() is"
        )
    # numpy has no bfloat16, so return its bytes.
    return x.reshape(-1).view(uint8).numpy() if x.dtype == bfloat16 else x.numpy()


def blocks(buffer: Counted, size: int, what: str, uneven: bool = False, apart: bool = False) -> list[np.ndarray]:
    """Divide a buffer into one piece for each of `size` ranks: equal ones, or by its counts and displacements.

    apart: no element may be in two pieces, as MPI requires of what is received (MPI 4.1, section 6.5).
    uneven: where no counts are given, the first pieces may be one longer. A single displacement is the distance of
    pieces.
    """
    array, counts, displacements = buffer
    counts, displacements = _integers(counts), _integers(displacements)
    if isinstance(displacements, int):
        displacements = [rank * displacements for rank in range(size)]
    if counts is None and uneven:
        counts = [len(array) // size + (rank < len(array) % size) for rank in range(size)]
    if counts is None or isinstance(counts, int):
        count = len(array) // size if counts is None else counts
        if counts is None and len(array) % size:
            raise ClusterError("counts", f"{what} has {len(array)} elements, which {size} ranks cannot share alike")
        counts = [count] * size
    if len(counts) != size:
        raise ClusterError("counts", f"{what} has {len(counts)} counts for {size} ranks")
    begins = _begins(counts) if displacements is None else displacements
    for rank, (begin, count) in enumerate(zip(begins, counts, strict=True)):
        if begin < 0 or count < 0 or begin + count > len(array):
            raise ClusterError(
                "counts",
                f"{what}: the piece of rank {rank} is elements {begin} to {begin + count - 1}, but it has {len(array)}",
            )
    if apart and displacements is not None:
        pieces = sorted((b, b + c, rank) for rank, (b, c) in enumerate(zip(begins, counts, strict=True)) if c)
        for (_, end, rank), (begin, _, other) in itertools.pairwise(pieces):
            if begin < end:
                raise ClusterError(
                    "counts",
                    f"{what}: the places of ranks {rank} and {other} overlap: both have element {begin}, and MPI "
                    "writes each element only once. Take other displacements",
                )
    return [array[b : b + c] for b, c in zip(begins, counts, strict=True)]


def _integers(given: Any) -> Any:
    """Return counts or displacements: None, one for all ranks, or a list with one for each."""
    try:
        if given is None or type(given) is int:  # the usual case
            return given
        if type(given) not in (list, tuple) and np.ndim(given) == 0:
            return operator.index(given)
        return [operator.index(each) for each in given]
    except TypeError:
        raise ClusterError("counts", f"counts and displacements are integers, not {given!r}") from None


def alike(sent: np.dtype, wanted: np.dtype) -> bool:
    """Return whether what was sent as one dtype may be received as the other."""
    return (sent.kind, sent.itemsize) == (wanted.kind, wanted.itemsize) or sent in BYTES or wanted in BYTES


def _begins(counts: Sequence[int]) -> list[int]:
    begins = [0]
    for count in counts[:-1]:
        begins.append(begins[-1] + count)
    return begins


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def is_named(buf: Any, name: str) -> bool:
    """Return whether a buffer is MPI's constant of that name, ours or mpi4py's, without the slow repr of an array."""
    return type(buf).__name__ in ("_Named", "BottomType", "InPlaceType") and repr(buf) in (name, f"MPI.{name}")
