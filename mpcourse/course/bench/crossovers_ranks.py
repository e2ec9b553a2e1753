"""What `mpcourse bench crossovers` runs on each rank."""

import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI

from mpcourse.collectives import ALGORITHMS, Cost, allreduce, fit
from mpcourse.course.bench.over_ranks import FEW, in_a_row, rank_main, tested, timed_block, wake_core

comm = MPI.COMM_WORLD


def _measure(case: list) -> dict:
    sizes, runs = case
    cost = fit(comm, runs=FEW) if tested() else fit(comm)
    rows = [_sums(nbytes, runs, cost) for nbytes in sizes]
    return {"cost": [cost.alpha, cost.beta, cost.gamma], "seconds": rows}


def _sums(nbytes: int, runs: int, cost: Cost) -> dict[str, list[float]]:
    """By side, the median of some sums, run by run."""
    given = np.random.default_rng((comm.rank, nbytes)).standard_normal(nbytes // 4, np.float32)
    x = np.empty_like(given)
    sides: dict[str, Callable[[], object]] = {
        name: lambda f=algorithm: f(comm, x)  # type: ignore[misc]
        for name, algorithm in ALGORITHMS.items()
    }
    sides["allreduce"] = lambda: allreduce(comm, x, cost=cost)
    sides["MPI"] = lambda: comm.Allreduce(MPI.IN_PLACE, x)
    sides["gloo"] = lambda: dist.all_reduce(torch.from_numpy(x))
    want = comm.allreduce(float(given[0]))
    rounds = in_a_row(max(3, min(40, (1 << 21) // nbytes)))
    seconds: dict[str, list[float]] = {side: [] for side in sides}

    def check(side: str) -> None:
        if abs(float(x[0]) - want) > 1e-4:
            raise AssertionError(f"{side} sums {nbytes} bytes to {x[0]}, and {want} is right")

    for side, call in sides.items():  # a first call may set things up
        np.copyto(x, given)
        call()
        check(side)
    wake_core()
    for _ in range(runs):
        for side, call in sides.items():
            taken = timed_block(comm, side, rounds, lambda: np.copyto(x, given), call, partial(check, side))
            seconds[side].append(statistics.median(taken))
    return seconds


if __name__ == "__main__":
    rank_main(_measure)
