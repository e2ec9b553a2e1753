"""The IDX format of the MNIST files (yann.lecun.com/exdb/mnist).

A file holds two zero bytes, the element type, the number of dimensions, the dimensions as big-endian 32-bit integers,
then the elements, last dimension fastest.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from mpcourse.common.errors import UserError

GZIP = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08


def read_idx(path: str | Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes, plain or gzip; return uint8, of the shape that the file states.

    path: of the file.
    Raises UserError where the file cannot be read, is not sound gzip, is not IDX, holds another type of element, or is
    longer or shorter than its header says.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if data.startswith(GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is a damaged gzip file ({error}): delete it and fetch it again") from error

    if len(data) < 4 or data[:2] != b"\0\0" or data[3] == 0:
        raise UserError(f"{path} is not an IDX file: it starts with {data[:4]!r}; delete it and fetch the right one")
    if data[2] != UNSIGNED_BYTE:
        raise UserError(f"{path} holds elements of IDX type 0x{data[2]:02x}; only 0x08, unsigned bytes, can be read")
    header = 4 + 4 * data[3]
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, header, 4)]
    expected = header + math.prod(shape)
    if len(data) != expected:
        what = "cut short" if len(data) < expected else "too long"
        raise UserError(f"{path} is {what}: {expected} bytes expected, {len(data)} found; delete it and fetch it again")
    return np.frombuffer(bytearray(data), dtype=np.uint8, offset=header).reshape(shape)
