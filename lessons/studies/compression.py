"""Train what lesson 07's appendix shows of compression: `mpirun -np 2 python -m lessons.studies.compression FILE`.

Each rank of mpirun trains other seeds. The 8 replicas of a training are virtual ranks of one process.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from mpi4py import MPI
from tqdm import tqdm

from mpcourse.common.comm import Comm
from mpcourse.common.provenance import processor, versions
from mpcourse.data import digits
from mpcourse.models import mlp
from mpcourse.studies.compression.study import BATCH, RATES, REPLICAS, SEEDS, STEPS, WAYS, WIDTHS
from mpcourse.studies.staleness.training import accuracy
from mpcourse.virtual import run

DATA = digits()


def train(way: str, rate: float, seed: int) -> tuple[float, int]:
    """Train one model; return its accuracy on the test images, in percent, and the bytes that a replica sent a step.

    The seed decides weights and batches, which do not depend on the way.
    """

    def program(comm: Comm) -> float:
        torch.manual_seed(seed)
        model = mlp(WIDTHS)
        optimizer = torch.optim.SGD(model.parameters(), rate)
        averaging = WAYS[way](comm)
        draw = torch.Generator().manual_seed(1000 * seed + comm.rank)
        for _ in range(STEPS):
            chosen = torch.randint(len(DATA.train), (BATCH,), generator=draw)
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen]).backward()
            averaging.mean_gradients(model)
            optimizer.step()
        return round(accuracy(model), 3)

    done = run(program, REPLICAS, record=False)
    return done.results[0], round(int(done.traffic[0].sum()) / STEPS)


def main() -> None:
    """Train all seeds of this rank; rank 0 writes the file."""
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    found: dict[tuple[str, float, int], tuple[float, int]] = {}
    mine = [(way, rate, seed) for way in WAYS for rate in RATES for seed in range(comm.rank, SEEDS, comm.size)]
    for way, rate, seed in tqdm(mine, disable=comm.rank > 0):
        found[way, rate, seed] = train(way, rate, seed)
    every = {key: value for of_rank in comm.allgather(found) for key, value in of_rank.items()}
    if comm.rank == 0:
        ways: dict[str, Any] = {
            way: {
                "accuracy": {f"{rate}": [every[way, rate, seed][0] for seed in range(SEEDS)] for rate in RATES},
                "sent": every[way, RATES[0], 0][1],
            }
            for way in WAYS
        }
        made_by = versions("torch") | {"processor": processor()}
        Path(sys.argv[1]).write_text(json.dumps({"made by": made_by, "ways": ways}), encoding="utf-8")


if __name__ == "__main__":
    main()
