"""Exercise e06: gradients become their mean over all ranks while backward still runs.

The gradient of the last layer is computed first. Its all-reduce can run while backward computes those of the layers
before: the two overlap, and a step is shorter. An all-reduce for each parameter would be too many, for each has its
latency. So parameters are put into buckets of a given size, as torch's DistributedDataParallel does it.

Ranks need not compute their gradients in the same order, and a parameter may have had no part in the loss of a rank.
But all ranks of a communicator make the same collective calls in the same order. So the order of buckets is fixed when
they are made, and a bucket begins when it is ready and all buckets before it have begun.

The check runs this on 1, 2, 3 and 4 virtual ranks, whose clock says how long a step takes, and then under mpirun. It
looks at the gradients, at the collective calls, which are one for each bucket, and at the time of a step.

Check it with `mpcourse check e06_bucket_overlap`. Stuck? `mpcourse hint e06_bucket_overlap`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


class BucketedMean:
    """The mean over ranks of a model's gradients, one comm.Iallreduce a bucket, begun during backward.

    Every rank makes one for its replica, before the first backward. Then, in each step, every rank calls
    loss.backward() once, wait(), its optimizer's step, and zero_grad(), which sets every p.grad to None.
    A process that trains several models makes one for each: what one of them keeps does not disturb the others.
    """

    def __init__(self, comm, model, bucket_bytes):
        """Make buckets, and register a hook for each parameter: p.register_post_accumulate_grad_hook(function).

        comm: an mpi4py communicator. model: a torch.nn.Module, the same on all ranks, on the CPU, all of one dtype,
        float32 or float64. Parameters with requires_grad=False belong to no bucket, and keep .grad as it is.
        bucket_bytes: a bucket takes the next parameter, from the last of model.parameters() to the first, if with it
        it has no more bytes than this; a parameter that is larger than that is a bucket of its own.
        """
        raise NotImplementedError("e06_bucket_overlap: fill buckets from the last parameter to the first, and register a hook for each of them")

    def wait(self):
        """Complete all buckets. Every rank calls this after backward.

        Then p.grad is the mean over all ranks, with the same bits on all of them, for each parameter of each bucket. On
        a rank where backward did not reach p its gradient counts as zeros.
        """
        raise NotImplementedError("e06_bucket_overlap: begin what is left; for each bucket wait, divide, and put the parts into p.grad")
