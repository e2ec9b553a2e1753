"""The names of mpi4py's `MPI` module, for virtual ranks: `from mpcourse.virtual import MPI`.

Within `as_mpi4py()`, `from mpi4py import MPI` gives these names, too, so that a program runs unchanged.
"""

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from mpcourse.virtual.ranks import constants as _constants
from mpcourse.virtual.ranks import world as _world
from mpcourse.virtual.ranks.comm import COMM_NULL as COMM_NULL
from mpcourse.virtual.ranks.comm import VirtualComm as Comm
from mpcourse.virtual.ranks.datatypes import BY_CHARACTER as _typedict  # noqa: F401  mpi4py's name
from mpcourse.virtual.ranks.datatypes import DATATYPE_NULL as DATATYPE_NULL
from mpcourse.virtual.ranks.datatypes import DATATYPES as _DATATYPES
from mpcourse.virtual.ranks.datatypes import Datatype as Datatype
from mpcourse.virtual.ranks.errors import ClusterError as _ClusterError
from mpcourse.virtual.ranks.operations import OP_NULL as OP_NULL
from mpcourse.virtual.ranks.operations import OPERATIONS as _OPERATIONS
from mpcourse.virtual.ranks.operations import Op as Op
from mpcourse.virtual.ranks.polling import POLL_SECONDS as _POLL_SECONDS
from mpcourse.virtual.ranks.refused import refuse as _refuse
from mpcourse.virtual.ranks.request import NOTHING as _NOTHING
from mpcourse.virtual.ranks.request import Request as Request
from mpcourse.virtual.ranks.request import Status as Status

_MODULES = ("contextlib", "sys", "types", "Any", "Iterator")


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"MPI.{self.name}"


IN_PLACE, BOTTOM, INFO_NULL = map(_Named, ("IN_PLACE", "BOTTOM", "INFO_NULL"))
REQUEST_NULL = _NOTHING
Exception = _ClusterError
Intracomm = Comm
globals().update(_DATATYPES | _OPERATIONS | {name: n for name, n in vars(_constants).items() if name.isupper()})


def Wtime() -> float:
    """Return seconds on the calling rank's clock. Like a real clock, it moves by a tick between two readings."""
    at = _world.here()
    return at.time(at.current)


def Wtick() -> float:
    """Return the shortest time that the clock shows: the seconds of one Test or Iprobe."""
    return _POLL_SECONDS


def Get_version() -> tuple[int, int]:
    """Return the version of the standard that these calls follow."""
    return _constants.VERSION, _constants.SUBVERSION


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Return the name and version of this MPI."""
    return "mpcourse", (*Get_version(), 0)


def Get_library_version() -> str:
    return "mpcourse's virtual ranks"


def Init() -> None:
    """Do nothing: virtual ranks have already begun."""


def Finalize() -> None:
    """Forbid the calling rank all further messages. It ends when its program returns."""
    at = _world.here()
    at.finalized.add(at.current)
    at.turns.speakers[at.current] = 0


def Get_processor_name() -> str:
    """Return the node of the calling rank."""
    at = _world.here()
    return f"node{at.topology.node(at.current)}"


def Is_initialized() -> bool:
    return True


def Is_finalized() -> bool:
    at = _world.here()
    return at.current in at.finalized


def Query_thread() -> int:
    return _constants.THREAD_FUNNELED


def __getattr__(name: str) -> Any:
    if name == "COMM_WORLD":
        at = _world.here()
        return at.comms[at.current]
    if name == "COMM_SELF":
        at = _world.here()
        return at.selves[at.current]
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _refuse(name, globals(), sys._getframe(1))


@contextlib.contextmanager
def as_mpi4py() -> Iterator[types.ModuleType]:
    """Let `from mpi4py import MPI` give this module within the context. The real one is neither loaded nor changed."""
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


__all__ = [name for name in globals() if not name.startswith("_") and name not in _MODULES]
