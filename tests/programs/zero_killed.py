"""A sharded training that saves a snapshot every two steps: `... FOLDER [MOMENT]` kills itself at that moment.

Moments are counted: a step begins, backward reaches a parameter, a file is begun, half written, in its place, old ones
are removed, a snapshot is done. It resumes where the folder says. Over real ranks, if mpirun starts it (the last one
dies), else over three virtual ones, all of which die. Rank 0 prints, at the end, how many moments there were, and a
digest of all ranks' shards and random numbers.
"""

import hashlib
import io
import os
import signal
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

if "torch._dynamo" not in sys.modules:  # an optimizer's first act is to import it: as long as all else takes here
    sys.modules["torch._dynamo"] = SimpleNamespace(disable=lambda f, *_, **__: f, graph_break=lambda: None)  # type: ignore

from mpcourse.virtual import run
from mpcourse.zero import ShardedCheckpointer, ShardedGradients, checkpoint

STEPS, FOLDER, MOMENT = 10, sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1
REAL = "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ
moments = 0


def moment(*_):
    global moments
    moments += 1
    if moments == MOMENT:
        os.kill(os.getpid(), signal.SIGKILL)


def saved_in_halves(state, file, save=torch.save):
    whole = io.BytesIO()
    save(state, whole)
    moment()
    file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
    file.flush()
    moment()
    file.write(whole.getvalue()[len(whole.getvalue()) // 2 :])


def written(path, contents, sync, write=checkpoint.write_atomically):
    write(path, contents, sync)
    moment()


class Removing(ShardedCheckpointer):
    def _remove_old(self):
        moment()
        super()._remove_old()


def train(comm):
    torch.manual_seed(comm.rank)
    draw = torch.Generator().manual_seed(5 + comm.rank)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))
    update = ShardedGradients(lambda groups: torch.optim.Adam(groups, 0.01), model, comm, bucket_bytes=100)
    scheduler = torch.optim.lr_scheduler.StepLR(update.optimizer, 3)
    if not REAL or comm.rank == comm.size - 1:
        for p in model.parameters():
            p.register_hook(moment)
        torch.save, checkpoint.write_atomically = saved_in_halves, written
    checkpointer = Removing(update, FOLDER)
    position = checkpointer.resume() or {"step": 0}
    if "scheduler" in position:
        scheduler.load_state_dict(position["scheduler"])
    batches = [(torch.randn(6, 5, generator=draw), torch.randint(3, (6,), generator=draw)) for _ in range(STEPS)]
    for step, (x, target) in enumerate(batches[position["step"] :], start=position["step"] + 1):
        if not REAL or comm.rank == comm.size - 1:
            moment()
        update.zero_grad()
        F.cross_entropy(model(x), target).backward()
        update.step(clip=0.5)
        scheduler.step()
        if step % 2 == 0:
            checkpointer.save(step, scheduler=scheduler.state_dict())
            if not REAL or comm.rank == comm.size - 1:
                moment()
    own = torch.cat([*(master.detach() for master in update.masters), torch.rand(3)])
    told = comm.gather((moments, own.numpy().tobytes()))
    if comm.rank == 0:
        print(max(count for count, _ in told), hashlib.sha256(b"".join(row for _, row in told)).hexdigest(), flush=True)


torch.set_num_threads(1)
if REAL:
    from mpi4py import MPI

    train(MPI.COMM_WORLD)
else:
    run(train, 3)
