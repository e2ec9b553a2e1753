# %% [markdown]
# # Appendix 06: a run whose rank is killed
#
# **How does a training continue after one rank has ended?** This page belongs to lesson
# [06 Data parallelism](../06_data_parallel.ipynb). It takes about 5 minutes to read.

# %%
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from mpcourse.data import digits
from mpcourse.data_parallel import Checkpointer, MultiNodeOptimizer, create_communicator, share_of
from mpcourse.models import mlp
from mpcourse.virtual import run

DATA = digits()
torch.set_num_threads(1)


# %% [markdown]
# When one rank ends, the others wait for it for ever, or they are ended too. A long training therefore saves snapshots
# of its state, and resumes from the last one. With `Checkpointer` each rank writes a file of its own. It holds the
# model, the optimizer's state and the state of the random numbers. A snapshot counts only if all ranks have written
# their files.
#
# **Predict first.** Two ranks train for six steps and save a snapshot after each second step. Rank 1 is killed after
# step 3. From which step does the next run continue? Does it end with the same bits as a run without the interruption?

# %% tags=["answer"]
# answer
def resumable(comm, folder, steps, ends=None):
    """Train up to `steps`, from the latest snapshot in `folder` on. ends: the step after which rank 1 is killed."""
    torch.manual_seed(comm.rank)
    model = mlp((64, 32, 10))
    communicator = create_communicator("flat", comm)
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.2, momentum=0.9), communicator)
    snapshots = Checkpointer(communicator, folder, model=model, optimizer=optimizer)
    begin = (snapshots.resume() or {"step": 0})["step"]
    generator = torch.Generator().manual_seed(1)
    for step in range(1, steps + 1):
        chosen = torch.randperm(len(DATA.train), generator=generator)[:64]
        if step > begin:
            mine = chosen[share_of(len(chosen), comm.rank, comm.size)]
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train.images[mine]), DATA.train.labels[mine]).backward()
            optimizer.step()
            if comm.rank == 1 and step == ends:
                raise SystemExit("killed")
            if step % 2 == 0:
                snapshots.save(step)
    return begin, torch.cat([p.detach().flatten() for p in model.parameters()])


with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as empty:
    try:
        run(partial(resumable, folder=kept, steps=6, ends=3), 2)
    except SystemExit as error:
        print(f"rank 1 was {error}; snapshots of {sorted({file.name[:12] for file in Path(kept).iterdir()})}")
    begin, resumed = run(partial(resumable, folder=kept, steps=6), 2).results[0]
    _, at_once = run(partial(resumable, folder=empty, steps=6), 2).results[0]
print(f"resumed after step {begin}; the same bits as six steps at once: {torch.equal(resumed, at_once)}")

# %% tags=["checked"]
# checked: the run continues after step 2, with the same bits
assert begin == 2 and torch.equal(resumed, at_once)

# %% [markdown]
# <details><summary>Why</summary>
#
# Step 3 was done, but not saved, so the run repeats it from the snapshot of step 2. The snapshot holds all that a step
# depends on, SGD's momentum included. Therefore the bits are the same.
#
# </details>
#
# PyTorch's counterpart is `torch.distributed.checkpoint`. It writes one part of each tensor per rank, and can load them
# on another number of ranks.
