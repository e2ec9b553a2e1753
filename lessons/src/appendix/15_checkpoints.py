# %% [markdown]
# # Appendix 15: checkpoints
#
# **What if ranks die, files are damaged, and disks are full?** This page belongs to lesson [15
# Failures](../15_failures.ipynb). It takes about 20 minutes to read.

# %%
import errno
import os
import shutil
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

from mpcourse.data import digits
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.data_parallel.resilience import Checkpoints, StepSampler, failures, simulate
from mpcourse.models import mlp
from mpcourse.virtual import compute, run
from mpcourse.zero import ShardedCheckpointer, ShardedOptimizer

DATA = digits()
MINUTE, HOUR = 60, 3600
torch.set_num_threads(1)
warnings.filterwarnings("ignore", "torch.distributed is disabled")  # some cells use DCP in a single process

# %% [markdown]
# ## Ranks that die
#
# Four virtual ranks train for two hours of virtual time. A step takes a minute. After every ten steps the job saves,
# which takes 30 seconds. On average it fails once an hour, and a restart takes five minutes. At the moment of a
# failure, one rank ends. The others cannot go on without it, so the job starts again from its last checkpoint.

# %%
STEPS, EVERY, SAVE, RESTART = 120, 10, 30, 5 * MINUTE


def job(comm, folder, dies_after, who):
    """Train from the last checkpoint on. Rank `who` dies after so many seconds."""
    now = 0.0

    def spend(seconds):
        nonlocal now
        now += seconds
        if now > dies_after and comm.rank == who:
            raise SystemExit("the machine died")
        compute(comm, seconds)

    torch.manual_seed(0)
    model = mlp((64, 32, 10))
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer = MultiNodeOptimizer(sgd, create_communicator("flat", comm))
    sampler = StepSampler(len(DATA.train), 64, comm.rank, comm.size)
    parts, checkpoints = {"model": model, "optimizer": sgd, "sampler": sampler}, Checkpoints(folder)
    if (last := checkpoints.load()) is not None:
        for name, part in parts.items():
            part.load_state_dict(last.state[name])
    while sampler.trained < STEPS:
        for chosen in sampler:
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen]).backward()
            spend(MINUTE)
            optimizer.step()
            sampler.trained += 1
            if sampler.trained % EVERY == 0:
                spend(SAVE)
                comm.Barrier()  # no rank has died while the job saved
                if comm.rank == 0:
                    checkpoints.save(sampler.trained, {name: part.state_dict() for name, part in parts.items()})
            if sampler.trained == STEPS:
                break
    return now, torch.cat([p.detach().flatten() for p in model.parameters()])


def with_failures(seed, between=HOUR):
    """Start the job again after each failure; return its seconds, its parameters, and how often it has failed."""
    gaps = failures(between, seed)
    begin, next_failure, count = 0.0, next(gaps), 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            program = partial(job, folder=folder, dies_after=next_failure - begin, who=count % 4)
            try:
                seconds, parameters = run(program, 4).results[0]
            except SystemExit:
                begin, next_failure, count = next_failure + RESTART, next_failure + next(gaps), count + 1
            else:
                return begin + seconds, parameters, count


whole, undisturbed, _ = with_failures(0, between=1e12)
jobs = {seed: with_failures(seed) for seed in (1, 4, 5)}
for seconds, parameters, count in jobs.values():
    print(f"failures {count}, {seconds / MINUTE:.1f} min instead of {whole / MINUTE:.1f};", end=" ")
    print(f"the same bits: {torch.equal(parameters, undisturbed)}")

# %% tags=["checked"]
# checked: each job takes exactly as long as the simulation of the lesson says, and ends with the same bits
for seed, (seconds, parameters, _) in jobs.items():
    assert abs(seconds - simulate(STEPS * MINUTE, EVERY * MINUTE, SAVE, RESTART, HOUR, seed).seconds) < 1e-6
    assert torch.equal(parameters, undisturbed)

# %% [markdown]
# ## Two generations
#
# `Checkpoints` keeps two files by default. A file gets its name only when all of it is on the disk, and the name holds
# a checksum of the contents.
#
# **Predict first.** A job has saved after steps 10, 20 and 30. We flip one bit in the newest file. Which step does
# `load` return? Then the job saves after step 40, and the disk is full when it saves after step 50. Which step does
# `load` return now?

# %% tags=["answer"]
# answer
folder = Path(tempfile.mkdtemp())
checkpoints = Checkpoints(folder)
for step in (10, 20, 30):
    checkpoints.save(step, {"weights": torch.full((1000,), float(step))})
print("files:", *sorted(path.name for path in folder.iterdir()))
newest = max(folder.iterdir())
contents = bytearray(newest.read_bytes())
contents[2000] ^= 1
newest.write_bytes(contents)
loaded = checkpoints.load()
print(f"loaded step {loaded.step}; passed over {[path.name for path in loaded.damaged]}")


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


checkpoints.save(40, {"weights": torch.full((1000,), 40.0)})
fsync, os.fsync = os.fsync, full
try:
    checkpoints.save(50, {"weights": torch.full((1000,), 50.0)})
except OSError as error:
    print(f"save after step 50: {error}; load returns step {checkpoints.load().step}")
finally:
    os.fsync = fsync

# %% [markdown]
# <details><summary>Why</summary>
#
# The checksum of the damaged file no longer matches the one in its name, so `load` takes the older file, and names the
# one that it has passed over. On a full disk, the earlier files stay as they were: the new one had no name yet, and old
# ones are removed only afterwards.
#
# </details>
#
# ## While the job goes on
#
# `save_later` copies the state and returns. A thread writes the copy while the job trains. So the job waits only for
# the copy, and the time d of Young's formula becomes much shorter. The copy needs memory for a second state, and its
# file, before it is written, for a third.

# %% tags=["nbval-ignore-output"]
weights = {"weights": torch.zeros(20_000_000)}
for step, save in ((60, checkpoints.save), (70, checkpoints.save_later)):
    begin = time.perf_counter()
    save(step, weights)
    waited = time.perf_counter() - begin
    weights["weights"] += 1  # the job goes on, and changes its weights
    checkpoints.wait()
    print(f"{save.__name__:10} the job waits {1e3 * waited:4.0f} ms for 80 MB, and saves", end=" ")
    print(f"weights of {checkpoints.load().state['weights'].unique().tolist()}")
shutil.rmtree(folder)


# %% [markdown]
# ## Each rank its own part
#
# With ZeRO, each rank has a part of the state (lesson 10). `ShardedCheckpointer` lets each rank write its part, and any
# number of ranks can continue from the files. A checkpoint counts once the files of all ranks exist.

# %%
def sharded(comm, folder, steps):
    torch.manual_seed(0)
    model = mlp((64, 32, 10)).double()
    optimizer = ShardedOptimizer(torch.optim.Adam, model, comm)
    snapshots = ShardedCheckpointer(optimizer, folder)
    begin = (snapshots.resume() or {"step": 0})["step"]
    for step in range(begin, steps):
        chosen = torch.arange(60 * step, 60 * step + 60).chunk(comm.size)[comm.rank]
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.train.images[chosen].double()), DATA.train.labels[chosen]).backward()
        optimizer.step()
    snapshots.save(steps)
    return begin, torch.cat([p.detach().flatten() for p in model.parameters()])


with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
    run(partial(sharded, folder=folder, steps=4), 2)
    print("files:", *sorted(path.name.partition("-")[0] + "..." + path.name[-12:] for path in Path(folder).iterdir()))
    begin, resumed = run(partial(sharded, folder=folder, steps=8), 3).results[0]
    _, at_once = run(partial(sharded, folder=other, steps=8), 1).results[0]
print(f"3 ranks continue with step {begin}; off from one process by {(resumed - at_once).abs().max():.0e} at most")

# %% [markdown]
# ## The same in PyTorch
#
# `torch.distributed.checkpoint`, DCP for short, also saves while the job goes on, and saves tensors that PyTorch has
# cut, `DTensor`. Each rank writes a file, and a file `.metadata` says where each part of a tensor is. In the next
# program, two ranks save a matrix that is cut by rows, and three ranks read it.

# %% tags=["nbval-ignore-output"]
Path("../scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile ../scratch/resharded.py
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")  # on GPUs "cpu:gloo,cuda:nccl": async_save writes from the host
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
whole = torch.arange(28.0).view(7, 4)
matrix = distribute_tensor(whole if sys.argv[1] == "save" else torch.zeros(7, 4), mesh, [Shard(0)])
state = {"matrix": matrix}
if sys.argv[1] == "save":
    writing = dcp.async_save(state, checkpoint_id=sys.argv[2])  # copies the state, and writes in a thread
    matrix.to_local().zero_()  # the job goes on, and changes its weights
    writing.result()
else:
    dcp.load(state, checkpoint_id=sys.argv[2])  # writes into the tensors that are there
    right = bool(torch.equal(matrix.full_tensor(), whole))
    print(f"rank {dist.get_rank()} has {matrix.to_local().shape[0]} rows; all of them right: {right}")
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()

# %%
shutil.rmtree("../scratch/dcp", ignore_errors=True)
log = "../scratch/torchrun.log"
# !torchrun --local-addr localhost --nproc-per-node 2 ../scratch/resharded.py save ../scratch/dcp 2> {log}
# said = !torchrun --local-addr localhost --nproc-per-node 3 ../scratch/resharded.py load ../scratch/dcp 2> {log}
print(*sorted(said), sep="\n")
print(*sorted(path.name for path in Path("../scratch/dcp").iterdir()))

# %% [markdown]
# Can each library read the other's files? Our files are those of `torch.save`, and PyTorch has a converter for both
# directions.

# %%
model = mlp((64, 32, 10))
adam = torch.optim.Adam(model.parameters())
F.cross_entropy(model(DATA.train.images[:60]), DATA.train.labels[:60]).backward()
adam.step()
state = {"model": model.state_dict(), "optimizer": adam.state_dict(), "step": 7}
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    Checkpoints(folder / "ours").save(7, state)
    (file,) = (folder / "ours").iterdir()
    torch_save_to_dcp(file, folder / "theirs")
    read = {"model": {key: torch.zeros_like(x) for key, x in model.state_dict().items()}, "step": 0}
    dcp.load(read, checkpoint_id=folder / "theirs")
    print("DCP reads ours:", read["step"], all(torch.equal(x, state["model"][key]) for key, x in read["model"].items()))

    dcp_to_torch_save(folder / "theirs", folder / "back.pt")
    again = torch.load(folder / "back.pt", weights_only=True)
    before, after = adam.state_dict()["state"], again["optimizer"]["state"]
    same = all(torch.equal(x, after[str(i)][name]) for i, of_one in before.items() for name, x in of_one.items())
    print("and back:", again["step"], same, "but with the keys", list(after), "for", list(before))

    part = folder / "theirs" / "__0_0.distcp"
    contents = bytearray(part.read_bytes())
    at = contents.find(model[1].weight.detach().numpy().tobytes())  # where the first layer's weights begin
    contents[at] ^= 1
    part.write_bytes(contents)
    dcp.load(read, checkpoint_id=folder / "theirs")  # raises nothing
    wrong = [key for key, x in read["model"].items() if not torch.equal(x, state["model"][key])]
    print("DCP reads a file with a flipped bit without an error; wrong:", wrong)

# %% [markdown]
# - A checkpoint of `Checkpoints` becomes one of DCP and back, with the optimizer's state. But DCP's keys are texts: the
#   optimizer's parameters 0 and 1 come back as "0" and "1", and `load_state_dict` would then leave their state out
#   without an error. Turn the keys into numbers first. (`get_state_dict` of DCP names parameters instead.)
# - DCP cannot read the files of `ShardedCheckpointer`: they hold pieces of flat buffers, and no `.metadata` that says
#   which tensors they belong to. Continue on one rank, and save its whole `state_dict`.
# - DCP has no checksums by default. It reads a file with a flipped bit as if nothing were wrong. (torch 2.13; disks and
#   networks have checksums of their own, which find most such errors.)
# - DCP writes into tensors that exist already, so a job needs no memory for a second copy while it loads.
