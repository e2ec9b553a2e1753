# %% [markdown]
# # Appendix 06: loss scaling on several ranks
#
# **Which rank decides that a step in float16 is skipped?** This page belongs to lesson
# [06 Data parallelism](../06_data_parallel.ipynb). It takes about 5 minutes to read.

# %%
import torch
import torch.nn.functional as F

from mpcourse.data import digits
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator, share_of
from mpcourse.models import mlp
from mpcourse.virtual import run

DATA = digits()
torch.set_num_threads(1)


# %% [markdown]
# In float16 small gradients become 0. `torch.amp.GradScaler` therefore multiplies the loss by a scale, and divides the
# gradients by it before the optimizer step (lesson 01). If a gradient is infinite, it skips the step and halves the
# scale. After a number of steps without an infinite gradient, it doubles the scale.
#
# Suppose that each rank looked at its own gradients. A rank with an infinite gradient would skip its step, and the
# other ranks would wait for it in their all-reduce. So all ranks look at the mean instead. One rank's infinity makes
# the mean infinite, or NaN, on all ranks, and they all decide alike. `scaler.step(optimizer)` of a `MultiNodeOptimizer`
# averages first.
#
# **Predict first.** Four ranks train for eight steps. The scale begins at 1024, and three good steps double it. In step
# 4, counted from 0, only rank 2 has images that are too large for float16. What is the scale after each step, on rank 0
# and on rank 2?

# %% tags=["answer"]
# answer
def scaled(comm):
    torch.manual_seed(comm.rank)
    model, scales = mlp((64, 32, 10)), []
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.2), create_communicator("flat", comm))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=3)
    generator = torch.Generator().manual_seed(1)
    for step in range(8):
        chosen = torch.randperm(len(DATA.train), generator=generator)[:64]
        mine = chosen[share_of(len(chosen), comm.rank, comm.size)]
        images = DATA.train.images[mine] * (1e6 if (step, comm.rank) == (4, 2) else 1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(images), DATA.train.labels[mine])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(round(scaler.get_scale()))
    return scales, torch.cat([p.detach().flatten() for p in model.parameters()])


ranks = run(scaled, 4).results
print(*(f"rank {rank}: {scales}" for rank, (scales, _) in enumerate(ranks)), sep="\n")

# %% tags=["checked"]
# checked: all ranks have the same parameters, and all of these are finite
assert all(torch.equal(model, ranks[0][1]) and model.isfinite().all() for _, model in ranks)

# %% [markdown]
# <details><summary>Why</summary>
#
# Only rank 2 had an infinity, but all ranks skipped the step and halved their scale. Then they all doubled it after
# three good steps.
#
# </details>
#
# To clip gradients as well, keep this order: `optimizer.mean_gradients()`, `scaler.unscale_(optimizer)`,
# `clip_grad_norm_`, `scaler.step(optimizer)`. PyTorch's `DistributedDataParallel` averages within `backward()`, so its
# ranks also look at the mean, and the first call is not needed. FSDP has a `ShardedGradScaler` of its own, because
# each of its ranks sees only a part of the gradients.
