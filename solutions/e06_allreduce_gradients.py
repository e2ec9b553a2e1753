"""Exercise e06: every gradient becomes its mean over all ranks.

Data parallelism in one function. Every rank holds a copy of the model, and has run backward on examples of its own. If
all batches are equally long, the mean of the ranks' gradients is the gradient of all their examples together. So each
rank exchanges its gradients for their mean, and all of them then take the same step.

A model's parameters are not all alike. Some are frozen. Some had no part in a rank's loss, so that their .grad is None
there. Some are single numbers, or lie in memory in another order than their shape says; some are float32, others
float64. On all ranks they come in the same order.

The ring is behind us: comm.Allreduce and all other collective calls are allowed.

The check runs this on 1, 2, 3 and 4 virtual ranks, and then under mpirun.

Check it with `mpcourse check e06_allreduce_gradients`. Stuck? `mpcourse hint e06_allreduce_gradients`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    """Replace the gradient of every parameter by its mean over all ranks.

    comm: an mpi4py communicator. Every rank calls this function, also the only rank of one.
    model: a torch.nn.Module after backward, with the same parameters on all ranks, float32 or float64, on the CPU.
    Afterwards p.grad is the sum of all ranks' p.grad, divided by the number of ranks, with the same bits on all of
    them, in the shape and dtype of p. Where p.grad is None on this rank and not on another, it counts as zeros, and
    becomes the mean here, too. Where it is None on all ranks it stays None: of frozen parameters (requires_grad is
    False), for example. Parameters and buffers keep their values.
    Returns nothing.
    """
    # solution: agree on which parameters have a gradient anywhere; sum those, zeros where there is none; divide
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)  # so all ranks make the same sums in the same order
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.contiguous()  # a copy where it was not
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row / comm.size
    # end of solution
