"""Train what lesson 07 shows, in some minutes: `python -m lessons.studies.staleness FILE`.

Times are virtual, so that a busy machine changes nothing. A processor that rounds otherwise may change the accuracy of
a single training.
"""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from mpcourse.common.provenance import processor, versions
from mpcourse.data_parallel.servers import Asynchronous
from mpcourse.studies.staleness.study import (
    DELAY_RATES,
    DELAYS,
    RATES,
    SEEDS,
    SLOWNESS,
    STALE_GRADIENTS,
    STALE_SEEDS,
    STALENESS,
    WAYS,
    WORKERS,
)
from mpcourse.studies.staleness.training import Curve, Way, alike, train


def curves(way: Way, slowness: str, seeds: int = SEEDS) -> list[Curve]:
    """One for each seed, from 0 on."""
    return [train(way, SLOWNESS[slowness], WORKERS, seed=seed) for seed in range(seeds)]


def reached(staleness: int, rate: float, seeds: int = STALE_SEEDS) -> list[float]:
    """Return the accuracy at the end (percent) of asynchronous trainings of this staleness, by seed."""
    way = Way(rate, Asynchronous())
    return [train(way, alike, staleness + 1, STALE_GRADIENTS, seed).accuracy[-1] for seed in range(seeds)]


def delayed(rate: float, late: bool, seeds: int = SEEDS) -> list[float]:
    """Return the accuracy at the end (percent) of synchronous trainings, with gradients one step late or not."""
    way = Way(rate, double_buffering=late)
    return [train(way, alike, WORKERS, seed=seed).accuracy[-1] for seed in range(seeds)]


def study() -> dict[str, Any]:
    """Train all that lesson 07 shows; the dict that `shipped.json` holds."""
    torch.set_num_threads(1)
    ways = {
        slowness: {name: [asdict(curve) for curve in curves(way, slowness)] for name, way in tqdm(WAYS.items())}
        for slowness in SLOWNESS
    }
    stale = {f"{rate}": [reached(staleness, rate) for staleness in tqdm(STALENESS)] for rate in RATES}
    delay = {f"{rate}": {name: delayed(rate, late) for name, late in DELAYS.items()} for rate in tqdm(DELAY_RATES)}
    made_by = versions("torch") | {"processor": processor()}
    return {"made by": made_by, "ways": _packed(ways), "delay": delay, "stale": stale}


def _packed(ways: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Store once what all trainings of a way share, and by seed what they do not: see `shipped.Runs`."""
    packed: dict[str, dict[str, dict[str, Any]]] = {}
    for slowness, runs in ways.items():
        packed[slowness] = {}
        for name, curves in runs.items():
            shared = {key: curves[0][key] for key in ("updates", "gradients")}
            assert all(curve | shared == curve for curve in curves)
            by_seed = {key: [curve[key] for curve in curves] for key in ("seconds", "staleness", "accuracy")}
            packed[slowness][name] = shared | by_seed
    return packed


def as_text(results: dict[str, Any]) -> str:
    """JSON with a line for each list of numbers."""
    return re.sub(r"\[[^\[\]]*\]", lambda numbers: " ".join(numbers[0].split()), json.dumps(results, indent=1)) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(as_text(study()), encoding="utf-8")
