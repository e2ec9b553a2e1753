"""What `mpcourse bench scaling` runs on each rank: the same steps, averaged by ours and by no one.

Prints, on rank 0, one line of JSON.
"""

import math
import time
from collections.abc import Callable

import torch
import torch._dynamo  # what torch.optim imports at its first use, in seconds
import torch.nn.functional as F
from mpi4py import MPI

from mpcourse.course.bench.over_ranks import answer
from mpcourse.course.bench.scaling import KINDS, SIDES, batches
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.models import mlp

comm = MPI.COMM_WORLD
RATE = 0.01
WARM_UP = 2  # steps
RUN = 0.15  # seconds that a run takes, about: it has as many steps as that needs
NAP = 0.0002  # seconds


def _measure(case: list) -> dict[str, dict[str, list[float]]]:
    """Measure the seconds of a step in each run, by kind and side."""
    threads, runs = case
    torch.set_num_threads(threads)
    sides = {(kind, side): _training(kind, side) for kind in KINDS for side in SIDES}
    steps: dict[str, int] = {}
    for kind in KINDS:
        for side in SIDES:
            _seconds(sides[kind, side], WARM_UP)
        steps[kind] = math.ceil(RUN / max(_seconds(sides[kind, side], 1) for side in SIDES))
    seconds: dict[str, dict[str, list[float]]] = {kind: {side: [] for side in SIDES} for kind in KINDS}
    for _ in range(runs):
        for (kind, side), step in sides.items():
            seconds[kind][side].append(_seconds(step, steps[kind]))
    return seconds


def _training(kind: str, side: str) -> Callable[[], None]:
    """Return a training step of one side, on this rank's batch."""
    torch.manual_seed(0)
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), RATE)
    batch = batches(kind, comm.size)[comm.rank]
    torch.manual_seed(1 + comm.rank)
    x, y = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))
    optimizer: torch.optim.Optimizer | MultiNodeOptimizer = sgd
    share = 1.0
    if side == "ours":
        communicator = create_communicator("bucketed")
        optimizer, share = MultiNodeOptimizer(sgd, communicator), communicator.share(batch)

    def step() -> None:
        optimizer.zero_grad()
        (share * F.cross_entropy(model(x), y)).backward()
        optimizer.step()

    return step


def _seconds(step: Callable[[], None], count: int) -> float:
    """Measure one of `count` steps in a row, in seconds, on the rank that takes longest."""
    _meet()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    taken = time.perf_counter() - begin
    _meet()
    return comm.allreduce(taken, op=MPI.MAX) / count


def _meet() -> None:
    """Wait at a barrier, asleep: where ranks share a core, one that polls would slow the ranks that still work."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(NAP)


if __name__ == "__main__":
    answer(_measure)
