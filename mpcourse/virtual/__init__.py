"""Virtual hardware: GPUs in one process that behave, refuse and cost like real ones."""

from mpcourse.virtual import vgpu  # noqa: F401  names the backend
from mpcourse.virtual.box import Box, active_box, devices, virtual_gpus
from mpcourse.virtual.cluster import ClusterError, Deadlock, RankFailed, Run, Topology, compute, mpi, mpi_of, run
from mpcourse.virtual.specs import GPU, GPUS, LINKS, Link
from mpcourse.virtual.timeline import Event, busy, chrome_trace, span, write_chrome_trace

MPI = mpi  # as in `from mpi4py import MPI`

__all__ = [
    "MPI",
    "run",
    "compute",
    "mpi_of",
    "Topology",
    "Run",
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
