"""Run e16_padding as in the report: `mpirun -np 4 python exercises/evidence/e16_padding/run.py`, and with `-np 1`.

A data loader puts sequences of about the same length into a micro-batch, so that it has little padding: some of the
micro-batches are questions of a few ids, the others are texts.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_padding import PADDING, padded, train

STEPS, RATE, IDS, SHORT, LONG = 100, 1.0, 20, (2, 6), (40, 60)
torch.set_default_dtype(torch.float64)
draw = torch.Generator().manual_seed(1)
# For each kind of sequence, how likely each id is after each other one.
chains = [torch.softmax(scale * torch.randn(IDS, IDS, generator=draw), 1) for scale in (0.5, 3.0)]


def drawn(kind):
    """Return a sequence: a question where kind is 0, a text where it is 1."""
    shortest, longest = (SHORT, LONG)[kind]
    ids = [int(torch.randint(IDS, (), generator=draw))]
    for _ in range(int(torch.randint(shortest, longest + 1, (), generator=draw)) - 1):
        ids.append(int(torch.multinomial(chains[kind][ids[-1]], 1, generator=draw)))
    return torch.tensor(ids) + 1  # id 0 is padding


comm = MPI.COMM_WORLD
model = nn.Sequential(nn.Embedding(IDS + 1, 16), nn.Linear(16, IDS + 1))
with torch.no_grad():
    for p in model.parameters():
        p.copy_(0.3 * torch.randn(p.shape, generator=draw))
kinds = torch.randint(2, (STEPS, 8), generator=draw)
# All ranks draw the same numbers, and each trains on its part of the eight micro-batches of a step.
steps = [[[drawn(kind) for _ in range(4)] for kind in of_step] for of_step in kinds.tolist()]
held_out = [drawn(kind) for kind in (0, 1) for _ in range(100)]
if comm.size == 1:
    own = [[[sequence for part in step for sequence in part]] for step in steps]  # a step is one micro-batch
else:
    own = [step[comm.rank * 8 // comm.size : (comm.rank + 1) * 8 // comm.size] for step in steps]
train(comm, model, own, RATE)
weights = sum(p.sum().item() for p in model.parameters())
print(f"rank {comm.rank}: at the end, its weights have the sum {weights}", flush=True)
if comm.rank == 0:
    ids, targets = padded(held_out)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten(), ignore_index=PADDING)
    print(f"held-out sequences: {int((targets != PADDING).sum())} tokens, loss {loss:.6f}")
