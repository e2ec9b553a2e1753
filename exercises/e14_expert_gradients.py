"""Exercise e14: whose gradients are added up over which ranks.

Every rank has tokens of its own, and computes the mean loss of these. All ranks have equally many tokens. The ranks
form expert groups of equal size. A group may also be one rank alone, or all ranks. The ranks of a group share the
experts: each rank has some of them, and computes them in forward and backward for the tokens of all ranks of its group.
For example, six ranks in groups of two share four experts like this:

    rank       0      1      2      3      4      5
    group      0      0      1      1      2      2
    experts    0, 1   2, 3   0, 1   2, 3   0, 1   2, 3

So there are two kinds of parameters. Dense parameters, such as those of attention and of the router, are the same on
all ranks. The parameters of experts differ within a group. The same experts are on one rank of each group, and these
ranks are called replicas. In the example, ranks 0, 2 and 4 are replicas, and so are ranks 1, 3 and 5.

Each rank has run forward and backward. The gradient of a dense parameter is that of the rank's own mean loss. The
gradient of an expert contains what came from the tokens of all ranks of the group: it is the sum of the gradients of
their mean losses. After your function, all ranks take the same step as one process that has the tokens of all ranks,
and computes the mean loss of these.

The check runs this on 1, 2, 3, 4 and 6 virtual ranks in groups of different sizes, and then under mpirun.

Check it with `mpcourse check e14_expert_gradients`. Stuck? `mpcourse hint e14_expert_gradients`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


def average_gradients(world, replicas, dense, experts):
    """Replace each gradient by the gradient of the mean loss of all ranks' tokens.

    world: an mpi4py communicator of all ranks. They all call this function after backward.
    replicas: a communicator of the ranks that have the same experts as this rank. It may have this rank alone.
    dense: a list of the dense parameters, the same on all ranks.
    experts: a list of the parameters of this rank's experts, the same on all replicas.
    Neither list is empty. Parameters are float64, and their gradients may be not contiguous, on all ranks or on some. A
    .grad may be None, for example if no token of the group went to an expert. It counts as zeros, because another rank
    may have a gradient of the same parameter. If the .grad is None on all ranks that have the parameter, it may stay
    None or become zeros. Call comm.Allreduce at most once for all dense parameters together, and at most once for all
    experts together. Send each gradient once, and nothing else. p.grad may be overwritten or replaced. Parameters keep
    their values, and the lists stay as they are. Returns nothing.
    """
    raise NotImplementedError("e14_expert_gradients: replace the gradients of dense parameters and of experts")
