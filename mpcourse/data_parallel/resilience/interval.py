"""How often a job saves a checkpoint, if its machines fail at random: closed forms, and a simulation.

Failures come independently of each other, `between` seconds apart on average, so the time to the next one is
exponentially distributed. After a failure, the job restarts, which takes `restart` seconds, and computes again what
came after its last checkpoint. A failure may also come while it saves or restarts.

All times are in seconds.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

DAY = 86_400.0


def time_between_failures(per_1000_node_days: float, nodes: int) -> float:
    """Return the mean time between failures of a job, in seconds.

    per_1000_node_days: failures of 1000 nodes in a day.
    nodes: of the job. One failure stops them all.
    Raises ValueError for a rate or a number that is not positive.
    """
    if per_1000_node_days <= 0 or nodes < 1:
        raise ValueError(f"{per_1000_node_days} failures and {nodes} nodes: both are above 0")
    return 1000 * DAY / per_1000_node_days / nodes


def young(save: float, between: float) -> float:
    """Return the interval between two checkpoints that loses the least time, to first order: sqrt(2 save between).

    save: seconds to save a checkpoint.
    between: mean seconds between failures.

    Saving costs save / interval of the time, and a failure on average half an interval: interval / (2 between). The sum
    is smallest where both are equal (John Young, A First Order Approximation to the Optimum Checkpoint Interval, 1974).
    """
    _check(save=save, between=between)
    return math.sqrt(2 * save * between)


def daly(save: float, between: float) -> float:
    """Return a closer approximation of the best interval, for checkpoints that take long.

    save: seconds to save a checkpoint.
    between: mean seconds between failures.

    Source: John Daly, A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps, 2006, equation 37.
    """
    _check(save=save, between=between)
    if save >= 2 * between:
        return between
    ratio = save / (2 * between)
    return math.sqrt(2 * save * between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def lost(interval: float, save: float, restart: float, between: float) -> float:
    """Return the share of the time that is lost, on average in a long job.

    interval: seconds of computing between two checkpoints.
    save: seconds to save a checkpoint.
    restart: seconds to start again after a failure.
    between: mean seconds between failures.

    Everything counts as lost but the computing that a checkpoint keeps. An interval and its checkpoint take on average
    between e^(restart / between) (e^((interval + save) / between) - 1) (Daly 2006, equation 20).
    """
    _check(interval=interval, between=between)
    _check_times(save, restart)
    exponent = (interval + save + restart) / between
    if exponent > 700:  # e to this is more than a float holds
        return 1.0
    takes = between * math.exp(restart / between) * math.expm1((interval + save) / between)
    return 1 - interval / takes


def best(save: float, between: float) -> float:
    """Return the interval that loses the least time, to a millionth.

    save: seconds to save a checkpoint.
    between: mean seconds between failures.

    It does not depend on the time of a restart, which multiplies the time of every interval alike.
    """
    _check(save=save, between=between)
    low, high = 0.0, between  # where the derivative of `lost` is 0: (1 - x) e^(x + save / between) = 1, x in (0, 1)
    for _ in range(200):
        middle = (low + high) / 2
        x = middle / between
        low, high = (middle, high) if math.log1p(-x) + x + save / between > 0 else (low, middle)
        if high - low < 1e-6 * high:
            break
    return (low + high) / 2


@dataclass(frozen=True)
class Done:
    """What became of a job.

    seconds: from its begin to its end.
    failures: that stopped it.
    again: seconds of computing that were done once more.
    """

    seconds: float
    failures: int
    again: float


def simulate(work: float, interval: float, save: float, restart: float, between: float, seed: int = 0) -> Done:
    """Run a job whose failures are drawn at random, until all its work is done.

    work: seconds of computing.
    interval: seconds of computing between two checkpoints; the last one may come sooner.
    save: seconds to save a checkpoint.
    restart: seconds to start again after a failure.
    between: mean seconds between failures.
    seed: of the failures.
    """
    _check(work=work, interval=interval, between=between)
    _check_times(save, restart)
    fails = failures(between, seed)
    now, kept, count, again, next_failure = 0.0, 0.0, 0, 0.0, next(fails)
    while kept < work:
        computing = min(interval, work - kept)
        end = now + computing + save
        if end <= next_failure:
            now, kept = end, kept + computing
            continue
        again += min(computing, next_failure - now)
        while True:  # a failure may come while the job restarts
            now, count, next_failure = next_failure, count + 1, next_failure + next(fails)
            if now + restart <= next_failure:
                break
        now += restart
    return Done(now, count, again)


def failures(between: float, seed: int = 0) -> Iterator[float]:
    """Yield the seconds to the next failure, without end.

    between: their mean.
    seed: of the random numbers.
    """
    draw = random.Random(seed)
    while True:
        yield draw.expovariate(1 / between)


def _check(**positive: float) -> None:
    for name, value in positive.items():
        if not value > 0:
            raise ValueError(f"{name}={value}: it is above 0 seconds")


def _check_times(save: float, restart: float) -> None:
    if save < 0 or restart < 0:
        raise ValueError(f"save={save}, restart={restart}: neither is below 0 seconds")
