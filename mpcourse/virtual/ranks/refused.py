"""What mpi4py has and virtual ranks do not: each name is refused in one line, which says what to use instead."""

import ast
import difflib
import dis
import functools
import importlib.util
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

# What a name belongs to, the first that fits, and what to do instead.
KINDS = (
    (r"^(Alltoallw|Ialltoallw)$", "pieces of different datatypes", "send bytes by Alltoallv, x.view(np.uint8)"),
    (r"(?i)^i?neighbor_", "neighbourhood collectives", "Sendrecv with each neighbour"),
    (r"^(Psend_init|Precv_init|Pready\w*|Parrived)$", "partitioned messages", "Isend for each part"),
    (r"^(\w+_init|Prequest|Start(all)?)$", "persistent requests", "the nonblocking call each time, e.g. Isend"),
    (r"(?i)^(i?m?probe|i?mrecv|message\w*|from_msg)$", "matched probes", "Probe, then Recv from its status's source"),
    (r"(?i)^i?sendrecv\w*$", "sendrecv that does not wait", "an Isend and an Irecv"),
    (r"(?i)spawn|^(Accept|Connect|Join)$|port$|_name$|Get_parent|UNIVERSE|APPNUM", "dynamic processes",
     "start all ranks at once, run(program, size)"),
    (r"(?i)inter|remote|^Merge$|^ROOT$", "intercommunicators", "Split one communicator, in which all ranks talk"),
    (r"^(Win|WIN_\w+|LOCK_\w+|\w*[Aa]ccumulate|R?(Put|Get)|Fence|Lock\w*|Unlock\w*|Alloc_mem|Free_mem)$",
     "windows (one-sided messages)", "Isend, and an Irecv on the other side"),
    (r"^(File|FILE_\w+|MODE_\w+|SEEK_\w+|DISP\w+_CUR\w*|Register_datarep)$", "files",
     "gather to one rank, which writes with Python's open"),
    (r"(?i)^(un)?pack|^create_(vector|hvector|indexed|hindexed|struct|contiguous|subarray|darray|resized)\w*|^(DIST\w*_|"
     r"ORDER_|COMBINER_|TYPECLASS_)\w+|_INT$|^TWOINT$|^Get_(envelope|contents|address)$|^Aint_|^decode$|"
     r"^create_(indexed|hindexed)_block$|^Create_f90|^Match_size$|^envelope$|^contents$|^value_index$",
     "derived datatypes", "send a contiguous copy, np.ascontiguousarray(x)"),
    (r"(?i)graph|^(GRAPH|DIST_GRAPH|WEIGHTS_EMPTY|UNWEIGHTED)$", "graphs of ranks", "keep lists of neighbours"),
    (r"(?i)cart|topo|^(Compute_dims|(Get_)?(coords|dims?)|Shift|Sub|ndim|periods)$", "grids of ranks",
     "compute coordinates, divmod(comm.rank, columns), and Split by one of them"),
    (r"(?i)group|^(Create|Compare|IDENT|CONGRUENT|SIMILAR|UNEQUAL)$", "groups of ranks",
     "Split: ranks that give one color make a communicator, in the order of their keys"),
    (r"^(F_|CXX_|S?U?INT\d_T$|SIGNED_|INTEGER|REAL|COMPLEX|LOGICAL|DOUBLE_(PRECISION|COMPLEX)|CHARACTER|AINT|OFFSET|COUNT)",
     "types of Fortran or C++", "take C's, e.g. MPI.DOUBLE, or leave the type out"),
    (r"(?i)keyval|_attr$", "attributes of communicators", "keep them in variables of your own"),
    (r"(?i)errhandler|^ERRORS_", "error handlers", "every mistake raises, as with mpi4py's ERRORS_RETURN"),
    (r"(?i)info", "Info objects", "leave the argument out"),
    (r"(?i)session|pset", "sessions", "take MPI.COMM_WORLD, or the communicator that the program is given"),
    (r"(?i)revoke|failed|shrink|^i?agree$|ishrink|ack_", "recovery from ranks that fail", "catch the error of run"),
    (r"(?i)buffer", "buffers for Bsend to attach", "Bsend here needs none"),
    (r"(?i)pickle", "Pickle", "objects are pickled by the lower-case methods"),
    (r"(?i)f2py|py2f|handle$|fromint|toint", "handles for C or Fortran", "keep to Python's objects"),
    (r"^(Grequest|Complete)$", "generalized requests", "a flag of your own"),
)  # fmt: skip


NEITHER = "neither on virtual ranks nor in mpi4py"


class NotOffered(NotImplementedError):
    """A name of mpi4py that virtual ranks do not have, or one that mpi4py does not have either."""

    @property
    def in_mpi4py(self) -> bool:
        """Whether real ranks have it."""
        return NEITHER not in str(self)


class NoAttribute(NotOffered, AttributeError):
    """An attribute of mpi4py that virtual ranks do not have: hasattr says False."""


class NoImport(NotOffered, ImportError):
    """A name of mpi4py that virtual ranks do not have, and that a program imports."""


@functools.cache
def stub() -> dict[str, frozenset[str]]:
    """Return the names in mpi4py's module MPI ("") and in each of its classes, read from the stub beside it.

    Importing the module itself would make this process a rank.
    """
    spec = importlib.util.find_spec("mpi4py")
    file = Path(spec.origin).with_name("MPI.pyi") if spec and spec.origin else None
    if file is None or not file.exists():
        return {"": frozenset()}
    body, names = ast.parse(file.read_text()).body, dict[str, frozenset[str]]()
    for node in body:
        if isinstance(node, ast.ClassDef):
            bases = [names.get(base.id, frozenset()) for base in node.bases if isinstance(base, ast.Name)]
            names[node.name] = frozenset(_defined(node.body)).union(*bases)
    return names | {"": frozenset(_defined(body))}


@functools.cache
def _known(theirs: str) -> frozenset[str]:
    """Return the names of one of mpi4py's classes; for communicators the names of all kinds."""
    if theirs.endswith("comm"):
        return frozenset().union(*(names for name, names in stub().items() if name.lower().endswith("comm")))
    return stub().get(theirs, frozenset())


def _defined(body: list[ast.stmt]) -> Iterable[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))


def refusal(owner: str, name: str, theirs: str, offered: Iterable[str]) -> str:
    """Say why `owner`, e.g. "MPI", lacks `name`. theirs: mpi4py's class, "" for its module. offered: names here."""
    known, names = _known(theirs), [n for n in offered if not n.startswith("_")]
    likely = [n for n in names if n.lower() == name.lower()]  # mpi4py's other kind: reduce_scatter, Reduce_scatter
    likely = likely or difflib.get_close_matches(name, names, 1, 0.75 if name in known else 0.65)
    meant = f": did you mean {likely[0]}?" if likely else ""
    if name not in known:
        return f"{owner} has no {name}, {NEITHER}{meant}"
    for pattern, kind, instead in KINDS:
        if re.search(pattern, name):
            return f"virtual ranks have no {owner}.{name}, for they have no {kind}: {instead}"
    return (
        f"virtual ranks have no {owner}.{name}{meant or ': they have what the course and most programs use of mpi4py'}"
    )


@functools.lru_cache(1024)
def _refusal_of(cls: "Offering", name: str) -> str:
    """Cache refusals, because code asks repeatedly, as `getattr(comm, "count_sum", None)` does before each sum."""
    return refusal(cls.theirs, name, cls.theirs, dir(cls))


def refuse(name: str, offered: Iterable[str], frame: FrameType) -> NoReturn:
    """Refuse a name of the module MPI. frame: the caller's, because Python replaces the text of a failed import."""
    message = refusal("MPI", name, "", offered)
    if dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM":
        raise NoImport(message)
    raise NoAttribute(message)


def reduced(what: Any, named: dict[str, Any]) -> Any:
    """Return what __reduce__ gives for an MPI constant, or another name of it. Raises ValueError for other objects."""
    for name, each in named.items():
        if each is what:
            return pkgutil.resolve_name, (f"mpcourse.virtual.ranks.mpi:{name}",)
    for each in named.values():
        if each == what:
            return type(what), (each,)
    raise ValueError(f"{what!r} belongs to its own process and cannot be sent: each rank makes it by the same calls")


class Offering(type):
    """The class of an mpi4py class: what it lacks is refused by name, on the class and on its objects alike."""

    theirs: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise NoAttribute(_refusal_of(cls, name))


class Offered(metaclass=Offering):
    """A class of mpi4py's, on virtual ranks. theirs: its name in mpi4py."""

    theirs = ""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NoAttribute(_refusal_of(type(self), name))
