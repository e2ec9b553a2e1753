"""Virtual ranks: a cluster in one process, which runs MPI programs, and explains what goes wrong between ranks."""

from mpcourse.common.deadlock import Wait
from mpcourse.common.errors import RankFailed
from mpcourse.virtual.cluster import mpi
from mpcourse.virtual.cluster.errors import ClusterError, Deadlock
from mpcourse.virtual.cluster.launch import VirtualRun, compute, mpi_of, run
from mpcourse.virtual.cluster.topology import Topology

__all__ = [
    "ClusterError",
    "Deadlock",
    "RankFailed",
    "VirtualRun",
    "Topology",
    "Wait",
    "compute",
    "mpi",
    "mpi_of",
    "run",
]
