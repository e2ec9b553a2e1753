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
        raise NotImplementedError("e06_multi_node_optimizer: keep optimizer and comm for later; give all ranks the parameters of rank 0, in place")

    @property
    def param_groups(self):
        """The wrapped optimizer's own groups: a learning rate that is set in them applies to the next step."""
        raise NotImplementedError("e06_multi_node_optimizer: return the list itself, not a copy")

    def zero_grad(self):
        """Call the wrapped optimizer's zero_grad: then no parameter has a gradient. A single rank may call this."""
        raise NotImplementedError("e06_multi_node_optimizer: call the wrapped optimizer's zero_grad")

    def step(self):
        """Average gradients over all ranks, then let the wrapped optimizer take one step. Every rank calls it.

        Where a gradient is None on only some ranks, it counts as zeros there. Where it is None on all, it stays None.
        """
        raise NotImplementedError("e06_multi_node_optimizer: find which parameters have a gradient on any rank, average these gradients, step")
