"""Parameter servers: some ranks hold the model, the others bring them gradients, in step or each at its own pace."""

from mpcourse.data_parallel.servers.policies import Asynchronous, BoundedStaleness, Policy, Synchronous
from mpcourse.data_parallel.servers.record import Push, Served
from mpcourse.data_parallel.servers.shards import Shards
from mpcourse.data_parallel.servers.train import train_with_servers

__all__ = [
    "Asynchronous",
    "BoundedStaleness",
    "Policy",
    "Push",
    "Served",
    "Shards",
    "Synchronous",
    "train_with_servers",
]
