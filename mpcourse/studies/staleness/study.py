"""What the trainings of lesson 07 vary. `lessons/studies/staleness.py` made them."""

from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Synchronous
from mpcourse.studies.staleness.training import Way, now_and_then, one_slow

WORKERS, SEEDS = 8, 40
RATE = 0.1  # for an update of one gradient; the mean of eight allows eight times as much
WAYS = {
    "synchronous": Way(8 * RATE, Synchronous()),
    "1 backup worker": Way(8 * RATE, Synchronous(backup=1)),
    "asynchronous": Way(RATE, Asynchronous()),
    "bounded staleness 2": Way(RATE, BoundedStaleness(2)),
    "local SGD, 4 steps": Way(8 * RATE, period=4),
}
SLOWNESS = {"one slow": one_slow, "now and then": now_and_then}

DELAYS = {"no delay": False, "double buffering": True}
DELAY_RATES = (0.2, 0.4, 0.8)

STALENESS = (0, 1, 2, 3, 5, 7, 11, 15)  # of p asynchronous workers that are alike: p - 1
RATES = (0.05, 0.1, 0.2)
STALE_SEEDS, STALE_GRADIENTS = 20, 320
