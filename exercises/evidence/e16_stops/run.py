"""Run e16_stops as in the report: `mpirun -np 3 python exercises/evidence/e16_stops/run.py`."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_stops import train

comm = MPI.COMM_WORLD
x = np.linspace(-1, 1, 31)
print(f"rank {comm.rank} of {comm.size}: {len(x[comm.rank :: comm.size])} of {len(x)} examples", flush=True)
w, losses = train(comm, x, 2 * x + 1, batch=5, epochs=3, rate=0.5)
print(f"rank {comm.rank} of {comm.size}: ends with w = {w}", flush=True)
