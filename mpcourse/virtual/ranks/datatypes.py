"""MPI's types of numbers; each is one of numpy's. There are no derived types."""

from typing import Any

import numpy as np

from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.refused import Offered, reduced


class Datatype(Offered):
    """A number's type. dtype: numpy's, None of MPI.DATATYPE_NULL."""

    theirs = "Datatype"

    def __init__(self, name: str, dtype: str | None) -> None:
        self.name, self.dtype = name, None if dtype is None else np.dtype(dtype)

    @classmethod
    def fromcode(cls, code: str) -> "Datatype":
        """Return the type that numpy calls by this character or string."""
        try:
            return datatype_of(np.dtype(code))
        except TypeError:
            raise ValueError(f"cannot map type code {code!r} to an MPI type") from None

    def __bool__(self) -> bool:
        return self.dtype is not None

    def __reduce__(self) -> Any:
        return reduced(self, DATATYPES | {"DATATYPE_NULL": DATATYPE_NULL})

    def __repr__(self) -> str:
        return f"MPI.{self.name}"

    @property
    def known(self) -> np.dtype:
        """The dtype. Raises ClusterError where there is none."""
        if self.dtype is None:
            raise ClusterError("datatypes", f"MPI.{self.name} is no datatype: name one, e.g. MPI.DOUBLE")
        return self.dtype

    @property
    def typestr(self) -> str:
        """Its name in numpy, which mpi4py's datatypes have, too."""
        return self.known.str[1:]

    def Get_size(self) -> int:
        return self.known.itemsize

    size: Any = property(Get_size)


_TYPES = {
    "BYTE": "u1", "CHAR": "i1", "SIGNED_CHAR": "b", "SHORT": "h", "INT": "i", "LONG": "l", "LONG_LONG": "q",
    "UNSIGNED_CHAR": "B", "UNSIGNED_SHORT": "H", "UNSIGNED": "I", "UNSIGNED_INT": "I", "UNSIGNED_LONG": "L",
    "UNSIGNED_LONG_LONG": "Q",
    "FLOAT": "f", "DOUBLE": "d", "LONG_DOUBLE": "g", "C_BOOL": "?", "BOOL": "?",
    "C_COMPLEX": "F", "C_FLOAT_COMPLEX": "F", "C_DOUBLE_COMPLEX": "D", "C_LONG_DOUBLE_COMPLEX": "G",
    "INT8_T": "b", "INT16_T": "h", "INT32_T": "i", "INT64_T": "l",
    "UINT8_T": "B", "UINT16_T": "H", "UINT32_T": "I", "UINT64_T": "L",
}  # fmt: skip
DATATYPES = {name: Datatype(name, dtype) for name, dtype in _TYPES.items()}
DATATYPE_NULL = Datatype("DATATYPE_NULL", None)
BYTE = DATATYPES["BYTE"]
# By numpy's character, the first in the order above.
BY_CHARACTER = {t.known.char: t for name, t in reversed(DATATYPES.items()) if name not in ("BYTE", "CHAR")}


def datatype_of(dtype: np.dtype) -> Datatype:
    """Return MPI's type for numpy's `dtype`; MPI.BYTE where there is none."""
    return BY_CHARACTER.get(dtype.char) or next((t for t in BY_CHARACTER.values() if t.dtype == dtype), BYTE)
