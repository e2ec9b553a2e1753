"""Whether a machine is quiet enough for its measurements to be kept: it measures its own noise first."""

import os
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpcourse.common.errors import UserError

BUSY = "MPCOURSE_BUSY"  # in the environment: a file may be of a busy machine, as a test's is
SECONDS = 1.0  # for which the machine is watched
REPEATS = 60
OTHERS = 0.05  # part of its cores' time that other programs may take
SPREAD = 0.25  # by how much the median of a repeated computation may be above its least


class Noise(NamedTuple):
    """others: part of the cores' time that other programs took, or a hypervisor; None where the system does not tell.

    spread: median time of a computation that is repeated, divided by the least, minus 1.
    """

    others: float | None
    spread: float


def noise() -> Noise:
    """Measure it, in a little more than a second. This process sleeps while others are counted."""
    before = _taken()
    time.sleep(SECONDS)
    after = _taken()
    others = None
    if before is not None and after is not None and after[1] > before[1]:
        others = (after[0] - before[0]) / (after[1] - before[1])
    a = np.random.default_rng(0).random((256, 256))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        np.sort(a, axis=None)  # on one core, whatever the number of threads
        times.append(time.perf_counter() - start)
    return Noise(others, statistics.median(times) / min(times) - 1)


def refuse_if_busy(measured: Noise | None = None, otherwise: str = "") -> None:
    """Raise UserError where a file of measurements would be one of a busy machine, unless the environment has BUSY.

    measured: what `noise` returned; None: measured now. otherwise: what else can be done, for the message's end.
    """
    if os.environ.get(BUSY):
        return
    measured = noise() if measured is None else measured
    reasons = []
    if measured.others is not None and measured.others > OTHERS:
        reasons.append(f"other programs take {100 * measured.others:.0f} % of its cores' time")
    if measured.spread > SPREAD:
        reasons.append(f"the same computation takes {100 * measured.spread:.0f} % longer on average than at best")
    if reasons:
        raise UserError(
            f"the machine is busy: {', and '.join(reasons)}. Measurements that are kept are made on a quiet one: end "
            f"other programs and run this again{', or ' * bool(otherwise)}{otherwise}"
        )


def _taken() -> tuple[float, float] | None:
    """Ticks that all cores have been busy, stolen ones included, and all ticks, since the system started."""
    try:
        with Path("/proc/stat").open(encoding="utf-8") as file:
            user, nice, system, idle, waits, irq, soft, steal = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    busy = user + nice + system + irq + soft + steal
    cores = os.cpu_count() or 1
    return busy / cores, (busy + idle + waits) / cores
