# %% [markdown]
# # Appendix 10: ZeRO measured
#
# **How well do the formulas describe real memory, and how is a sharded training resumed?** This page belongs to lesson
# [10 ZeRO](../10_zero.ipynb). It takes about 10 minutes to read.

# %%
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from mpcourse.data import digits
from mpcourse.data_parallel import share_of
from mpcourse.models import mlp
from mpcourse.virtual import run
from mpcourse.zero import ShardedCheckpointer, ShardedParameters
from mpcourse.zero.model_states import held

torch.set_num_threads(1)

# %% [markdown]
# ## The largest model
#
# Table 2 of the ZeRO paper names the largest models on 64 V100 of 32 GB (Samyam Rajbhandari and others, *ZeRO: Memory
# Optimizations Toward Training Trillion Parameter Models*, 2020, <https://arxiv.org/abs/1910.02054>, read in
# transcriptions). It gives a theoretical size for each stage, and for two of them the size that could be trained.

# %%
for stage, theory, measured in ((0, 2.0, 1.3), (1, 7.6, 6.2), (2, 14.4, None), (3, 128.0, None)):
    largest = 32 / sum(held(1.0, stage, 64).values())
    off = f", measured {measured}: {measured / largest - 1:+.0%}" if measured else ""
    print(f"stage {stage}: {largest:5.1f} billion parameters, the paper's theory {theory:5.1f}{off}")

# %% tags=["checked"]
# checked: the closed form gives the paper's theory, and Megatron's bytes where gradients are float32
assert [round(32 / sum(held(1.0, stage, 64).values()), 1) for stage in range(4)] == [2.0, 7.6, 14.4, 128.0]
assert sum(held(1, 1, 64, gradient=4).values()) == 6 + 12 / 64

# %% [markdown]
# The theory counts neither activations nor buffers. Without sharding, the largest model that could be trained is 35 %
# smaller than the theory says. In stage 1 it is 19 % smaller.
#
# Not every program needs 16 bytes. Megatron-LM counts 18 bytes a parameter for bfloat16, because it keeps the gradients
# in float32. Its distributed optimizer, which is stage 1, needs 6 + 12/d bytes (NVIDIA, *Megatron Core User Guide*,
# Distributed Optimizer, 2025, <https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/dist_optimizer.html>).
#
# ## Measured on two cores
#
# `mpcourse bench zero --np 2` measures speed and memory in a few minutes. These are its results of 2026-11-24: two
# ranks, an MLP of 10.5 million parameters, and Adam in float32, which needs 16 bytes a parameter, 8 of them for the
# optimizer's state. PyTorch's classes send through gloo, and ours through MPI. Memory is how much a rank's process has
# grown since before it made the model, after a step and at the most within a step.

# %%
MEASURED = {  # examples a second, MB after a step, MB at the peak; ZeRO's stage
    "data parallelism (lesson 06)": (2011, 190, 233, 0),
    "ShardedOptimizer": (2160, 126, 137, 1),
    "ZeroRedundancyOptimizer around DDP": (1768, 126, 139, 1),
    "OverlappedGradients": (1996, 107, 121, 2),
    "PrefetchedParameters": (1882, 86, 103, 3),
    "fully_shard": (951, 85, 100, 3),
}
for name, (speed, after, peak, stage) in MEASURED.items():
    theory = sum(held(10.506, stage, 2, weight=4, gradient=4, state=8).values())
    print(f"stage {stage}: {name:36}{speed:5} examples/s {after:4} MB, at most {peak}; theory {theory:3.0f} MB")

# %% tags=["checked"]
# checked: where something is sharded, the theory is right to 3 %
for _, after, _, stage in MEASURED.values():
    theory = sum(held(10.506, stage, 2, weight=4, gradient=4, state=8).values())
    assert stage == 0 or abs(after / theory - 1) < 0.03


# %% [markdown]
# Where state is sharded, the theory predicts the memory after a step to 3 %. The speeds say nothing about GPUs, on
# which PyTorch sends through NCCL. Here MPI's ranks share memory, while gloo sends through sockets.
#
# ## Snapshots, and another number of ranks
#
# Each rank saves its own shard, so no rank needs memory for all of them. A snapshot counts only if the shards of all
# ranks are there. If a run is killed while it saves, the next run therefore resumes from the snapshot before. The
# number of ranks may change: the padding is removed from the chunks, and the rest is cut anew.

# %%
def batches(steps):
    generator = torch.Generator().manual_seed(1)
    return [torch.randperm(len(DATA.train), generator=generator)[:60] for _ in range(steps)]


def some_steps(comm, folder, last):
    """Resume, and train until step `last`. Return at which step this run began, and the parameters at its end."""
    torch.manual_seed(comm.rank)
    model = mlp((64, 33, 10)).double()
    update = ShardedParameters(partial(torch.optim.Adam, lr=0.01), model, comm)
    snapshots = ShardedCheckpointer(update, folder)
    begin = (snapshots.resume() or {"step": 0})["step"]
    for number, chosen in enumerate(batches(5)[:last], 1):
        if number > begin:
            own = chosen[share_of(len(chosen), comm.rank, comm.size)]
            update.zero_grad()
            F.cross_entropy(model(DATA.train.images[own].double()), DATA.train.labels[own]).backward()
            update.step()
            snapshots.save(number)
    with update.whole():
        return begin, torch.cat([p.detach().flatten() for p in model.parameters()])


DATA = digits()
with tempfile.TemporaryDirectory() as folder:
    _, on_four = run(partial(some_steps, folder=folder, last=3), 4).results[0]
    begin, loaded = run(partial(some_steps, folder=folder, last=3), 2).results[0]
    print(f"saved by 4 ranks after step 3, loaded by 2 ranks after step {begin}: same bits, {on_four.equal(loaded)}")
    next(Path(folder).glob("step00000003-*-rank1of4.pt")).unlink()  # as if rank 1 had been killed before it saved
    again, resumed = run(partial(some_steps, folder=folder, last=5), 2).results[0]
with tempfile.TemporaryDirectory() as folder:
    _, alone = run(partial(some_steps, folder=folder, last=5), 1).results[0]
print(f"one shard is missing: 2 ranks resume from step {again} and end where one rank ends, to rounding")

# %% tags=["checked"]
# checked: another number of ranks loads the same bits, and an incomplete snapshot is passed over
assert begin == 3 and torch.equal(on_four, loaded)
assert again == 2 and (resumed - alone).abs().max() < 1e-14
