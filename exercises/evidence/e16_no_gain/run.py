"""Run e16_no_gain as in the report: `mpirun -np 4 python exercises/evidence/e16_no_gain/run.py 8`, and `-np 1` with 32.

The argument is the number of examples that a rank takes in a step.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_no_gain import train

STEPS, RATE, FEATURES = 120, 0.1, 20


class Data:
    """Noisy examples of a linear function; in a real program, they would be in files."""

    features = FEATURES

    def __init__(self, n, seed):
        draw = np.random.default_rng(seed)
        self.x = draw.standard_normal((n, FEATURES))
        self.y = self.x @ np.linspace(-1, 1, FEATURES) + draw.standard_normal(n)

    def __len__(self):
        return len(self.y)

    def read(self, indices):
        """Return x and y of these examples."""
        indices = np.asarray(indices, np.int64)
        return self.x[indices], self.y[indices]


def held_out_loss(w):
    """Return the mean loss of examples that are not trained on."""
    held_out = Data(4000, seed=1)
    return ((held_out.x @ w - held_out.y) ** 2).mean() / 2


comm, batch = MPI.COMM_WORLD, int(sys.argv[1])
data = Data(960, seed=0)
epochs = STEPS * batch * comm.size // len(data)
weights = train(comm, data, batch, epochs, RATE, seed=5)
print(f"rank {comm.rank}: at the end, its weights have the sum {weights[-1].sum()}", flush=True)
if comm.rank == 0:
    print(f"after {len(weights)} steps: loss of held-out examples {held_out_loss(weights[-1]):.4f}", flush=True)
