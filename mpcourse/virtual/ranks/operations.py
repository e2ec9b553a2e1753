"""Reductions: operations that combine two objects, or two numpy arrays of one dtype."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpcourse.virtual.ranks.buffers import flat
from mpcourse.virtual.ranks.constants import ERR_OP
from mpcourse.virtual.ranks.datatypes import datatype_of
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.refused import Offered, reduced


class Memory(np.ndarray):
    """The bytes that a program's operation gets, like mpi4py's MPI.buffer: any memory can be written into them."""

    def __setitem__(self, key: Any, value: Any) -> None:
        is_memory = isinstance(key, slice) and not isinstance(value, int | np.integer)
        super().__setitem__(key, np.frombuffer(value, np.uint8) if is_memory else value)


def _memory(array: np.ndarray) -> Memory:
    return array.view(np.uint8).view(Memory)


class Op(Offered):
    """A reduction. Called with two objects it combines them; `arrays` combines two numpy arrays of one dtype.

    kinds: the kinds of numpy's dtypes for which MPI defines it (MPI 4.1, section 6.9.2).
    """

    theirs = "Op"
    name: str
    objects: Callable[[Any, Any], Any]
    arrays: Callable[..., Any] | None
    commute: bool
    kinds: str
    is_predefined: bool
    function: Callable[[Any, Any, Any], Any]

    def __new__(cls, op: "Op | None" = None) -> "Op":
        """Return another name for `op`, or for MPI.OP_NULL."""
        made = super().__new__(cls)
        made._set("OP_NULL", _none, None)
        if op is not None:
            vars(made).update(vars(op))
        return made

    @classmethod
    def of(cls, name: str, *how: Any, **more: Any) -> "Op":
        """Make MPI's operation of that name."""
        made = cls()
        made._set(name, *how, **more)
        return made

    def _set(
        self,
        name: str,
        objects: Callable[[Any, Any], Any],
        arrays: Callable[..., Any] | None,
        commute: bool = True,
        kinds: str = "biufc",
        is_predefined: bool = True,
    ) -> None:
        self.name, self.objects, self.arrays = name, objects, arrays
        self.commute, self.kinds, self.is_predefined = commute, kinds, is_predefined

    def __bool__(self) -> bool:
        return self.name != "OP_NULL"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and (self.name, self.objects) == (other.name, other.objects)

    def __hash__(self) -> int:
        return hash((self.name, self.objects))

    def __repr__(self) -> str:
        return f"MPI.{self.name}"

    def __reduce__(self) -> Any:
        if self.is_predefined:
            return reduced(self, OPERATIONS | {"OP_NULL": OP_NULL})
        return Op.Create, (self.function, self.commute)

    def __call__(self, x: Any, y: Any) -> Any:
        return self.objects(x, y)

    @classmethod
    def Create(cls, function: Callable[[Any, Any, Any], None], commute: bool = False) -> "Op":
        """Make an operation of function(a, b, datatype): it writes `a op b` into b, or returns it for two objects."""

        def arrays(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            into = np.ascontiguousarray(y).copy()
            function(_memory(np.ascontiguousarray(x)), _memory(into), datatype_of(x.dtype))
            return into

        made = cls.of("OP_USER", lambda x, y: function(x, y, None), arrays, commute, is_predefined=False)
        made.function = function
        return made

    def Free(self) -> None:
        """Turn an operation that Create made into MPI.OP_NULL."""
        if self.is_predefined:
            raise ClusterError("misuse", f"MPI.{self.name} is predefined by MPI and cannot be freed", number=ERR_OP)
        self._set("OP_NULL", _none, None)

    def Is_commutative(self) -> bool:
        if not self:
            _none(None, None)
        return self.commute

    is_commutative: Any = property(Is_commutative)

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combine both buffers into the second."""
        x, y = flat(inbuf), flat(inoutbuf, True)
        if x.dtype != y.dtype or len(x) != len(y):
            raise ClusterError("counts", f"Reduce_local of {len(x)} {x.dtype} and {len(y)} {y.dtype}: they must agree")
        y[:] = self.on(x.dtype)(x, y)

    def on(self, dtype: np.dtype) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return `arrays`. Raises ClusterError where MPI has no such operation on `dtype`."""
        if self.arrays is None:
            _none(None, None) if not self else None
            raise ClusterError(
                "misuse", f"{self} of buffers is not offered on virtual ranks: use the lower-case call", number=ERR_OP
            )
        if dtype.kind not in self.kinds:
            text = f"MPI has no {self.name} of {dtype}{_instead(self.name, dtype)}"
            raise ClusterError("misuse", text, number=ERR_OP)
        return self.arrays


def _none(x: Any, y: Any) -> Any:
    raise ClusterError("misuse", "MPI.OP_NULL is no operation: name one, e.g. MPI.SUM", number=ERR_OP)


def _instead(op: str, dtype: np.dtype) -> str:
    """Say what is probably meant where MPI does not define an operation on a dtype."""
    if dtype.kind == "b":
        return ": truth values go by LAND, LOR and LXOR, or count them as integers, x.astype(int)"
    if op in ("LAND", "LOR", "LXOR"):
        return ": it takes truth values and integers, e.g. x != 0"
    if op in ("BAND", "BOR", "BXOR"):
        return ": it takes integers"
    return ": complex numbers have no order"


def combined(op: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """Reduce one object of each rank in mpi4py's order: neighbours in pairs, then pairs of pairs."""
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [op(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


def scanned(op: Callable[[Any, Any], Any], values: Sequence[Any], own: bool) -> Any:
    """Reduce the objects of all ranks up to the last one, in mpi4py's order.

    own: whether the last one's object counts, too; if not, None means that there are no objects at all.
    """
    rank, block = len(values) - 1, 1
    found = [values[rank]] if own else []
    while block <= rank:
        if rank & block:
            first = (rank ^ block) // block * block
            part = combined(op, values[first : first + block])
            found = [op(part, each) for each in found] or [part]
        block *= 2
    return found[0] if found else None


def _located(better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def choose(x: Any, y: Any) -> Any:
        (u, i), (v, j) = x, y
        if u == v:
            return (v, j) if j < i else (u, i)
        return (v, j) if better(v, u) else (u, i)

    return choose


def _logical(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation on numbers: 0 is false, and the result is 0 or 1, of the same dtype."""
    return lambda x, y: combine(x, y).astype(x.dtype)


OPERATIONS = {
    op.name: op
    for op in (
        Op.of("SUM", lambda x, y: x + y, np.add, kinds="iufc"),
        Op.of("PROD", lambda x, y: x * y, np.multiply, kinds="iufc"),
        # With a NaN among the numbers of a buffer, MPICH's result depends on the algorithm that it takes, and ranks may
        # even disagree; usually the NaN is lost, as it always is here. Results for objects are mpi4py's.
        Op.of("MAX", lambda x, y: y if y > x else x, np.fmax, kinds="iuf"),
        Op.of("MIN", lambda x, y: y if y < x else x, np.fmin, kinds="iuf"),
        Op.of("LAND", lambda x, y: bool(x) & bool(y), _logical(np.logical_and), kinds="biu"),
        Op.of("LOR", lambda x, y: bool(x) | bool(y), _logical(np.logical_or), kinds="biu"),
        Op.of("LXOR", lambda x, y: bool(x) ^ bool(y), _logical(np.logical_xor), kinds="biu"),
        Op.of("BAND", lambda x, y: x & y, np.bitwise_and, kinds="iu"),
        Op.of("BOR", lambda x, y: x | y, np.bitwise_or, kinds="iu"),
        Op.of("BXOR", lambda x, y: x ^ y, np.bitwise_xor, kinds="iu"),
        Op.of("MAXLOC", _located(lambda x, y: x > y), None),
        Op.of("MINLOC", _located(lambda x, y: x < y), None),
        Op.of("REPLACE", lambda x, y: y, None, commute=False),
        Op.of("NO_OP", lambda x, y: x, None, commute=False),
    )
}
OP_NULL = Op()
