"""Run e16_plateau as in the report: `mpirun -np 4 python exercises/evidence/e16_plateau/run.py`, or with `-np 1`.

An argument is the name of a file for the losses of all updates.
"""

import sys
from pathlib import Path

import torch
from mpi4py import MPI
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_plateau import train

comm = MPI.COMM_WORLD
torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
teacher = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.randn(1600, 4)
with torch.no_grad():
    y = 3 * teacher(2 * x) + 0.1 * torch.randn(1600, 1)
model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
losses = train(comm, model, x, y, batch=32 // comm.size, epochs=4, warmup=20, peak=0.05)
weights = sum(p.sum().item() for p in model.parameters())
print(f"rank {comm.rank}: at the end of {len(losses)} updates, its weights have the sum {weights}", flush=True)
if comm.rank == 0 and len(sys.argv) > 1:
    Path(sys.argv[1]).write_text("".join(f"{loss:.6f}\n" for loss in losses), encoding="utf-8")
