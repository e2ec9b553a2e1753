# %% [markdown]
# # Appendix 06: buckets on this machine
#
# **What does overlap gain between two processes of one machine, and which copies can be avoided?** This page belongs to
# lesson [06 Data parallelism](../06_data_parallel.ipynb). It takes about 10 minutes to read.

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from pathlib import Path

from mpcourse import plot
from mpcourse.virtual import Event, run

# %% [markdown]
# Two real processes have one thread each. Rank 0 records when each gradient has been computed, when the all-reduce of a
# bucket begins, and when the rank sees that it is complete. Three communicators take turns, with 12 steps each.

# %% tags=["nbval-ignore-output"]
Path("../scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile ../scratch/overlap.py
import json
import sys
from pathlib import Path

import torch
from mpi4py import MPI

from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.models import mlp

torch.set_num_threads(1)
torch.manual_seed(0)
comm = MPI.COMM_WORLD
NAMES = ("naive", "flat", "bucketed")
programs, steps = {}, {name: [] for name in NAMES}
arrived = []  # when each gradient of the present step had been computed
for name in NAMES:
    model, x = mlp((784, 1000, 1000, 1000, 1000, 10)), torch.randn(100, 784)
    communicator = create_communicator(name, **({"bucket_bytes": 1 << 20} if name == "bucketed" else {}))
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: arrived.append(MPI.Wtime()))
    programs[name] = model, x, communicator, MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.01), communicator)
for _ in range(14):  # in turns, so that other work of the machine slows down all three
    for name, (model, x, communicator, optimizer) in programs.items():
        arrived.clear()
        comm.Barrier()
        begin = MPI.Wtime()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        forward = MPI.Wtime()
        loss.backward()
        backward = MPI.Wtime()
        optimizer.mean_gradients()
        mean = MPI.Wtime()
        optimizer.step()
        end = MPI.Wtime()
        sums = [bucket.span for bucket in getattr(communicator, "buckets", [])]
        steps[name].append([begin, forward, backward, mean, end, list(arrived), sums])
if comm.rank == 0:
    Path(sys.argv[1]).write_text(json.dumps({name: done[2:] for name, done in steps.items()}))  # two to warm up

# %% [markdown]
# The output shows the median of the steps and, in brackets, the quartiles.

# %% tags=["nbval-ignore-output"]
import json

Path("../scratch/overlap.json").unlink(missing_ok=True)
# !mpirun -np 2 python ../scratch/overlap.py ../scratch/overlap.json
measured = {}
for name, done in json.loads(Path("../scratch/overlap.json").read_text()).items():
    done.sort(key=lambda step: step[4] - step[0])
    low, median, high = (1e3 * (step[4] - step[0]) for step in (done[3], done[6], done[9]))  # of 12: quartiles
    _, _, backward, mean, *_ = measured[name] = done[6]
    after = 1e3 * (mean - backward)
    print(f"{name:9} {median:5.1f} ms a step ({low:.1f} to {high:.1f}); averaged {after:4.1f} ms after backward")


# %% tags=["nbval-ignore-output"]
def events_of(name):
    begin, forward, backward, mean, end, arrived, sums = measured[name]
    found = [Event("rank 0", "forward", "compute", 0.0, forward - begin, 0.0, phase="forward")]
    for a, b in zip([forward, *arrived], [*arrived, backward]):
        found.append(Event("rank 0", "", "compute", a - begin, b - begin, a - begin, phase="backward"))
    found.append(Event("rank 0", "rest", "wait", backward - begin, mean - begin, backward - begin))
    found.append(Event("rank 0", "step", "compute", mean - begin, end - begin, mean - begin, phase="optimizer"))
    for i, (a, b) in enumerate(sums):
        found.append(Event(f"bucket {i} of rank 0", "all-reduce", "copy", a - begin, b - begin, a - begin))
    return found


events = events_of("bucketed")
plot.timeline(events, "Measured: a step with buckets", lanes=list(dict.fromkeys(e.lane for e in events)))
None

# %% tags=["checked"]
# checked: there are several buckets, and each all-reduce begins before the backward pass ends
_, _, backward, _, _, _, sums = measured["bucketed"]
assert len(sums) > 2 and all(begun < backward for begun, _ in sums)

# %% [markdown]
# White lines in the backward pass show when gradients had been computed. A hatched bar is the all-reduce of a bucket.
# It begins when the last gradient of the bucket has been computed. There is no network card that moves the data
# meanwhile. The buckets lie in memory that both processes share, and a rank copies and adds between two gradients. This
# work is within the bars of the backward pass, and a hatched bar ends when the rank next looks. The thin line ends when
# all gradients are averaged. Overlap saves waiting here, but it does not save work.
#
# ## Fused gradients
#
# Copies, in contrast, can be avoided. Autograd writes each gradient into new memory, and the gradient is then copied
# into its bucket. But the gradient of a linear layer's weight is a product of two matrices, whose result can be written
# anywhere. `fuse_weight_gradients(model)` makes large linear layers write it into the bucket.

# %%
import torch

from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator, fuse_weight_gradients
from mpcourse.models import mlp


def copied(fused):
    """Return the bytes of gradients that a rank copies into its buckets in each step, and the gradients."""

    def rank(comm):
        torch.manual_seed(0)
        model = mlp((784, 1000, 1000, 10))
        if fused:
            fuse_weight_gradients(model)
        communicator = create_communicator("bucketed", comm)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.2), communicator)
        with optimizer.no_sync():  # no all-reduce yet
            model(torch.ones(100, 784)).square().mean().backward()
        places = {place.data_ptr() for bucket in communicator.buckets for place in bucket.views.values()}
        gradients = [p.grad.clone() for p in model.parameters()]
        return sum(p.grad.nbytes for p in model.parameters() if p.grad.data_ptr() not in places), gradients

    return run(rank, 4).results[0]


(all_bytes, plain), (few_bytes, placed) = copied(False), copied(True)
print(f"copied in each step: {all_bytes / 1e6:.2f} MB; with fuse_weight_gradients {few_bytes / 1e6:.2f} MB")
print("the gradients have the same bits:", all(map(torch.equal, plain, placed)))

# %% [markdown]
# Only biases and a small last layer are still copied, and no gradient has changed. In return, do not read such a
# gradient between the backward pass and the optimizer step, because it may be partly summed. Megatron-LM calls this
# gradient accumulation fusion.
#
# `mpcourse bench data-parallel --np 2` compares the library with PyTorch's `DistributedDataParallel`. It trains an MLP,
# a small convolutional network and a small transformer with both, step by step in one run, and compares the parameters.
# Two processes that do not communicate run beside them. Their speed is the upper limit.
