"""ZeRO by hand: data parallelism whose ranks share out optimizer state, gradients and parameters (Rajbhandari 2020).

Read `sharding.py` and `optimizer.py` first (stage 1), then `gradients.py` (stage 2) and `parameters.py` (stage 3);
`overlap.py` has stages 2 and 3 with messages that are under way while a rank computes.
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
