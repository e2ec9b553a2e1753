"""A training run over ranks that saves a snapshot after every few steps: `... FOLDER [RANK STEP]` kills RANK at STEP.

Resumes where the folder says. Rank 0 prints, at the end, a digest of all ranks' parameters and random numbers.
"""

import hashlib
import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from mpcourse.data_parallel import Checkpointer, MultiNodeOptimizer, ShardSampler, create_communicator

EPOCHS, BATCH, EXAMPLES = 4, 4, 46
# An optimizer's first act is to import torch's compiler, which takes as long as all else here. This stands in for it.
sys.modules["torch._dynamo"] = SimpleNamespace(disable=lambda f, *_, **__: f, graph_break=lambda: None)  # type: ignore
comm = MPI.COMM_WORLD


def main(folder, victim=-1, at=-1):
    torch.set_num_threads(1)
    torch.manual_seed(comm.rank)
    np.random.seed(comm.rank)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(EXAMPLES, 5, generator=generator)
    y = torch.randint(3, (EXAMPLES,), generator=generator)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))
    communicator = create_communicator("bucketed", comm)
    optimizer = MultiNodeOptimizer(torch.optim.Adam(model.parameters(), 0.01), communicator)
    sampler = ShardSampler(x, comm.rank, comm.size, seed=3)
    checkpointer = Checkpointer(communicator, folder, model=model, optimizer=optimizer)
    position = checkpointer.resume() or {"step": 0, "epoch": 0, "used": 0}
    step, used = position["step"], position["used"]
    for epoch in range(position["epoch"], EPOCHS):
        sampler.set_epoch(epoch, skip=used)
        order = list(sampler)
        for begin in range(0, len(order), BATCH):
            if (comm.rank, step) == (victim, at):
                os.kill(os.getpid(), signal.SIGKILL)
            chosen = order[begin : begin + BATCH]
            optimizer.zero_grad()
            F.cross_entropy(model(x[chosen] + 0.1 * float(np.random.rand())), y[chosen]).backward()
            optimizer.step()
            step, used = step + 1, used + len(chosen)
            if step % 2 == 0:
                checkpointer.save(step, epoch=epoch, used=used)
        used = 0
    row = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy().tobytes()
    told = comm.gather(row + torch.rand(3).numpy().tobytes() + np.random.rand(3).tobytes())
    if comm.rank == 0:
        print(step, hashlib.sha256(b"".join(told)).hexdigest(), flush=True)


main(sys.argv[1], *map(int, sys.argv[2:]))
