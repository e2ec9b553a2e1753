"""Virtual ranks: a cluster in one process, which runs MPI programs, and explains what goes wrong between ranks."""

from mpcourse.common.deadlock import Wait
from mpcourse.common.errors import RankFailed
from mpcourse.virtual.ranks import mpi
from mpcourse.virtual.ranks.errors import ClusterError, Deadlock
from mpcourse.virtual.ranks.launch import VirtualRun, compute, mpi_of, run
from mpcourse.virtual.ranks.topology import Topology

__all__ = [
    "ClusterError",
    "Deadlock",
    "RankFailed",
    "Topology",
    "VirtualRun",
    "Wait",
    "compute",
    "mpi",
    "mpi_of",
    "run",
]
