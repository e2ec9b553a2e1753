"""Data parallelism by hand: every rank has the whole model and a share of each batch, as in ChainerMN."""

from mpcourse.data_parallel.batch_norm import SyncBatchNorm, convert_batch_norm
from mpcourse.data_parallel.checkpoint import Checkpointer
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.create import COMMUNICATORS, create_communicator
from mpcourse.data_parallel.dataset import ShardSampler, scatter_dataset, scatter_indices, share_of
from mpcourse.data_parallel.evaluator import evaluate, weighted_mean
from mpcourse.data_parallel.in_place import LinearInPlace, write_in_place
from mpcourse.data_parallel.local_sgd import LocalOptimizer
from mpcourse.data_parallel.optimizer import MultiNodeOptimizer
from mpcourse.data_parallel.printing import print_once, progress

__all__ = [
    "COMMUNICATORS",
    "Checkpointer",
    "Communicator",
    "LinearInPlace",
    "LocalOptimizer",
    "MultiNodeOptimizer",
    "ShardSampler",
    "SyncBatchNorm",
    "convert_batch_norm",
    "create_communicator",
    "evaluate",
    "print_once",
    "progress",
    "scatter_dataset",
    "scatter_indices",
    "share_of",
    "weighted_mean",
    "write_in_place",
]
