"""Exercise e06: ChainerMN's multi-node optimizer.

A program for one process becomes one for many ranks by a single change:

    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), comm)

From then on all ranks start from the same parameters, and `optimizer.step()` averages gradients over all ranks before
it updates. With batches of equal length, that is the step of one process with all ranks' examples in one batch.

Averaging is exercise e06_allreduce_gradients. Here there is no model to ask for parameters, only the optimizer: they
are in its param_groups, a list of dicts whose "params" are lists, too.

The check trains by momentum SGD and by Adam on 1, 2, 3 and 4 virtual ranks, and then under mpirun.

Check it with `mpcourse check e06_multi_node_optimizer`. Stuck? `mpcourse hint e06_multi_node_optimizer`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


class MultiNodeOptimizer:
    """`optimizer`, any of torch.optim, whose steps are those of all ranks of `comm` together."""

    def __init__(self, optimizer, comm):
        """Every rank calls this. All parameters that the optimizer holds, frozen ones too, become those of rank 0."""
        # solution: keep optimizer and comm for later; give all ranks the parameters of rank 0, in place
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))
        # end of solution

    @property
    def param_groups(self):
        """The wrapped optimizer's own groups: what is set in them, such as a learning rate, holds for the next step."""
        # solution: the list itself, not a copy
        return self.optimizer.param_groups
        # end of solution

    def zero_grad(self):
        """As the wrapped optimizer's: afterwards no parameter has a gradient. A rank may call it on its own."""
        # solution: pass it on
        self.optimizer.zero_grad()
        # end of solution

    def step(self):
        """Average gradients over all ranks, then let the wrapped optimizer take one step. Every rank calls it.

        A gradient that is None on this rank, but not on another, counts as zeros here. One that no rank has stays None.
        """
        # solution: agree on who has gradients, average those, step
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
