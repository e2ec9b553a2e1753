"""What a long job needs where machines fail: how often it saves, where it continues, and what is slow or wrong.

from mpcourse.data_parallel.resilience import best, lost, time_between_failures

between = time_between_failures(per_1000_node_days=3.79, nodes=2048)  # Llama 3 405B: about 3 hours
interval = best(save=30, between=between)
print(f"a checkpoint every {interval / 60:.0f} minutes loses {lost(interval, 30, 300, between):.1%} of the time")
"""

from mpcourse.data_parallel.resilience.checkpoints import Checkpoints, Loaded
from mpcourse.data_parallel.resilience.corruption import differing_replicas, fingerprint, flip, replay
from mpcourse.data_parallel.resilience.interval import (
    Done,
    best,
    daly,
    failures,
    lost,
    simulate,
    time_between_failures,
    young,
)
from mpcourse.data_parallel.resilience.sampler import StepSampler
from mpcourse.data_parallel.resilience.stragglers import stragglers

__all__ = [
    "Checkpoints",
    "Done",
    "Loaded",
    "StepSampler",
    "best",
    "daly",
    "differing_replicas",
    "failures",
    "fingerprint",
    "flip",
    "lost",
    "replay",
    "simulate",
    "stragglers",
    "time_between_failures",
    "young",
]
