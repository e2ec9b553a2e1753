"""Ranks: another communicator to try an answer on, hash() of a process, and what the text of an answer says."""

import ast
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

PICKLES = "Lower-case methods pickle: more bytes, and two copies. Upper-case ones send the array itself."
PICKLING = {"send", "isend", "ssend", "issend", "bsend", "ibsend", "sendrecv"}


def turned(comm: "TracedComm") -> "TracedComm":
    """Return a communicator of all ranks but the last, in the opposite order; the last one is alone in its own.

    All ranks must call this. Only what goes through the communicator that is given comes out right there.
    """
    return cast("TracedComm", comm.Split(int(comm.rank == comm.size - 1), -comm.rank))


class Hash:
    """hash() as a process of its own has it: that of a text is another number in each process.

    process: its name. salted: whether it was asked of a text, or of something that holds one.
    """

    def __init__(self, process: str) -> None:
        self.process, self.salted = process, False

    def __call__(self, value: Any) -> int:
        if not _holds_text(value):
            return hash(value)
        self.salted = True
        return hash((self.process, value))


def _holds_text(value: Any) -> bool:
    return isinstance(value, str | bytes) or (isinstance(value, tuple | frozenset) and any(map(_holds_text, value)))


def pickles(ran: "Ran") -> bool:
    """Return whether the learner's file has messages pickled."""
    return bool(PICKLING & attributes(ran.source))


def attributes(source: str) -> set[str]:
    """Return the names behind a dot in a program, such as those of the methods that it calls."""
    return {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}


def rebinds(source: str, function: str, parameter: int) -> bool:
    """Return whether `function` gives the name of its parameter a new value (x = ...), instead of writing into it."""
    defined = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    for node in defined:
        if node.name == function and len(node.args.args) > parameter:
            name = node.args.args[parameter].arg
            targets = (t for n in ast.walk(node) if isinstance(n, ast.Assign) for t in n.targets)
            return any(isinstance(n, ast.Name) and n.id == name for t in targets for n in _names_in(t))
    return False


def _names_in(target: ast.expr) -> list[ast.expr]:
    """Return what an assignment binds: the target, or the elements of a tuple."""
    return [*target.elts] if isinstance(target, ast.Tuple | ast.List) else [target]
