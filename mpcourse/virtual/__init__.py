"""Virtual hardware: GPUs in one process that behave, refuse and cost like real ones.

`run` and all that is of virtual ranks imports numpy alone; the first name of virtual GPUs imports torch, too: a second.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mpcourse.virtual.cluster import ClusterError, Deadlock, RankFailed, Topology, VirtualRun, compute, mpi, mpi_of, run
from mpcourse.virtual.specs import GPU, GPUS, LINKS, Link
from mpcourse.virtual.timeline import Event, busy, chrome_trace, span, write_chrome_trace

if TYPE_CHECKING:
    from mpcourse.virtual.box import Box, active_box
    from mpcourse.virtual.gpus import devices, virtual_gpus

MPI = mpi  # as in `from mpi4py import MPI`
_OF_GPUS = {"Box": "box", "active_box": "box", "devices": "gpus", "virtual_gpus": "gpus"}


def __getattr__(name: str) -> Any:
    if name not in _OF_GPUS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module("mpcourse.virtual.vgpu")  # names the backend
    modules = {each: importlib.import_module(f"mpcourse.virtual.{module}") for each, module in _OF_GPUS.items()}
    globals().update({each: getattr(module, each) for each, module in modules.items()})
    return globals()[name]


__all__ = [
    "MPI",
    "run",
    "compute",
    "mpi_of",
    "Topology",
    "VirtualRun",
    "RankFailed",
    "Deadlock",
    "ClusterError",
    "GPU",
    "GPUS",
    "LINKS",
    "Box",
    "Event",
    "Link",
    "active_box",
    "busy",
    "chrome_trace",
    "devices",
    "span",
    "virtual_gpus",
    "write_chrome_trace",
]
