"""Run e16_accumulate as in the report: `mpirun -np 2 python exercises/evidence/e16_accumulate/run.py [FOLDER]`.

The traces of the fifth update go to FOLDER (a new one, if it is left out), for `mpcourse trace`. With `-np 1`, one
process takes the micro-batches of two ranks.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_accumulate import train

WIDTH, HIDDEN, EXAMPLES, BATCHES, RANKS = 256, 900, 8, 64, 2
comm = MPI.COMM_WORLD
folder = comm.bcast(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp())
store = dist.FileStore(comm.bcast(os.path.join(tempfile.mkdtemp(), "store")), comm.size)
dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
torch.set_num_threads(1)


def network():
    """Return the network before its training, the same in each call."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 10))


def of_rank(rank):
    """Return the micro-batches of a rank: examples, and which of ten outputs of another network is largest."""
    draw = torch.Generator().manual_seed(rank)
    x = torch.randn(BATCHES, EXAMPLES, WIDTH, generator=draw)
    return list(zip(x, (x @ teacher).argmax(2), strict=True))


teacher = torch.randn(WIDTH, 10, generator=torch.Generator().manual_seed(9))
if comm.size == RANKS:
    batches, names = of_rank(comm.rank), {1: "an update after each micro-batch", 8: "an update after 8 micro-batches"}
else:  # an update's micro-batches of the first rank, then those of the second
    batches = [pair for i in range(0, BATCHES, 8) for rank in range(RANKS) for pair in of_rank(rank)[i : i + 8]]
    names = {16: "an update after 16 micro-batches, those of both ranks"}

with contextlib.redirect_stdout(None):  # torch imports much when it trains first
    train(network(), batches, 8, 1, 0.02)
for accumulate, name in names.items():
    if comm.rank == 0:
        print(f"{name}:", flush=True)
    train(network(), batches, accumulate, epochs=4, rate=0.02)

if comm.size == RANKS:
    if comm.rank == 0:
        print("once more, with traces of the fifth update:", flush=True)
    plan = schedule(wait=3, warmup=1, active=1, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as profiler:
        hook = register_optimizer_step_post_hook(lambda *_: profiler.step())
        train(network(), batches, 8, 1, 0.02)
        hook.remove()
    profiler.export_chrome_trace(os.path.join(folder, f"rank{comm.rank}.json.gz"))
    print(f"rank {comm.rank}: wrote {os.path.join(folder, f'rank{comm.rank}.json.gz')}", flush=True)
dist.destroy_process_group()
