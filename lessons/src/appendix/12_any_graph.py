# %% [markdown]
# # Appendix 12: parts in any graph
#
# **How do you split a model that is not a chain?** This page belongs to lesson
# [12 All of it together](../12_all_together.ipynb). It takes about 10 minutes to read.

# %% tags=["nbval-ignore-output"]
from textwrap import fill

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.model_parallel import MultiNodeChainList, allgather, allreduce, bcast
from mpcourse.virtual import Deadlock, run

INPUT = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 2, 1, 1, 0])


# %% [markdown]
# ChainerMN, the library for data parallelism of lesson 06, could also split a model over ranks in any graph. An encoder
# may be on one rank and a decoder on another, or branches may meet again. Its successor in this course is
# `mpcourse.model_parallel`.
#
# ## Messages and collectives with a backward
#
# The ranks compute different losses, and training minimises their sum. The backward of each operation follows from one
# question: in whose loss is my x?
#
# | forward | backward | because |
# |---|---|---|
# | `send` | receive the gradient | my x is in the other rank's loss |
# | `recv` | send the gradient | the other rank's x is in my loss |
# | `bcast` | reduce: the sum goes to the root | the root's x is in all losses |
# | `allreduce` | all-reduce | each x is in each sum |
# | `allgather` | reduce-scatter | each x is in all losses |
# | `all_to_all` | all-to-all | each part goes back to where it came from |
#
# In the next cell three ranks call a collective on x = 1, and the loss of rank r is r + 1 times the sum of the result.

# %%
def gradient_of(f):
    def program(comm):
        x = torch.ones(1, requires_grad=True)
        ((comm.rank + 1) * f(comm, x)).sum().backward()
        return None if x.grad is None else x.grad.item()

    return run(program, 3).results


print("allreduce:", gradient_of(allreduce))
print("allgather:", gradient_of(lambda comm, x: torch.cat(list(allgather(comm, x)))))
print("bcast:    ", gradient_of(lambda comm, x: bcast(comm, x)))


# %% [markdown]
# The three losses have the weights 1, 2 and 3, and the gradients are sums of them. With `bcast` only the root's x is in
# the losses.
#
# ## MultiNodeChainList
#
# Each rank adds its own parts to a `MultiNodeChainList`. For each part it says where the input comes from and where the
# output goes. The next cell splits an MLP, with its first and its last part on rank 0 and the part between them on rank
# 1.

# %%
def parts():
    torch.manual_seed(0)
    return nn.Linear(4, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 8)), nn.Sequential(nn.Tanh(), nn.Linear(8, 3))


def chained(comm, right_order=True):
    first, second, third = parts()
    model = MultiNodeChainList(comm)
    if comm.rank == 0:
        links = [(first, None, 1), (third, 1, None)]  # a part, where its input comes from, where its output goes
        for part, rank_in, rank_out in links if right_order else links[::-1]:
            model.add_link(part, rank_in, rank_out)
        F.cross_entropy(model(INPUT), LABELS).backward()
    else:
        model.add_link(second, rank_in=0, rank_out=0)
        delegate = model()
        delegate.backward()
    return [p.grad for p in model.parameters()]


chain = run(chained, 2)
one, two, three = parts()
F.cross_entropy(three(two(one(INPUT))), LABELS).backward()
whole = [p.grad for part in (one, three, two) for p in part.parameters()]
equal = all(torch.equal(a, b) for a, b in zip(chain.results[0] + chain.results[1], whole))
print(f"{len(whole)} gradients on two ranks, equal to those of one process: {equal}")

# %% tags=["checked"]
# checked: all gradients are equal, bit for bit
assert equal and len(whole) == len(chain.results[0] + chain.results[1]) == 6

# %% [markdown]
# Rank 1 has no loss. There `model()` returns a delegate: the number 0, with a graph behind it. Its `backward()` waits
# for the gradient of what rank 1 has sent away.
#
# On rank 0 the graph has two pieces, which only rank 1 connects. Autograd would not see that they belong together. A
# *pseudo-connection* keeps them together: the delegate of the first piece goes into the second piece, and changes
# nothing there.
#
# What happens if rank 0 adds its parts in the wrong order?

# %%
try:
    run(lambda comm: chained(comm, right_order=False), 2)
except Deadlock as deadlock:
    for line in str(deadlock).splitlines():
        print(fill(line, 100))

# %% [markdown]
# Rank 0 now waits for the output of rank 1 before it has sent anything, and rank 1 waits for rank 0.
#
# `mpcourse/course/examples/model_parallel.py` has ChainerMN's three examples: this MLP, an encoder with its decoder,
# and a convolution whose channels are spread over ranks. This command starts them:
# `mpirun -np 2 python -m mpi4py -m mpcourse.course.examples.model_parallel`.
