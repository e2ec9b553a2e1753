"""MPI's types of numbers; each is one of numpy's. There are no derived types."""

from typing import Any

import numpy as np

from mpcourse.virtual.ranks.constants import ERR_TYPE
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.refused import Offered, reduced


class Datatype(Offered):
    """A number's type. dtype: numpy's, None for MPI.DATATYPE_NULL. size, extent: in bytes."""

    theirs = "Datatype"
    dtype: np.dtype | None
    name: str
    is_predefined: bool
    is_named: bool

    def __new__(cls, datatype: "Datatype | None" = None) -> "Datatype":
        """Return another name for `datatype`, or for MPI.DATATYPE_NULL."""
        made = super().__new__(cls)
        made.dtype, made.name = (None, "DATATYPE_NULL") if datatype is None else (datatype.dtype, datatype.name)
        made.is_predefined = made.is_named = True
        return made

    @classmethod
    def of(cls, name: str, dtype: str) -> "Datatype":
        """Make MPI's type of that name."""
        made = cls()
        made.name, made.dtype = name, np.dtype(dtype)
        return made

    def __bool__(self) -> bool:
        return self.dtype is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Datatype) and (self.dtype, self.name) == (other.dtype, other.name)

    def __hash__(self) -> int:
        return hash((self.dtype, self.name))

    def __reduce__(self) -> Any:
        named = DATATYPES | {"DATATYPE_NULL": DATATYPE_NULL}
        return reduced(self, named) if self.is_predefined else (Datatype.Dup, (named[self.name],))

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
        return self.known.str[1:]

    @property
    def typechar(self) -> str:
        return self.known.char

    @classmethod
    def fromcode(cls, code: str) -> "Datatype":
        """Return the type that numpy calls by this character or string."""
        try:
            return datatype_of(np.dtype(code))
        except TypeError:
            raise ValueError(f"cannot map type code {code!r} to an MPI type") from None

    def tocode(self) -> str:
        return self.known.char

    def Dup(self) -> "Datatype":
        made = Datatype(self)
        made.is_predefined = made.is_named = False
        return made

    def Commit(self) -> "Datatype":
        return self

    def Free(self) -> None:
        """Turn a copy into MPI.DATATYPE_NULL."""
        if self.is_predefined:
            raise ClusterError(
                "datatypes", f"MPI.{self.name} is predefined by MPI and cannot be freed", number=ERR_TYPE
            )
        self.dtype, self.name, self.is_predefined, self.is_named = None, "DATATYPE_NULL", True, True

    def Get_size(self) -> int:
        return self.known.itemsize

    def Get_extent(self) -> tuple[int, int]:
        return 0, self.known.itemsize

    Get_true_extent = Get_extent
    size: Any = property(Get_size)
    extent: Any = property(Get_size)
    ub: Any = property(Get_size)
    true_ub: Any = property(Get_size)
    true_extent: Any = property(Get_size)
    lb = true_lb = 0

    def Get_name(self) -> str:
        return f"MPI_{self.name}"


_TYPES = {
    "BYTE": "u1", "PACKED": "u1", "CHAR": "i1", "CHARACTER": "i1",
    "SIGNED_CHAR": "b", "SHORT": "h", "INT": "i", "LONG": "l", "LONG_LONG": "q",
    "UNSIGNED_CHAR": "B", "UNSIGNED_SHORT": "H", "UNSIGNED": "I", "UNSIGNED_LONG": "L", "UNSIGNED_LONG_LONG": "Q",
    "FLOAT": "f", "DOUBLE": "d", "LONG_DOUBLE": "g", "C_BOOL": "?", "CXX_BOOL": "?", "BOOL": "?",
    "C_COMPLEX": "F", "C_FLOAT_COMPLEX": "F", "C_DOUBLE_COMPLEX": "D", "C_LONG_DOUBLE_COMPLEX": "G",
    "CXX_FLOAT_COMPLEX": "F", "CXX_DOUBLE_COMPLEX": "D", "CXX_LONG_DOUBLE_COMPLEX": "G",
    "INT8_T": "b", "INT16_T": "h", "INT32_T": "i", "INT64_T": "l",
    "UINT8_T": "B", "UINT16_T": "H", "UINT32_T": "I", "UINT64_T": "L",
    "AINT": "p", "OFFSET": "p", "COUNT": "p", "WCHAR": "i",
    "LOGICAL": "i", "INTEGER": "i", "REAL": "f", "DOUBLE_PRECISION": "d", "COMPLEX": "F", "DOUBLE_COMPLEX": "D",
    "INTEGER1": "b", "INTEGER2": "h", "INTEGER4": "i", "INTEGER8": "l", "REAL4": "f", "REAL8": "d", "REAL16": "g",
    "COMPLEX8": "F", "COMPLEX16": "D", "COMPLEX32": "G",
}  # fmt: skip
_ALSO = {
    "UNSIGNED_INT": "UNSIGNED", "SIGNED_SHORT": "SHORT", "SIGNED_INT": "INT", "SIGNED_LONG": "LONG",
    "SIGNED_LONG_LONG": "LONG_LONG", "SINT8_T": "INT8_T", "SINT16_T": "INT16_T", "SINT32_T": "INT32_T",
    "SINT64_T": "INT64_T", "F_BOOL": "LOGICAL", "F_INT": "INTEGER", "F_FLOAT": "REAL", "F_DOUBLE": "DOUBLE_PRECISION",
    "F_COMPLEX": "COMPLEX", "F_FLOAT_COMPLEX": "COMPLEX", "F_DOUBLE_COMPLEX": "DOUBLE_COMPLEX",
}  # fmt: skip
DATATYPES = {name: Datatype.of(name, dtype) for name, dtype in _TYPES.items()}
DATATYPES |= {name: DATATYPES[other] for name, other in _ALSO.items()}
DATATYPE_NULL = Datatype()
BYTE = DATATYPES["BYTE"]
# By numpy's character, the first in the order above: C's types.
BY_CHARACTER = {t.known.char: t for name, t in reversed(DATATYPES.items()) if name not in ("BYTE", "PACKED", "CHAR")}


def datatype_of(dtype: np.dtype) -> Datatype:
    """Return MPI's type for numpy's `dtype`; MPI.BYTE where there is none."""
    return BY_CHARACTER.get(dtype.char) or next((t for t in BY_CHARACTER.values() if t.dtype == dtype), BYTE)
