"""What `mpcourse bench zero` runs on each rank for speed: the same steps by all sides, and whether they end alike.

Prints, on rank 0, one line of JSON.
"""

import torch
from mpi4py import MPI

from mpcourse.course.bench.over_ranks import rank_main, timed
from mpcourse.course.bench.zero import OURS, SIDES, ZeroCase
from mpcourse.course.bench.zero_sides import batch_of, comm, made, train

COMPARED = 3  # steps


def _measure(fields: list) -> dict:
    case = ZeroCase(*fields)
    difference = _difference(list(case.widths))
    widths = list(case.widths)
    x, y = batch_of(widths, case.batch, torch.float32)
    sides = {name: made(name, widths, torch.float32) for name in SIDES}
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    for run in range(case.runs + 1):  # the first one is not counted
        for name, side in sides.items():
            waiting = "MPI" if name in OURS else "gloo"
            taken = timed(comm, waiting, lambda side=side: train(side, x, y, case.steps))  # type: ignore[misc]
            taken = comm.allreduce(taken, op=MPI.MAX)
            if run:
                seconds[name].append(taken)
    return {"case": case, "seconds": seconds, "difference": comm.allreduce(difference, op=MPI.MAX)}


def _difference(widths: list[int]) -> float:
    """How far any side's parameters are at most from those of data parallelism, over the largest; in float64."""
    x, y = batch_of(widths, 8, torch.float64)
    wanted: list[torch.Tensor] = []
    apart = 0.0
    for name in SIDES:
        side = made(name, widths, torch.float64)
        train(side, x, y, COMPARED)
        parameters = side.whole()
        wanted = wanted or parameters
        apart = max(apart, *(float((a - b).abs().max()) for a, b in zip(parameters, wanted, strict=True)))
    return apart / max(float(p.abs().max()) for p in wanted)


if __name__ == "__main__":
    rank_main(_measure)
