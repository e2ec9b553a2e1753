"""What `mpcourse bench two-hosts` runs on each of two ranks, wherever they are: `python two_hosts_ranks.py STEPS RUNS`.

Training steps of the MLP of ChainerMN's tutorial, alone and averaged, and the all-reduce of its gradients by itself.
Rank 0 prints, as the environment of a rank on another host may not hold what we would tell it.
"""

import copy
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, in seconds
import torch.nn.functional as F
from mpi4py import MPI

from mpcourse.collectives import allreduce
from mpcourse.course.bench.over_ranks import pin, take_turns
from mpcourse.course.bench.two_hosts import BATCH, RATE
from mpcourse.course.doctor.ranks import LARGE, half_round_trip, write_facts
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.models import mlp

comm = MPI.COMM_WORLD


def main(steps: int, runs: int) -> None:
    """Measure the seconds of each run: of a step, or of a sum. The first run is not counted."""
    torch.set_num_threads(1)
    pin(comm.rank)
    torch.manual_seed(0)
    base = mlp()
    torch.manual_seed(1 + comm.rank)
    x, y = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))
    models = {side: copy.deepcopy(base) for side in ("alone", "flat", "bucketed")}
    plain = {side: torch.optim.SGD(model.parameters(), RATE) for side, model in models.items()}
    optimizers: dict[str, torch.optim.Optimizer] = {"alone": plain["alone"]}
    for side in ("flat", "bucketed"):
        optimizers[side] = MultiNodeOptimizer(plain[side], create_communicator(side))
    row = np.random.default_rng(comm.rank).standard_normal(sum(p.numel() for p in base.parameters()), np.float32)

    def train(side: str) -> None:
        for _ in range(steps):
            optimizers[side].zero_grad()
            F.cross_entropy(models[side](x), y).backward()
            optimizers[side].step()

    def normalize(side: str) -> None:
        np.divide(row, np.abs(row).max(), out=row)  # so that sums of sums do not overflow

    calls: dict[str, Callable[[], object]] = {side: partial(train, side) for side in models}
    calls |= {"all-reduce": lambda: allreduce(comm, row), "MPI's all-reduce": lambda: comm.Allreduce(MPI.IN_PLACE, row)}
    seconds = take_turns(comm, calls, runs, prepare=normalize)
    one_way = half_round_trip(comm, LARGE, at_most=50, seconds=0.5)
    if comm.rank == 0:
        for what, of_runs in seconds.items():
            write_facts(what=what, seconds=[taken / (steps if what in models else 1) for (taken,) in of_runs])
        write_facts(bandwidth=LARGE / one_way)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
