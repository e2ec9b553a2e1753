"""What `mpcourse bench allreduce` runs on each rank."""

import functools
import statistics
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI

from mpcourse.collectives import Cost, allreduce, fit
from mpcourse.collectives.fast.segmented import segmented_ring_allreduce
from mpcourse.course.bench.allreduce import AllreduceCase
from mpcourse.course.bench.over_ranks import rank_main, timed_block, wake_core

comm = MPI.COMM_WORLD


@functools.cache
def _cost() -> Cost:
    """Fit it once for all cases. All ranks ask for it together."""
    return fit(comm)


def _measure(fields: list) -> dict:
    case = AllreduceCase(*fields)
    cost = _cost()
    length = case.nbytes // 4
    given = np.random.default_rng((comm.rank, case.nbytes)).standard_normal(length, np.float32)
    wanted = np.empty(length)
    comm.Allreduce(given.astype(np.float64), wanted)
    scale = comm.allreduce(float(np.abs(given).max()), op=MPI.MAX) * comm.size
    x = np.empty_like(given)
    share = 2 * (comm.size - 1) * length // comm.size
    source, target = np.ones(share, np.float32), np.empty(share, np.float32)
    sides: dict[str, Callable[[], object]] = {
        "allreduce": lambda: allreduce(comm, x, cost=cost),
        "ring": lambda: segmented_ring_allreduce(comm, x),
        "MPI": lambda: comm.Allreduce(MPI.IN_PLACE, x),
        "gloo": lambda: dist.all_reduce(torch.from_numpy(x)),
        "copying": lambda: np.copyto(target, source),
    }
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    off = 0.0

    def compare() -> None:
        nonlocal off
        off = max(off, float(np.abs(x - wanted).max()) / scale)

    def nothing() -> None:
        """Compare nothing: copying sums nothing up."""

    for run in range(case.runs + 1):  # the first one is not counted
        for side, call in sides.items():
            check = nothing if side == "copying" else compare
            if side in ("gloo", "copying"):  # before gloo's sums, and after them
                wake_core()
            taken = timed_block(comm, case.rounds, lambda: np.copyto(x, given), call, check, side == "gloo")
            if run:
                seconds[side].append(statistics.median(taken))
    return {"case": case, "seconds": seconds, "difference": comm.allreduce(off, op=MPI.MAX)}


if __name__ == "__main__":
    rank_main(_measure)
