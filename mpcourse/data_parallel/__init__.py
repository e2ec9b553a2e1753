"""Data parallelism by hand: every rank has the whole model and a share of each batch, as in ChainerMN.

Read `communicator.py` and `optimizer.py` first, and `loss_scaling.py` for float16. `checked/` reports where ranks
disagree, `overlap/` averages gradients while others are still being computed, and `resilience/` is for machines that
fail or are slow.

    import torch
    from mpcourse.data_parallel import create_communicator, create_multi_node_optimizer
    from mpcourse.virtual import run

    def program(comm):  # under mpirun the same works with mpi4py's MPI.COMM_WORLD
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = create_multi_node_optimizer(optimizer, create_communicator("flat", comm), model=model)
        model(torch.randn(8, 4)).square().mean().backward()  # each rank has a batch of its own
        optimizer.step()  # by the mean of all ranks' gradients
        return model.weight.sum().item()

    print(run(program, 2).results)  # the same on both ranks
"""

from mpcourse.data_parallel.batch_norm import SyncBatchNorm, convert_batch_norm
from mpcourse.data_parallel.checkpoint import Checkpointer
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.compression import PowerSGD, Signs
from mpcourse.data_parallel.create import COMMUNICATORS, create_communicator, create_multi_node_optimizer
from mpcourse.data_parallel.dataset import ShardSampler, scatter_dataset, scatter_indices, share_of
from mpcourse.data_parallel.double_buffering import DoubleBufferedOptimizer
from mpcourse.data_parallel.evaluator import evaluate, weighted_mean
from mpcourse.data_parallel.local_sgd import LocalOptimizer
from mpcourse.data_parallel.loss_scaling import spread_not_finite
from mpcourse.data_parallel.optimizer import MultiNodeOptimizer
from mpcourse.data_parallel.overlap.gradient_fusion import FusedLinear, fuse_weight_gradients
from mpcourse.data_parallel.printing import print_once, progress

__all__ = [
    "COMMUNICATORS",
    "Checkpointer",
    "Communicator",
    "DoubleBufferedOptimizer",
    "FusedLinear",
    "LocalOptimizer",
    "MultiNodeOptimizer",
    "PowerSGD",
    "ShardSampler",
    "Signs",
    "SyncBatchNorm",
    "convert_batch_norm",
    "create_communicator",
    "create_multi_node_optimizer",
    "evaluate",
    "fuse_weight_gradients",
    "print_once",
    "progress",
    "scatter_dataset",
    "scatter_indices",
    "share_of",
    "spread_not_finite",
    "weighted_mean",
]
