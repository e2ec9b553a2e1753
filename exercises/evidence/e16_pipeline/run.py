"""Run e16_pipeline as in the report: `mpirun -np 3 python exercises/evidence/e16_pipeline/run.py`, and with `-np 1`."""

import contextlib
import copy
import io
import sys
from pathlib import Path

import torch
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_pipeline import Model, Stage, train

STEPS, RATE, IDS, WIDTH, BLOCKS, LENGTH = 200, 0.05, 60, 12, 3, 16
torch.set_num_threads(1)
draw = torch.Generator().manual_seed(3)
meaning = torch.nn.functional.normalize(torch.randn(IDS, 6, generator=draw))
chain = torch.softmax(6 * meaning @ meaning.T, 1)  # how likely each id is after each other one: near ids are likely


def drawn(sequences):
    """Return a micro-batch."""
    columns = [torch.randint(IDS, (sequences,), generator=draw)]
    while len(columns) < LENGTH:
        columns.append(torch.multinomial(chain[columns[-1]], 1, generator=draw)[:, 0])
    return torch.stack(columns, 1)


def new_model():
    """Return a model with the weights that all ranks begin with."""
    model, draw = Model(IDS, WIDTH, BLOCKS).double(), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=draw))
    return model


def evaluated(comm, model):
    """Return the loss of the held-out examples; None on all ranks but the last."""
    with contextlib.redirect_stdout(io.StringIO()):
        losses = train(comm, copy.deepcopy(model), [[held_out]], 0.0, 0.0)
    return losses and losses[0]


comm = MPI.COMM_WORLD
steps = [[drawn(4) for _ in range(4)] for _ in range(STEPS)]  # the same on all ranks
held_out = drawn(200)
model = new_model()
train(comm, model, steps, RATE, 0.9)
loss = evaluated(comm, model)

checkpoints = comm.gather(Stage(comm, model).layers.state_dict(), root=comm.size - 1)
if checkpoints:
    loaded = new_model()
    for checkpoint in checkpoints:  # first rank 0
        Stage(MPI.COMM_SELF, loaded).layers.load_state_dict(checkpoint, strict=False)
    print(f"held-out examples: loss {loss:.4f}, and {evaluated(MPI.COMM_SELF, loaded):.4f} from checkpoints")
