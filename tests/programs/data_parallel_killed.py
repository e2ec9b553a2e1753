"""A training run over ranks that saves a snapshot after every few steps: `... FOLDER [RANK STEP WHERE]` kills RANK.

WHERE: "step", as STEP begins, or the next one; "backward", in it, where sums are under way; "writing", half through the
next file; "written", before the others know that it is done. Resumes where the folder says. Rank 0 prints, at the end,
a digest of all ranks' parameters and random numbers.
"""

import hashlib
import io
import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mpcourse.data_parallel import Checkpointer, MultiNodeOptimizer, ShardSampler, create_communicator

EPOCHS, BATCH, EXAMPLES = 4, 4, 46
# An optimizer's first act is to import torch's compiler, which takes as long as all else here. This stands in for it.
sys.modules["torch._dynamo"] = SimpleNamespace(disable=lambda f, *_, **__: f, graph_break=lambda: None)  # type: ignore
comm = MPI.COMM_WORLD


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_the_next_snapshot(where):
    save, write = torch.save, Checkpointer._write

    def half(state, file):
        whole = io.BytesIO()
        save(state, whole)
        file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
        file.flush()
        die()

    def then_dies(self, state, path):
        write(self, state, path)
        die()

    if where == "writing":
        torch.save = half
    if where == "written":
        Checkpointer._write = then_dies


def main(folder, victim="-1", at="-1", where=""):
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
    batches = DataLoader(TensorDataset(x, y), BATCH, sampler=sampler, generator=torch.Generator())
    checkpointer = Checkpointer(communicator, folder, model=model, optimizer=optimizer, sampler=sampler)
    position = checkpointer.resume()
    step = position["step"] if position else 0
    doomed = comm.rank == int(victim)
    for epoch in range(sampler.epoch, EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            dies = doomed and step >= int(at)
            doomed = doomed and not dies  # only once
            if dies and where == "step":
                die()
            if dies:
                die_at_the_next_snapshot(where)
            optimizer.zero_grad()
            F.cross_entropy(model(images + 0.1 * float(np.random.rand())), labels).backward()
            if dies and where == "backward":
                die()
            optimizer.step()
            step, sampler.used = step + 1, sampler.used + len(labels)
            if step % 2 == 0:
                checkpointer.save(step)
    row = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy().tobytes()
    told = comm.gather(row + torch.rand(3).numpy().tobytes() + np.random.rand(3).tobytes())
    if comm.rank == 0:
        print(step, hashlib.sha256(b"".join(told)).hexdigest(), flush=True)


main(*sys.argv[1:])
