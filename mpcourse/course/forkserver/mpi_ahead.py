"""mpi4py, which a fork server imports without starting MPI: a rank that is forked has only that left to do.

To import it takes half as long as to start MPI. A process that imports it starts MPI then, as mpi4py does. Of what it
may have set in mpi4py.rc before, `initialize`, `threads` and `thread_level` hold; for the rest it is too late.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "mpi4py.MPI"


class Aside(MetaPathFinder, Loader):
    """Finds the module again, which nobody has imported so far, and starts MPI when somebody does."""

    def __init__(self, module: ModuleType) -> None:
        self.module: Any = module
        self.spec = module.__spec__

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(NAME, self) if name == NAME else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        MPI, rc = self.module, sys.modules["mpi4py"].rc
        MPI.__spec__ = self.spec
        if rc.initialize and not MPI.Is_initialized():
            MPI.Init_thread(getattr(MPI, f"THREAD_{rc.thread_level.upper()}")) if rc.threads else MPI.Init()


@contextlib.contextmanager
def imported() -> Iterator[None]:
    """Within this context mpi4py.MPI is imported, if it is there, without MPI; after it, it seems not to be.

    Ends this process where MPI was started meanwhile.
    """
    try:
        aside = _aside()
    except (ImportError, RuntimeError):  # there is no mpi4py, or no MPI for it
        yield
        return
    package: Any = sys.modules["mpi4py"]
    sys.modules[NAME] = package.MPI = aside.module
    yield
    if aside.module.Is_initialized():
        sys.exit("mpcourse: a module that a fork server imports has started MPI, which no fork survives")
    del sys.modules[NAME], package.MPI


def _aside() -> Aside:
    for finder in sys.meta_path:
        if isinstance(finder, Aside):
            return finder
    rc = importlib.import_module("mpi4py").rc
    rc.initialize, rc.finalize = False, True  # not now, but at the end of a process that has started it
    try:
        aside = Aside(importlib.import_module(NAME))
    finally:
        rc.initialize, rc.finalize = True, None
    sys.meta_path.insert(0, aside)
    return aside
