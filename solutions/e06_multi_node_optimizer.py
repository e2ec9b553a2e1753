"""Exercise e06: ChainerMN's multi-node optimizer.

A single change turns a program for one process into a program for many ranks:

    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), comm)

Then all ranks start with the same parameters, and `optimizer.step()` averages gradients over all ranks before it
updates the parameters. If all batches are equally long, this is the step of one process with all ranks' examples in one
batch.

You averaged gradients in exercise e06_allreduce_gradients. Here you have the optimizer and no model. The parameters are
in the optimizer's param_groups, a list of dicts. In each dict, "params" is a list of parameters.

The check trains with momentum SGD and with Adam on 1, 2, 3 and 4 virtual ranks, and then under mpirun.

Check it with `mpcourse check e06_multi_node_optimizer`. Stuck? `mpcourse hint e06_multi_node_optimizer`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


class MultiNodeOptimizer:
    """Any optimizer of torch.optim, with steps that use the gradients of all ranks of `comm`."""

    def __init__(self, optimizer, comm):
        """Give all parameters of `optimizer`, also frozen ones, the values of rank 0. Every rank calls this."""
        # solution: keep optimizer and comm for later; give all ranks the parameters of rank 0, in place
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))
        # end of solution

    @property
    def param_groups(self):
        """The wrapped optimizer's own groups: a learning rate that is set in them applies to the next step."""
        # solution: return the list itself, not a copy
        return self.optimizer.param_groups
        # end of solution

    def zero_grad(self):
        """Call the wrapped optimizer's zero_grad: then no parameter has a gradient. A single rank may call this."""
        # solution: call the wrapped optimizer's zero_grad
        self.optimizer.zero_grad()
        # end of solution

    def step(self):
        """Average gradients over all ranks, then let the wrapped optimizer take one step. Every rank calls it.

        Where a gradient is None on only some ranks, it counts as zeros there. Where it is None on all, it stays None.
        """
        # solution: find which parameters have a gradient on any rank, average these gradients, step
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad
                row = row.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()
        # end of solution
