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
        # solution: fill buckets from the last parameter to the first, and register a hook for each of them
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

        Then p.grad is the mean over all ranks, with the same bits on all of them, for each parameter of each bucket. On
        a rank where backward did not reach p its gradient counts as zeros.
        """
        # solution: begin what is left; for each bucket wait, divide, and put the parts into p.grad
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
        """The hook: backward has computed p.grad."""
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
