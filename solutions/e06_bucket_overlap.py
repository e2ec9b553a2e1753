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
        # solution: fill buckets from the last parameter to the first, and register a hook for each parameter
        self.comm = comm
        self.buckets, nbytes = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or nbytes + size > bucket_bytes:
                self.buckets.append([])
                nbytes = 0
            self.buckets[-1].append(p)
            nbytes += size
        self.bucket_of = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
        self._begin_step()
        # end of solution

    def wait(self):
        """Complete all buckets. Every rank calls this after backward.

        Then, for each parameter p in a bucket, p.grad is the mean over all ranks, with the same bits on all of them. On
        a rank where backward did not reach p, the gradient of p counts as zeros.
        """
        # solution: begin the remaining buckets; for each bucket wait, divide, and put the parts into p.grad
        while self.begun < len(self.buckets):
            self._begin_next()
        for bucket, row, request in zip(self.buckets, self.rows, self.requests):
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self._begin_step()

    def _begin_step(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.arrived = set()
        self.begun, self.rows, self.requests = 0, [], []

    def _ready(self, p):
        """Count p, whose gradient backward has computed, and begin the buckets that are ready."""
        self.arrived.add(p)
        self.missing[self.bucket_of[p]] -= 1
        while self.begun < len(self.buckets) and self.missing[self.begun] == 0:
            self._begin_next()

    def _begin_next(self):
        bucket = self.buckets[self.begun]
        parts = [p.grad.flatten() if p in self.arrived else torch.zeros_like(p).flatten() for p in bucket]
        row = torch.cat(parts)
        self.rows.append(row)
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
        self.begun += 1
        # end of solution
