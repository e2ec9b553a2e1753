# %% [markdown]
# # Appendix 12: ours and PyTorch's
#
# **Do PyTorch's tools train the same model, and how long do they take?** This page belongs to lesson
# [12 All of it together](../12_all_together.ipynb). It takes about 10 minutes to read and a minute to run.

# %%
import runpy

# %% [markdown]
# ## One model, trained three times
#
# `lessons/twins/theirs.py` trains a small MLP by PyTorch's own tools, and `torchrun` starts it. `lessons/twins/ours.py`
# does the same by this course's library, and `mpirun` starts it. Both print the sum of the squares of all parameters
# after three steps. One process prints it first.

# %%
TWINS = "../../lessons/twins"
one = runpy.run_path(f"{TWINS}/model.py")["one_process"]()
WAYS = "data_parallel tensor_parallel pipeline"
total = sum(float(p.square().sum()) for p in one.values())
print(f"one process      {len(one)} parameters, sum of squares {total:.12f}")
# !torchrun --local-addr localhost --nproc-per-node 2 {TWINS}/theirs.py {WAYS} 2>/dev/null
# !mpirun -np 2 python {TWINS}/ours.py {WAYS}

# %% [markdown]
# All seven lines have the same sum. What do PyTorch's tools do beyond ours?
#
# - `torchrun` can start all workers again after one has failed (`--max-restarts`), and lets their number change.
# - `init_device_mesh` takes any number of axes, by name.
# - `DistributedDataParallel` overlaps without calls of `progress`, because NCCL runs on the GPU.
# - `parallelize_module` follows a plan for linear layers and embeddings.
# - `torch.distributed.pipelining` can trace a model and cut it at given points.
# - `torch.distributed.nn.functional`, collectives with a backward, also runs over NCCL.
# - `clip_grad_norm_` sees from the placements of each `DTensor` what is sharded.
# - `fully_shard` comes with sharded checkpoints (`torch.distributed.checkpoint`).
#
# Ours show what happens below: which rank waits for which, which bytes cross machines and when, why a schedule is
# illegal, which elements of a gradient are counted where, and what each stage of ZeRO frees.
#
# PyTorch can also simulate ranks in one process. `LocalTensorMode` (in `torch.distributed._local_tensor`, meant for
# debugging) holds the tensors of all ranks and runs one program on all of them at once. It has no clock and no links,
# and all ranks do the same. Virtual ranks run any program that calls MPI, have a clock, and name deadlocks. Each is a
# thread, so they are slower.
#
# ## The time of a step
#
# Two ranks with one core each train by ours over MPI and by PyTorch's over gloo, in turns.

# %% tags=["nbval-ignore-output"]
# !mpcourse bench twins --np 2 --runs 3

# %% [markdown]
# "torch / ours" above 1 means that ours took less time. The two send in different ways: MPI's ranks share memory, and
# gloo sends through sockets. So the numbers say nothing about GPUs, where PyTorch sends by NCCL.
