"""What a fork server does once, after its imports, so that none of its processes has to."""

import atexit
import contextlib
import ctypes
import gc
import importlib
import logging
import os
import sys
import weakref
from collections.abc import Sequence

from mpcourse.forkserver.descent import end_with


def import_all(modules: Sequence[str]) -> None:
    """Import modules; of "module:function" call the function, after all imports."""
    gc.disable()  # what is imported stays: to look through it for garbage again and again takes a fifth of the time
    imported = [(importlib.import_module(name.partition(":")[0]), name.partition(":")[2]) for name in modules]
    for module, function in imported:
        if function:
            getattr(module, function)()
    if "mpi4py.MPI" in sys.modules:
        sys.exit("mpcourse: a module that a fork server imports has started MPI, which no fork survives")
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # which numpy imports when it is first used: 0.02 s in each process


def share() -> None:
    """After `import_all`: see to it that processes which are forked from now on begin, work and end quickly."""
    forget_exits()
    # What all processes share stays shared: no collection writes to it. The little that is garbage by now stays, too.
    gc.freeze()
    gc.enable()


class MpiLibrary:
    """MPI's own library: to load it takes two thirds of the time in which a rank starts. MPI itself does not start.

    Which library that is, a process tells that starts MPI and ends. It begins with this object.
    """

    def __init__(self) -> None:
        reading, writing = os.pipe()
        me = os.getpid()
        self._process = os.fork()
        if not self._process:
            with contextlib.suppress(BaseException):
                end_with(me)
                importlib.import_module("mpi4py.MPI")
                with open("/proc/self/maps") as maps:
                    loaded = {line.split()[-1] for line in maps if "/libmpi.so" in line}
                os.write(writing, "\n".join(loaded).encode())
            os._exit(0)
        os.close(writing)
        self._answer = reading

    def load(self) -> None:
        """Load it, if there is one."""
        with open(self._answer) as pipe:
            for library in pipe.read().splitlines():
                ctypes.CDLL(library)
        os.waitpid(self._process, 0)


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
