# %% [markdown]
# # Appendix 02: a closer look
#
# **What do Chainer's two examples compare, and how does tensor parallelism work between processes?** This page belongs
# to lesson [02 Split with copy](../02_split_with_copy.ipynb). It takes about 10 minutes to read.

# %%
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F

from mpcourse.models import mlp
from mpcourse.split import ParallelMLP
from mpcourse.virtual import GPUS, devices, virtual_gpus

# %% [markdown]
# ## What do the two examples compare?
#
# Chainer's example for one GPU trains the MLP of lesson 01, 784-1000-1000-10, with 1.8 million parameters in 3 layers.
# Its example of model parallelism trains another network, with 3.8 million parameters in 12 layers. Tadao Yamaoka
# measured both with 20 epochs (*Trying several GPUs with Chainer*, in Japanese, 2018,
# <https://tadaoyamaoka.hatenablog.com/entry/2018/02/18/124739>). The next cell runs a step of each on virtual GPUs, as
# lesson 02 assumes them.
#
# **Predict first.** Both steps are launch-bound: the host launches kernels all the time. The MLP needs 62 launches.
# How many times as long does the step of the other network take?

# %% tags=["answer"]
# answer
OF_2015 = replace(GPUS["GTX TITAN X (Maxwell)"], launch=20e-6)


def step_of(box, make):
    """Seconds of the second training step with 100 images, and its launches."""
    with torch.device("vgpu:0"):
        model = make()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    images = torch.empty(100, 784, device="vgpu:0")
    labels = torch.empty(100, dtype=torch.long, device="vgpu:0")
    for _ in range(2):
        box.reset()
        start = box.now
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        seconds = box.synchronize() - start
    return seconds, sum(e.kind == "enqueue" for e in box.events)


with virtual_gpus(2, OF_2015, "PCIe 3.0 x16", dry=True) as box:
    plain, plain_launches = step_of(box, mlp)
    split, split_launches = step_of(box, lambda: ParallelMLP(*devices(2)))
print(f"the MLP on one GPU:           {1e3 * plain:.2f} ms, {plain_launches} launches")
print(f"the divided network on two:   {1e3 * split:.2f} ms, {split_launches} launches")
published = 50.2274 / 12, 140.529 / 12  # ms a step, of 12 000 steps
print(f"Yamaoka's measurement:        {published[0]:.1f} and {published[1]:.1f} ms a step")
print(f"ours is {split / plain:.1f} times as long, Yamaoka's {published[1] / published[0]:.1f} times")

# %% tags=["checked"]
# checked: the times are in proportion to the launches; the MLP has 1 796 010 parameters
assert round(split / plain, 1) == round(split_launches / plain_launches, 1) == 4.0
assert sum(p.numel() for p in mlp().parameters()) == 1_796_010

# %% [markdown]
# <details><summary>Why</summary>
#
# The divided network needs four times as many launches, so its step takes four times as long. In Yamaoka's measurement
# it is 2.8 times as long. His steps contain more than ours: 60 000 images in batches of 100 are 600 steps an epoch,
# for which the host also collects the images, and after each epoch it tests the network. Such work takes the same time
# for both networks, and brings the ratio closer to 1. His GPUs (Titan V and GTX 1080 Ti) and Chainer's cost of a launch
# also differ from what we assume.
#
# Two runs that differ in the network and in the number of GPUs cannot show what the second GPU does.
#
# </details>
#
# ## Chainer's blocks and Megatron's pair
#
# Chainer's blocks are nearly a column-parallel and a row-parallel layer. The first layers of `first0` and `first1` form
# one layer, cut by columns. Their last layers form one layer, cut by rows, and the sum of both blocks is the
# all-reduce. Only the layer between them is not whole, because it has no weights from one half to the other. In the
# next cell this layer is block-diagonal. The divided network is therefore not a cut of the plain MLP.

# %%
torch.manual_seed(0)
halves = ParallelMLP("cpu", "cpu", n_units=100)
(a1, _, a2, _, a3), (b1, _, b2, _, b3) = halves.first0, halves.first1
x = torch.randn(20, 784)
h = F.relu(F.linear(x, torch.cat([a1.weight, b1.weight]), torch.cat([a1.bias, b1.bias])))
h = F.relu(F.linear(h, torch.block_diag(a2.weight, b2.weight), torch.cat([a2.bias, b2.bias])))
y = F.linear(h, torch.cat([a3.weight, b3.weight], dim=1), a3.bias + b3.bias)
torch.allclose(y, halves.first0(x) + halves.first1(x), atol=1e-6)

# %% [markdown]
# ## Tensor parallelism by hand
#
# The next program runs a pair of layers on several processes (ranks), as Megatron-LM does. `Shared` and `Summed` are
# the functions f and g of the paper (Mohammad Shoeybi and others, *Megatron-LM: Training Multi-Billion Parameter
# Language Models Using Model Parallelism*, 2019, <https://arxiv.org/abs/1909.08053>).
#
# - `Shared` is applied to the input. Forward it changes nothing. Backward it sums the gradients of the input over the
#   ranks, because each rank computes only the part that passes through its own hidden units.
# - `Summed` is applied to the partial results. Forward it sums them over the ranks. Backward it changes nothing: each
#   rank already has the whole gradient of the sum, and the derivative of a sum with respect to each term is 1.

# %% tags=["nbval-ignore-output"]
Path("../scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile ../scratch/tensor_parallel_by_hand.py
import torch
import torch.nn as nn
import torch.nn.functional as F
from mpi4py import MPI

comm = MPI.COMM_WORLD


def all_reduced(x):
    total = torch.empty_like(x)
    comm.Allreduce(x.contiguous().numpy(), total.numpy())
    return total


class Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return all_reduced(gradient)


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, partial):
        return all_reduced(partial)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


torch.manual_seed(0)  # the same whole layers, and the same x, on all ranks
first, second = nn.Linear(64, 256).double(), nn.Linear(256, 64).double()
x = torch.randn(8, 64, dtype=torch.float64, requires_grad=True)
whole = second(F.gelu(first(x)))
(whole**2).sum().backward()
of_x, of_weight = x.grad.clone(), first.weight.grad.clone()
x.grad = first.weight.grad = None

mine = slice(256 * comm.rank // comm.size, 256 * (comm.rank + 1) // comm.size)
hidden = F.gelu(F.linear(Shared.apply(x), first.weight[mine], first.bias[mine]))  # column parallel
out = Summed.apply(F.linear(hidden, second.weight[:, mine])) + second.bias  # row parallel; the bias once
(out**2).sum().backward()
pairs = [(out, whole), (x.grad, of_x), (first.weight.grad[mine], of_weight[mine])]
difference = comm.allreduce(max((a - b).abs().max().item() for a, b in pairs), MPI.MAX)
if comm.rank == 0:  # float64: only the order of the sums differs
    print(f"{comm.size} ranks: {'as the whole' if difference < 1e-12 else f'{difference} off'}")

# %%
# two = !mpirun -np 2 python ../scratch/tensor_parallel_by_hand.py
# three = !mpirun -np 3 python ../scratch/tensor_parallel_by_hand.py
two + three
