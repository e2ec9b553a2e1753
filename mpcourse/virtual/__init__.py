"""Virtual hardware: GPUs and ranks in one process that behave, refuse and cost like real ones.

Virtual GPUs hold real tensors. They refuse what real GPUs refuse, count every byte, and predict each kernel's time:

    import torch
    from mpcourse.virtual import virtual_gpus

    with virtual_gpus(2, "Tesla P100-SXM2", "NVLink 1") as box:
        x = torch.randn(1000, 1000, device="vgpu:0")
        y = (x @ x).to("vgpu:1")
        print(torch.vgpu.max_memory_allocated(0))  # bytes at the peak
        print(box.synchronize(), box.copies)  # predicted seconds; each copy with its bytes, begin and end

Virtual ranks run one function each and exchange messages by mpi4py's methods. The same function runs under mpirun:

    import numpy as np
    from mpcourse.virtual import MPI, run

    def program(comm):
        total = np.empty(4)
        comm.Allreduce(np.full(4, float(comm.rank)), total, op=MPI.SUM)
        return total

    done = run(program, 3, "10 GbE")
    print(done.results, done.seconds)  # by rank; predicted time

A deadlock raises Deadlock, which says where each rank waits.

virtual_gpus, devices, active_box: a Box of GPUs, its devices, and the box that is entered.
GPUS, LINKS: the hardware that is known by name, as records GPU and Link; you may pass a record of your own.
run: runs a program on ranks; the VirtualRun that it returns has the results, times, messages and events.
MPI: the constants of virtual communicators, such as MPI.SUM.
mpi_of: the constants of a communicator, real or virtual.
Topology: ranks on nodes, and the links between them.
compute: a rank computes for a number of seconds.
Deadlock, ClusterError, RankFailed: the errors of ranks.
Event: a kernel, copy or message, in `box.events` and `done.events`.
busy, span: how long some events took.
chrome_trace, write_chrome_trace: events for chrome://tracing or Perfetto.

help(mpcourse.virtual.run), help(mpcourse.virtual.virtual_gpus) and so on say more. Virtual ranks need only numpy; the
first use of virtual GPUs imports torch. docs/virtual_gpus.md says how exact the predictions are.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mpcourse.virtual.ranks import compute, mpi_of, run
from mpcourse.virtual.ranks import mpi as MPI
from mpcourse.virtual.specs import GPUS, LINKS
from mpcourse.virtual.timeline import busy, chrome_trace, span, write_chrome_trace

if TYPE_CHECKING:
    from mpcourse.virtual.gpus.box import Box, active_box
    from mpcourse.virtual.gpus.devices import devices, virtual_gpus
    from mpcourse.virtual.ranks import ClusterError, Deadlock, RankFailed, Topology, VirtualRun
    from mpcourse.virtual.specs import GPU, Link
    from mpcourse.virtual.timeline import Event

_OF_GPUS = {"Box": "gpus.box", "active_box": "gpus.box", "devices": "gpus.devices", "virtual_gpus": "gpus.devices"}
_CLASSES = {"GPU": "specs", "Link": "specs", "Event": "timeline"}
_CLASSES |= dict.fromkeys(("ClusterError", "Deadlock", "RankFailed", "Topology", "VirtualRun"), "ranks")


def __getattr__(name: str) -> Any:
    """Import a name from its own module when it is first used.

    So virtual ranks need no torch, and `help(mpcourse.virtual)` does not show the help of ten classes.
    """
    if name in _OF_GPUS:
        importlib.import_module("mpcourse.virtual.gpus.vgpu")  # gives the backend its name
    elif name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"mpcourse.virtual.{(_OF_GPUS | _CLASSES)[name]}"), name)


__all__ = [
    "GPU",
    "GPUS",
    "LINKS",
    "MPI",
    "Box",
    "ClusterError",
    "Deadlock",
    "Event",
    "Link",
    "RankFailed",
    "Topology",
    "VirtualRun",
    "active_box",
    "busy",
    "chrome_trace",
    "compute",
    "devices",
    "mpi_of",
    "run",
    "span",
    "virtual_gpus",
    "write_chrome_trace",
]
