"""Exercise e06: every gradient becomes its mean over all ranks.

This is data parallelism in one function. Every rank has a replica of the model, and has run backward on its own
examples. If all batches are equally long, the mean of the ranks' gradients is the gradient of the mean loss over all
their examples. So each rank replaces its gradients by their mean, and then all ranks take the same step.

Parameters may differ from each other. Some are frozen. Some had no part in a rank's loss, so their .grad is None on
this rank. Some are single numbers, and some are not contiguous in memory. Some are float32, and others are float64. All
ranks have them in the same order.

You need not write a ring again: comm.Allreduce and all other collective calls are allowed.

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

    comm: an mpi4py communicator. Every rank calls this function, also if there is only one.
    model: a torch.nn.Module after backward, with the same parameters on all ranks, float32 or float64, on the CPU.
    Afterwards p.grad is the sum of all ranks' p.grad, divided by the number of ranks. It has the shape and dtype of p,
    and the same bits on all ranks. Where p.grad is None on some ranks only, it counts as zeros there, and becomes the
    mean, too. Where it is None on all ranks, it stays None, for example in frozen parameters (requires_grad is False).
    Parameters and buffers keep their values.
    Returns nothing.
    """
    # solution: find which parameters have a gradient on any rank; sum these, with zeros where one is missing; divide
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)  # so all ranks make the same sums in the same order
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.contiguous()  # a copy if it was not contiguous
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row / comm.size
    # end of solution
