"""Train what lesson 07 shows of DiLoCo: `mpirun -np 2 python -m lessons.studies.diloco FILE`.

Each rank of mpirun trains other seeds. The 8 replicas of a training are virtual ranks of one process.

A seed's ways part after `BEFORE` steps of one replica. From there each of them begins with the same parameters, and
with a new AdamW. Batches are drawn from the same text, by a generator for each seed and replica.
"""

import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI
from tqdm import tqdm

from mpcourse.common.comm import Comm
from mpcourse.common.provenance import processor, versions
from mpcourse.data.text import course_text, draw_batch
from mpcourse.data_parallel import LocalOptimizer, MultiNodeOptimizer, create_communicator
from mpcourse.models.gpt import gpt, token_loss
from mpcourse.studies.diloco.study import (
    ALONE,
    BEFORE,
    LONGER,
    LOOK,
    OUTER_MOMENTUM,
    OUTER_RATE,
    OUTERS,
    PERIODS,
    RATE,
    REPLICAS,
    SEEDS,
    SEQUENCES,
    SHAPE,
    STEPS,
    TOGETHER,
    WEIGHT_DECAY,
)
from mpcourse.virtual import run

TEXT = course_text()
State = dict[str, torch.Tensor]


def learning_rate(step: int, steps: int) -> float:
    """Return a step's share of RATE: from 1 to a tenth, along half a cosine."""
    return 0.1 + 0.9 * (1 + math.cos(math.pi * step / steps)) / 2


@torch.no_grad()
def validate(model: torch.nn.Module) -> float:
    """Return the mean loss on the same 256 pieces of the validation text."""
    x, target = draw_batch(TEXT.validation, 256, SHAPE.length, torch.Generator().manual_seed(1))
    return round(token_loss(model(x), target).item(), 5)


def before(seed: int) -> State:
    """Return a seed's parameters where its ways part."""
    torch.manual_seed(seed)
    model = gpt(SHAPE)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=WEIGHT_DECAY)
    draw = torch.Generator().manual_seed(1000 * seed)
    for step in range(BEFORE):
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / 100)
        x, target = draw_batch(TEXT.train, SEQUENCES, SHAPE.length, draw)
        optimizer.zero_grad()
        token_loss(model(x), target).backward()
        optimizer.step()
    return model.state_dict()


def replica(comm: Comm, state: State, seed: int, steps: int, period: int | None, outer: bool) -> dict[str, list]:
    """Train one replica; return when it was validated, and its losses then: empty but on rank 0.

    period: inner steps between two outer ones; None: gradients are averaged in each step. outer: whether there is an
    outer optimizer.
    """
    model = gpt(SHAPE)
    model.load_state_dict(state)
    adamw = torch.optim.AdamW(model.parameters(), RATE, weight_decay=WEIGHT_DECAY)
    nesterov = partial(torch.optim.SGD, lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)
    communicator = create_communicator("flat", comm)
    optimizer = (
        MultiNodeOptimizer(adamw, communicator)
        if period is None
        else LocalOptimizer(adamw, communicator, period, outer=nesterov if outer else None)
    )
    draw = torch.Generator().manual_seed(1000 * seed + 1 + comm.rank)
    found: dict[str, list] = {"steps": [], "losses": []}
    for step in range(steps + 1):
        together = period is None or step % period == 0 or step == steps
        if step == steps:
            optimizer.finish()
        if comm.rank == 0 and together and step % max(1, LOOK * steps // STEPS) == 0:
            found["steps"].append(step)
            found["losses"].append(validate(model))
        if step == steps:
            return found
        adamw.param_groups[0]["lr"] = RATE * learning_rate(step, steps)
        x, target = draw_batch(TEXT.train, SEQUENCES, SHAPE.length, draw)
        optimizer.zero_grad()
        token_loss(model(x), target).backward()
        optimizer.step()
    raise AssertionError("the loop returns in its last step")


def train(state: State, seed: int, replicas: int, steps: int, period: int | None = None, outer: bool = False) -> dict:
    """Train one way; return what `mpcourse.studies.diloco.Trained` takes."""
    done = run(lambda comm: replica(comm, state, seed, steps, period, outer), replicas, record=False)
    return done.results[0] | {"sent": int(done.traffic[0].sum())}


def ways() -> dict[str, dict[str, Any]]:
    """Return name of a way -> what `train` takes for it, without the seed."""
    named: dict[str, dict[str, Any]] = {
        ALONE: {"replicas": 1, "steps": STEPS},
        TOGETHER: {"replicas": REPLICAS, "steps": STEPS},
        LONGER: {"replicas": 1, "steps": REPLICAS * STEPS},
    }
    for name, outer in OUTERS.items():
        for period in PERIODS:
            named[f"{name} {period}"] = {"replicas": REPLICAS, "steps": STEPS, "period": period, "outer": outer}
    return named


def main() -> None:
    """Train all seeds of this rank; rank 0 writes the file."""
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    found: dict[int, dict[str, Any]] = {}
    mine = range(comm.rank, SEEDS, comm.size)
    with tqdm(total=len(mine) * len(ways()), disable=comm.rank > 0) as bar:
        for seed in mine:
            state, found[seed] = before(seed), {}
            for name, options in ways().items():
                found[seed][name] = train(state, seed, **options)
                bar.update()
    every = {seed: results for of_rank in comm.allgather(found) for seed, results in of_rank.items()}
    if comm.rank == 0:
        made_by = versions("torch") | {"processor": processor()}
        by_way = {name: [every[seed][name] for seed in range(SEEDS)] for name in ways()}
        Path(sys.argv[1]).write_text(json.dumps({"made by": made_by, "ways": by_way}), encoding="utf-8")


if __name__ == "__main__":
    main()
