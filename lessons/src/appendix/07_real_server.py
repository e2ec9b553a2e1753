# %% [markdown]
# # Appendix 07: a real server
#
# **What do a real server and real workers do?** This page belongs to lesson [07 Synchronous or
# asynchronous](../07_sync_async.ipynb). It takes about 5 minutes to read. Its second program does what exercise
# `e07_parameter_server` asks for, so solve the exercise first.

# %% tags=["nbval-ignore-output"]
import re
from pathlib import Path

Path("../scratch").mkdir(exist_ok=True)

# %% [markdown]
# ## The course's server under mpirun
#
# Three processes are one server and two workers. In each step rank 1 sleeps for 20 ms, and rank 2 for 5 ms.

# %% tags=["nbval-ignore-output"]
# %%writefile ../scratch/servers.py
import time
from collections import Counter

import torch
import torch.nn.functional as F
from mpi4py import MPI

from mpcourse.data import digits
from mpcourse.data_parallel.servers import Asynchronous, Synchronous, train_with_servers
from mpcourse.models import mlp

torch.set_num_threads(1)
comm, data = MPI.COMM_WORLD, digits()
for policy, updates in ((Synchronous(), 40), (Asynchronous(), 80)):
    torch.manual_seed(0)
    model = mlp((64, 32, 10))
    generator = torch.Generator().manual_seed(comm.rank)

    def backward(step, model=model, generator=generator):
        chosen = torch.randint(len(data.train), (16,), generator=generator)
        loss = F.cross_entropy(model(data.train.images[chosen]), data.train.labels[chosen])
        loss.backward()
        time.sleep(0.02 if comm.rank == 1 else 0.005)
        return loss.item()

    served = train_with_servers(comm, model, lambda p: torch.optim.SGD(p, 0.05), backward, updates, policy)
    if comm.rank == 0:
        used = [push for push in served.pushes[0] if push.applied]
        by = Counter(push.worker for push in used)
        print(f"{policy}: {used[-1].seconds:.2f} s for {len(used)} gradients, by worker {dict(sorted(by.items()))}, "
              f"staleness {sum(served.staleness()) / len(used):.1f} on average")

# %% tags=["nbval-ignore-output"]
# said = !mpirun -np 3 python ../scratch/servers.py
print(*said, sep="\n")

# %% tags=["checked"]
# checked: a synchronous server uses 40 gradients of each worker, and an asynchronous one fewer of the slow worker's
synchronous, asynchronous = ([int(n) for n in re.findall(r"[12]: (\d+)", line)] for line in said)
assert synchronous == [40, 40] and sum(asynchronous) == 80 and asynchronous[1] > asynchronous[0]

# %% [markdown]
# ## A server in PyTorch
#
# `dist.recv` without a source receives from the rank that sends first, and returns this rank's number. Only gloo can
# do so; with NCCL a receive names its source. The ranks exchange the weights as one vector. Each worker makes 20
# steps, and the server prints which workers sent the first 20 gradients.

# %% tags=["nbval-ignore-output"]
# %%writefile ../scratch/torch_server.py
from collections import Counter
from time import sleep

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from mpcourse.data import digits
from mpcourse.models import mlp

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # all ranks begin with the same weights
model, data = mlp((64, 32, 10)), digits().train
weights = parameters_to_vector(model.parameters()).detach()
gradient, order = torch.empty_like(weights), []
generator = torch.Generator().manual_seed(rank)
for _ in range(20 * (size - 1) if rank == 0 else 20):
    if rank == 0:
        order.append(dist.recv(gradient))  # from the rank that sends first
        weights -= 0.05 * gradient
        dist.send(weights, dst=order[-1])
    else:
        vector_to_parameters(weights, model.parameters())
        model.zero_grad()
        chosen = torch.randint(len(data), (16,), generator=generator)
        cross_entropy(model(data.images[chosen]), data.labels[chosen]).backward()
        sleep(0.02 if rank == 1 else 0.005)
        dist.send(parameters_to_vector([p.grad for p in model.parameters()]), dst=0)
        dist.recv(weights, src=0)
if rank == 0:
    print(len(order), dict(Counter(order[:20])))
dist.destroy_process_group()

# %% tags=["nbval-ignore-output"]
# said = !torchrun --local-addr localhost --nproc-per-node 3 ../scratch/torch_server.py 2> ../scratch/torchrun.log
print(*said)

# %% tags=["checked"]
# checked: the server has used all 40 gradients
assert said[0].startswith("40 {")

# %% [markdown]
# The order of arrival may change from run to run, and so may the results. Two asynchronous trainings on real processes
# are not sure to be equal, and an error may not come again. On virtual ranks the order depends on virtual time only,
# so two runs are equal.
