"""ZeRO by hand: data-parallel ranks share optimizer state, gradients and parameters (Rajbhandari 2020).

Read `sharding.py` and `optimizer.py` first (stage 1), then `gradients.py` (stage 2) and `parameters.py` (stage 3);
`overlap.py` has stages 2 and 3 with messages that are in flight while a rank computes.

    import torch
    from mpcourse.virtual import run
    from mpcourse.zero import ShardedOptimizer

    def program(comm):  # under mpirun the same works with mpi4py's MPI.COMM_WORLD
        model = torch.nn.Linear(4, 1)
        optimizer = ShardedOptimizer(torch.optim.Adam, model, comm)  # each rank has its share of Adam's state
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        return model.weight.sum().item()

    print(run(program, 2).results)  # the same on both ranks
"""

from mpcourse.zero.alone import AloneComm
from mpcourse.zero.checkpoint import ShardedCheckpointer
from mpcourse.zero.gradients import ShardedGradients
from mpcourse.zero.nodes import within_nodes
from mpcourse.zero.optimizer import ShardedOptimizer
from mpcourse.zero.overlap import OverlappedGradients, PrefetchedParameters
from mpcourse.zero.parameters import ShardedParameters
from mpcourse.zero.sharding import Owned, Unit

__all__ = [
    "AloneComm",
    "OverlappedGradients",
    "Owned",
    "PrefetchedParameters",
    "ShardedCheckpointer",
    "ShardedGradients",
    "ShardedOptimizer",
    "ShardedParameters",
    "Unit",
    "within_nodes",
]
