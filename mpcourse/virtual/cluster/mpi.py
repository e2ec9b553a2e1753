"""The names of mpi4py's `MPI` module, for virtual ranks: `from mpcourse.virtual import MPI`.

Within `as_mpi4py()` a program that says `from mpi4py import MPI` gets them, too, so that it runs as it is.
"""

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpcourse.virtual.cluster import world as _world
from mpcourse.virtual.cluster.asking import ASKING
from mpcourse.virtual.cluster.errors import ClusterError as Exception  # noqa: A004  mpi4py's name
from mpcourse.virtual.cluster.errors import nearest
from mpcourse.virtual.cluster.group import CONGRUENT, IDENT, SIMILAR, UNEQUAL, Group
from mpcourse.virtual.cluster.request import NOTHING, Prequest, Request, Status

# The numbers that MPICH has for these, so that those of a real MPI module are understood, too.
ANY_SOURCE, ANY_TAG, PROC_NULL, ROOT, UNDEFINED = -2, -1, -1, -3, -32766
COMM_TYPE_SHARED = 1
THREAD_SINGLE, THREAD_FUNNELED, THREAD_SERIALIZED, THREAD_MULTIPLE = range(4)
SUCCESS = 0


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"MPI.{self.name}"


class _Null(_Named):
    """No communicator: what Split gives to a rank that is in none."""

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other).__name__ == "Freed" and not other)

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Exception("misuse", f"{name} of MPI.{self.name}: this rank is in no communicator that was made here")


IN_PLACE, BOTTOM = map(_Named, ("IN_PLACE", "BOTTOM"))
COMM_NULL = _Null("COMM_NULL")
REQUEST_NULL, GROUP_EMPTY = NOTHING, Group()


class Op(_Named):
    """A reduction. Called with two objects it combines them; `arrays` combines two numpy arrays of one dtype.

    kinds: of numpy's dtypes, those on which MPI defines it (MPI 4.1, section 6.9.2).
    """

    def __init__(
        self,
        name: str,
        objects: Callable[[Any, Any], Any],
        arrays: Callable[..., Any] | None,
        commute: bool = True,
        kinds: str = "biufc",
    ) -> None:
        super().__init__(name)
        self.objects, self.arrays, self.commute, self.kinds = objects, arrays, commute, kinds

    def __call__(self, x: Any, y: Any) -> Any:
        return self.objects(x, y)

    @classmethod
    def Create(cls, function: Callable[[Any, Any, Any], None], commute: bool = False) -> "Op":
        """function(a, b, datatype): both memory; writes `a op b` into b."""

        def arrays(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            into = np.ascontiguousarray(y).copy()
            function(np.ascontiguousarray(x).data.cast("B"), into.data.cast("B"), datatype_of(x.dtype))
            return into

        def objects(x: Any, y: Any) -> Any:
            raise TypeError("an op of Op.Create works on buffers: use Reduce, not reduce")

        return cls("OP_USER", objects, arrays, commute)

    def Free(self) -> None:
        """Nothing is kept."""


def _located(better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def choose(x: Any, y: Any) -> Any:
        if x[0] == y[0]:
            return x if x[1] <= y[1] else y
        return x if better(x[0], y[0]) else y

    return choose


def _logical(combine: Callable[..., Any]) -> Callable[..., Any]:
    """On numbers, 0 is false and the result is 0 or 1, of the same dtype."""
    return lambda x, y: combine(x, y).astype(x.dtype)


SUM = Op("SUM", lambda x, y: x + y, np.add, kinds="iufc")
PROD = Op("PROD", lambda x, y: x * y, np.multiply, kinds="iufc")
MAX = Op("MAX", lambda x, y: y if y > x else x, np.maximum, kinds="iuf")
MIN = Op("MIN", lambda x, y: y if y < x else x, np.minimum, kinds="iuf")
LAND = Op("LAND", lambda x, y: bool(x) & bool(y), _logical(np.logical_and), kinds="biu")
LOR = Op("LOR", lambda x, y: bool(x) | bool(y), _logical(np.logical_or), kinds="biu")
LXOR = Op("LXOR", lambda x, y: bool(x) ^ bool(y), _logical(np.logical_xor), kinds="biu")
BAND = Op("BAND", lambda x, y: x & y, np.bitwise_and, kinds="iu")
BOR = Op("BOR", lambda x, y: x | y, np.bitwise_or, kinds="iu")
BXOR = Op("BXOR", lambda x, y: x ^ y, np.bitwise_xor, kinds="iu")
MAXLOC = Op("MAXLOC", _located(lambda x, y: x > y), None)
MINLOC = Op("MINLOC", _located(lambda x, y: x < y), None)


class Datatype(_Named):
    """A number's type; typestr: numpy's name for it."""

    def __init__(self, name: str, dtype: str) -> None:
        super().__init__(name)
        self.dtype = np.dtype(dtype)
        self.typestr, self.typechar, self.size, self.extent = dtype, self.dtype.char, *[self.dtype.itemsize] * 2

    @classmethod
    def fromcode(cls, code: str) -> "Datatype":
        """The type that numpy calls by this character or string."""
        try:
            return datatype_of(np.dtype(code))
        except TypeError:
            raise ValueError(f"cannot map type code {code!r} to an MPI type") from None

    def Dup(self) -> "Datatype":
        return Datatype(self.name, self.typestr)

    def Commit(self) -> "Datatype":
        return self

    def Free(self) -> None:
        """Nothing is kept."""

    def Get_size(self) -> int:
        return self.size

    def Get_extent(self) -> tuple[int, int]:
        return 0, self.extent

    def Get_name(self) -> str:
        return f"MPI_{self.name}"


_TYPES = {
    "BYTE": "u1", "CHAR": "i1", "SIGNED_CHAR": "i1", "UNSIGNED_CHAR": "u1", "SHORT": "i2", "UNSIGNED_SHORT": "u2",
    "INT": "i4", "UNSIGNED": "u4", "LONG": "i8", "UNSIGNED_LONG": "u8", "LONG_LONG": "i8", "UNSIGNED_LONG_LONG": "u8",
    "FLOAT": "f4", "DOUBLE": "f8", "COMPLEX": "c8", "DOUBLE_COMPLEX": "c16", "C_FLOAT_COMPLEX": "c8",
    "C_DOUBLE_COMPLEX": "c16", "C_BOOL": "?", "BOOL": "?", "CXX_BOOL": "?", "INT8_T": "i1", "INT16_T": "i2",
    "INT32_T": "i4", "INT64_T": "i8", "UINT8_T": "u1", "UINT16_T": "u2", "UINT32_T": "u4", "UINT64_T": "u8",
    "REAL": "f4", "DOUBLE_PRECISION": "f8", "INTEGER": "i4", "AINT": "i8", "COUNT": "i8", "OFFSET": "i8",
}  # fmt: skip
_DATATYPES = {name: Datatype(name, dtype) for name, dtype in _TYPES.items()}
globals().update(_DATATYPES)
BYTE = _DATATYPES["BYTE"]
_typedict = {t.dtype.char: t for t in reversed(_DATATYPES.values())}  # mpi4py's, by numpy's character


def datatype_of(dtype: np.dtype) -> Datatype:
    """The first of MPI's types that is numpy's `dtype`."""
    return next((t for name, t in _DATATYPES.items() if name != "BYTE" and t.dtype == dtype), BYTE)


def Wtime() -> float:
    """Seconds on the clock of the rank that asks. Who asks twice, and did nothing in between, waits for time to pass:
    that takes a moment, as a real clock's tick.
    """
    at = _world.here()
    return at.time(at.current)


def Wtick() -> float:
    """Seconds of that moment."""
    return ASKING


def Get_version() -> tuple[int, int]:
    """Of the standard, whose calls these are."""
    return 4, 1


def Get_library_version() -> str:
    return "mpcourse's virtual ranks"


def Init() -> None:
    """Virtual ranks have begun already."""


def Finalize() -> None:
    """They end when their program returns."""


def Get_processor_name() -> str:
    """The node of the rank that asks."""
    at = _world.here()
    return f"node{at.topology.node(at.current)}"


def Is_initialized() -> bool:
    return True


def Is_finalized() -> bool:
    return False


def Query_thread() -> int:
    return THREAD_SINGLE


def __getattr__(name: str) -> Any:
    if name == "COMM_WORLD":
        at = _world.here()
        return at.comms[at.current]
    if name == "COMM_SELF":
        at = _world.here()
        return at.selves[at.current]
    if name in ("CART", "Cartcomm", "Compute_dims"):
        from mpcourse.virtual.cluster import cart

        return {"CART": cart.CART, "Cartcomm": cart.VirtualCart, "Compute_dims": cart.Compute_dims}[name]
    if name in ("Comm", "Intracomm"):
        from mpcourse.virtual.cluster.comm import VirtualComm

        return VirtualComm
    raise AttributeError(f"virtual ranks have no MPI.{name}{nearest(name, globals())}")


@contextlib.contextmanager
def as_mpi4py() -> Iterator[types.ModuleType]:
    """Within it, `from mpi4py import MPI` gives this module. The real one is neither loaded nor changed."""
    import mpi4py

    me, before, attribute = sys.modules[__name__], sys.modules.get("mpi4py.MPI"), vars(mpi4py).get("MPI")
    sys.modules["mpi4py.MPI"] = mpi4py.MPI = me
    try:
        yield me
    finally:
        del sys.modules["mpi4py.MPI"], mpi4py.MPI
        if before is not None:
            sys.modules["mpi4py.MPI"] = before
        if attribute is not None:
            mpi4py.MPI = attribute


__all__ = [name for name in globals() if not name.startswith("_")]
__all__ += ["Request", "Prequest", "Status", "Exception", "Group", "IDENT", "CONGRUENT", "SIMILAR", "UNEQUAL"]
