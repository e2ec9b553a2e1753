"""What `mpcourse bench crossovers` runs on each rank."""

import statistics
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI

from mpcourse.collectives import ALGORITHMS, Cost, allreduce, fit
from mpcourse.course.bench.over_ranks import rank_main, timed_block, wake_core

comm = MPI.COMM_WORLD


def _measure(case: list) -> dict:
    sizes, runs = case
    cost = fit(comm)
    sums = [Sums(nbytes, cost) for nbytes in sizes]
    for each in sums:  # a first call may set things up
        for side in each.calls:
            each.time(side, 1)
    for each in sums:
        each.seconds = {side: [] for side in each.calls}
    for _ in range(runs):
        for over_gloo in (False, True):  # ranks that wait for MPI disturb gloo's threads, so gloo's sums go in a row
            wake_core()
            for each in sums:
                for side in each.calls:
                    if (side == "gloo") == over_gloo:
                        each.time(side, max(3, min(20, (1 << 20) // each.nbytes)))
    return {"cost": [cost.alpha, cost.beta, cost.gamma], "seconds": [each.seconds for each in sums]}


class Sums:
    """All ways to sum up one random array of each rank, and by side the median seconds of a sum, run by run."""

    def __init__(self, nbytes: int, cost: Cost) -> None:
        self.nbytes = nbytes
        self.given = np.random.default_rng((comm.rank, nbytes)).standard_normal(nbytes // 4, np.float32)
        self.x = np.empty_like(self.given)
        self.wanted = comm.allreduce(float(self.given[0]))
        self.calls: dict[str, Callable[[], object]] = {
            name: lambda f=algorithm: f(comm, self.x)  # type: ignore[misc]
            for name, algorithm in ALGORITHMS.items()
        }
        self.calls["allreduce"] = lambda: allreduce(comm, self.x, cost=cost)
        self.calls["MPI"] = lambda: comm.Allreduce(MPI.IN_PLACE, self.x)
        self.calls["gloo"] = lambda: dist.all_reduce(torch.from_numpy(self.x))
        self.seconds: dict[str, list[float]] = {side: [] for side in self.calls}

    def time(self, side: str, rounds: int) -> None:
        """Time some sums of a side in a row. Raises AssertionError for a wrong sum."""

        def check() -> None:
            if abs(float(self.x[0]) - self.wanted) > 1e-4:
                raise AssertionError(f"{side} sums {self.nbytes} bytes to {self.x[0]}, and {self.wanted} is right")

        taken = timed_block(
            comm, rounds, lambda: np.copyto(self.x, self.given), self.calls[side], check, side == "gloo"
        )
        self.seconds[side].append(statistics.median(taken))


if __name__ == "__main__":
    rank_main(_measure)
