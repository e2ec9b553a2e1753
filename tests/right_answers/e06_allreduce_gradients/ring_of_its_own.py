# right: a sum of its own, passed round the ranks; rank 0 begins.
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    p, rank = comm.size, comm.rank
    for q in model.parameters():
        if not q.requires_grad or not any(comm.allgather(q.grad is not None)):
            continue
        total = (torch.zeros_like(q) if q.grad is None else q.grad).contiguous().numpy().astype("d")
        if p > 1:
            if rank:
                before = np.empty_like(total)
                comm.Recv(before, rank - 1)
                total = np.asarray(before + total)
            if rank < p - 1:
                comm.Send(total, rank + 1)
            comm.Bcast(total, root=p - 1)
        q.grad = torch.tensor(total / p).to(q.dtype)
