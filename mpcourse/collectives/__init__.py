"""Collective calls by hand: `f(comm, x)` works on x in place, on real ranks and on virtual ones.

All ranks of `comm` call the same function with arrays (or CPU tensors) of one length and dtype. Each file holds one
algorithm, its source, and a formula for what it sends. What makes the algorithms fast is in `fast/`.

    import numpy as np
    from mpcourse.collectives import ring_allreduce
    from mpcourse.virtual import run

    def program(comm):  # under mpirun the same works with mpi4py's MPI.COMM_WORLD
        x = np.full(1000, float(comm.rank))
        ring_allreduce(comm, x)
        return x[0]

    print(run(program, 4).results)  # [6.0, 6.0, 6.0, 6.0]
"""

from mpcourse.collectives.choose import allreduce
from mpcourse.collectives.cost import Cost
from mpcourse.collectives.doubling import recursive_doubling_allreduce
from mpcourse.collectives.fitting import fit
from mpcourse.collectives.hierarchical import hierarchical_allreduce
from mpcourse.collectives.naive import naive_allreduce
from mpcourse.collectives.rabenseifner import rabenseifner_allreduce
from mpcourse.collectives.ring import ring_allgather, ring_allreduce, ring_reduce_scatter
from mpcourse.collectives.rounds import rounds
from mpcourse.collectives.tree import barrier, broadcast, reduce, tree_allreduce

ALGORITHMS = {
    "naive": naive_allreduce,
    "tree": tree_allreduce,
    "ring": ring_allreduce,
    "doubling": recursive_doubling_allreduce,
    "rabenseifner": rabenseifner_allreduce,
}

__all__ = [
    "ALGORITHMS",
    "Cost",
    "allreduce",
    "barrier",
    "broadcast",
    "fit",
    "hierarchical_allreduce",
    "naive_allreduce",
    "rabenseifner_allreduce",
    "recursive_doubling_allreduce",
    "reduce",
    "ring_allgather",
    "ring_allreduce",
    "ring_reduce_scatter",
    "rounds",
    "tree_allreduce",
]
