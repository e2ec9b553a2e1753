"""Run e16_drift as in the report: `mpirun -np 3 python exercises/evidence/e16_drift/run.py`, or with `-np 1`.

An argument is the name of a file for the losses of all updates.
"""

import sys
from pathlib import Path

import torch
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_drift import Net, train

CLASSES, INPUTS, WIDTH, N, BATCH, UPDATES = 10, 16, 64, 1920, 48, 200
comm = MPI.COMM_WORLD
torch.set_num_threads(1)
torch.manual_seed(0)
centres = torch.randn(3 * CLASSES, INPUTS, dtype=torch.float64)  # each class has three clouds of examples
kind = torch.randint(3 * CLASSES, (N,))
x, y = centres[kind] + 0.5 * torch.randn(N, INPUTS, dtype=torch.float64), kind % CLASSES


def read(n):
    """Return batch n; after the last one comes the first one again."""
    begin = n * BATCH % N
    return x[begin : begin + BATCH], y[begin : begin + BATCH]


net = Net(INPUTS, WIDTH, CLASSES)
history = train(comm, net, read, UPDATES, rate=2.0, scale=2.0**18, patience=10)
end = sum(loss for _, _, loss in history[-20:]) / 20
finite = all(bool(p.isfinite().all()) for p in net.parameters())
text = f"loss {end:.4f} in the last 20 of {len(history)} updates, {'all' if finite else 'not all'} weights are finite"
print(f"rank {comm.rank}: {text}", flush=True)
if comm.rank == 0 and len(sys.argv) > 1:
    Path(sys.argv[1]).write_text("".join(f"{loss:.4f}\n" for _, _, loss in history), encoding="utf-8")
