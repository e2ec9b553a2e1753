"""Exercise e06: gradients become their mean over all ranks while backward still runs.

Backward computes the gradient of the last layer first. The all-reduce of this gradient can run while backward computes
the gradients of the layers before. The two overlap, and a step is shorter. An all-reduce for each parameter would take
too long, because each has its latency. So parameters are put into buckets of a given size, as torch's
DistributedDataParallel does it.

Ranks may compute their gradients in different orders, and a parameter may have no part in a rank's loss. But all ranks
of a communicator must make the same collective calls in the same order. So the order of the buckets is fixed when they
are made, and a bucket's all-reduce begins when its gradients are ready and all buckets before it have begun.

The check runs this on 1, 2, 3 and 4 virtual ranks, whose clock measures the time of a step, and then under mpirun. It
looks at the gradients, at the time of a step, and at the collective calls, one for each bucket.

Check it with `mpcourse check e06_bucket_overlap`. Stuck? `mpcourse hint e06_bucket_overlap`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


class BucketedMean:
    """The mean of a model's gradients over ranks, by one comm.Iallreduce for each bucket, begun during backward.

    Every rank makes one object for its replica, before the first backward. Then, in each step, every rank calls
    loss.backward() once, wait(), its optimizer's step, and zero_grad(), which sets every p.grad to None.
    A process that trains several models makes one object for each. These objects must not disturb each other.
    """

    def __init__(self, comm, model, bucket_bytes):
        """Make buckets, and register a hook for each parameter: p.register_post_accumulate_grad_hook(function).

        comm: an mpi4py communicator. model: a torch.nn.Module on the CPU, the same on all ranks, all of one dtype,
        float32 or float64. Parameters with requires_grad=False belong to no bucket and keep their .grad.
        bucket_bytes: the most bytes in a bucket. Going through model.parameters() from the last to the first, a bucket
        takes the next parameter if it fits. A parameter larger than bucket_bytes has a bucket of its own.
        """
        raise NotImplementedError("e06_bucket_overlap: fill buckets from the last parameter to the first, and register a hook for each parameter")

    def wait(self):
        """Complete all buckets. Every rank calls this after backward.

        Then, for each parameter p in a bucket, p.grad is the mean over all ranks, with the same bits on all of them. On
        a rank where backward did not reach p, the gradient of p counts as zeros.
        """
        raise NotImplementedError("e06_bucket_overlap: begin the remaining buckets; for each bucket wait, divide, and put the parts into p.grad")
