"""Run e16_average as in the report: `mpirun -np 4 python exercises/evidence/e16_average/run.py [SEED [FILE]]`.

With `-np 1`, it is the older program for one process. The losses of all steps go to FILE.
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_average import train

FEATURES, EPOCHS, STEP, RATE, AVERAGED = 20, 20, 32, 0.5, 10
comm, seed = MPI.COMM_WORLD, int(sys.argv[1]) if sys.argv[1:] else 5
torch.set_default_dtype(torch.float64)


def examples(n, seed):
    """Return noisy examples of a linear function. The noise of some is large, and features differ in size."""
    draw = torch.Generator().manual_seed(seed)
    x, noise = torch.randn(n, FEATURES, generator=draw), torch.randn(n, 1, generator=draw)
    wild = torch.rand(n, 1, generator=draw) < 0.05
    y = x @ torch.linspace(0.5, -0.5, FEATURES)[:, None] + noise * torch.where(wild, 4.0, 0.7)
    return x * torch.logspace(-0.8, 0, FEATURES), y


def train_alone(model, data, batch, epochs, rate):
    """Train as one process did, before there was a program for several ranks; return what `train` returns."""
    losses, weights = [], []
    loader = DataLoader(data, batch, shuffle=True, generator=torch.Generator().manual_seed(seed))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(epochs):
        targets, hardest = 0.0, (0.0, 0)
        for step, (x, y) in enumerate(loader):
            loss = ((model(x) - y) ** 2).mean() / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            targets += y.sum().item()
            hardest = max(hardest, (loss.item(), step))
            losses.append(loss.item())
        weights.append(model.weight.detach().flatten().clone())
        print(
            f"epoch {epoch}: {len(data)} examples, whose y add up to {targets:.3f}; "
            f"the highest loss is {hardest[0]:.3f}, in step {hardest[1]}"
        )
    return losses, weights


data, (held_out_x, held_out_y) = TensorDataset(*examples(960, seed=0)), examples(4000, seed=1)
model = torch.nn.Linear(FEATURES, 1, bias=False)
torch.nn.init.zeros_(model.weight)
if comm.size == 1:
    losses, weights = train_alone(model, data, STEP, EPOCHS, RATE)
else:
    store = dist.FileStore(comm.bcast(os.path.join(tempfile.mkdtemp(), "store")), comm.size)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
    losses, weights = train(model, data, STEP // comm.size, EPOCHS, RATE, seed)
    comm.Barrier()  # no rank leaves while another is in a call
    dist.destroy_process_group()

if comm.rank == 0:

    def held_out(w):
        """Return the mean loss of examples that are not trained on."""
        return ((held_out_x @ w[:, None] - held_out_y) ** 2).mean().item() / 2

    print(f"loss of held-out examples after each epoch: {' '.join(f'{held_out(w):.3f}' for w in weights)}")
    last, mean = held_out(weights[-1]), held_out(torch.stack(weights[-AVERAGED:]).mean(0))
    print(f"with the last weights: {last:.4f}, with the mean of the last {AVERAGED}: {mean:.4f}")
    if sys.argv[2:]:
        Path(sys.argv[2]).write_text("".join(f"{loss:.4f}\n" for loss in losses), encoding="utf-8")
