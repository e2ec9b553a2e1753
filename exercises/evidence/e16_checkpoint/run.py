"""Run one job of e16_checkpoint: `mpirun -np 4 python exercises/evidence/e16_checkpoint/run.py FOLDER`.

Each start with the same FOLDER is the next job, and makes ten steps more. Two ranks are a node.
"""

import hashlib
import sys
import traceback
from pathlib import Path

import torch
from mpi4py import MPI
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_checkpoint import train

WIDTH, EVERY, PER_NODE = 300, 10, 2
comm, folder = MPI.COMM_WORLD, Path(sys.argv[1])
if comm.rank == 0:
    folder.mkdir(parents=True, exist_ok=True)
comm.Barrier()
steps = EVERY * (len(list(folder.glob("step*.pt"))) + 1)
node, local_rank = divmod(comm.rank, PER_NODE)


def print_all(text):
    """Let rank 0 print the texts of all ranks."""
    for line in comm.gather(text) or ():
        print(line, flush=True)


print_all(f"rank {comm.rank} of {comm.size}, rank {local_rank} of node {node}: PyTorch {torch.__version__}")

torch.set_num_threads(1)
torch.manual_seed(1)
layers = nn.Linear(20, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)
model = nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
draw = torch.Generator().manual_seed(comm.rank)
inputs = [torch.randn(32, 20, generator=draw) for _ in range(steps)]
batches = [(x, x.sin().sum(1, keepdim=True)) for x in inputs]
try:
    log = train(comm, local_rank, folder, model, optimizer, batches, EVERY)
except RuntimeError as error:
    if comm.rank == 0:
        print("Traceback (most recent call last, without the frames of libraries):")
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename).name in ("run.py", "e16_checkpoint.py"):
                print(f'  File "{Path(frame.filename).name}", line {frame.lineno}, in {frame.name}\n    {frame.line}')
    print_all(f"rank {comm.rank}: RuntimeError: {error}".partition(". If you")[0])
    log = []
comm.Barrier()
if comm.rank == 0:
    for line in log[-EVERY - 1 :: EVERY]:  # the last one that was loaded, and the last one of this job
        print(f"in the log of rank 0: {line}")
    for path in sorted(folder.glob("step*.pt"), key=lambda path: int(path.stem[4:])):
        print(f"{path.name}: {path.stat().st_size} bytes, md5 {hashlib.md5(path.read_bytes()).hexdigest()}")
    print("the job has ended by itself" if log else "the job has ended with an error", flush=True)
