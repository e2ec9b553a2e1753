"""What a fork server does once, after its imports, so that none of its processes has to."""

import atexit
import gc
import importlib
import logging
import sys
import weakref
from collections.abc import Sequence


def import_all(modules: Sequence[str]) -> None:
    """Import modules. Ends this process where one of them starts MPI."""
    gc.disable()  # what is imported stays: to look through it for garbage again and again takes a fifth of the time
    for name in modules:
        importlib.import_module(name)
    if "mpi4py.MPI" in sys.modules:
        sys.exit("mpcourse: a module that a fork server imports has started MPI, which no fork survives")
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # which numpy imports when it is first used: 0.02 s in each process


def share() -> None:
    """Make processes that are forked from now on begin, work and end quickly. Call it after `import_all`."""
    forget_exits()
    # What all processes share stays shared: no collection writes to it. The little that is garbage by now stays, too.
    gc.freeze()
    gc.enable()


def forget_exits() -> None:
    """Let no process do at its end what only concerns the imports of this one: torch's own takes 0.05 s.

    What Python's library registers at its import, and needs for objects made later, stays.
    """
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    atexit.register(logging.shutdown)
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    if util := sys.modules.get("multiprocessing.util"):
        atexit.register(util._exit_function)
