"""The trainings that lesson 07 shows, which take some minutes.

Run them by `python -m mpcourse.studies.staleness.study FILE`.

Times are virtual, so a busy machine changes nothing. A processor that rounds differently may change the accuracy of a
single training.
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
from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Synchronous
from mpcourse.studies.staleness.training import Curve, Way, alike, now_and_then, one_slow, train

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


def curves(way: Way, slowness: str, seeds: int = SEEDS) -> list[Curve]:
    """Train once for each seed, from 0 on."""
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
    """Train all that lesson 07 shows; return the dict that `shipped` reads."""
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
    """Store once what the curves of a way share, which is all but the accuracy: virtual time is not random."""
    packed: dict[str, dict[str, dict[str, Any]]] = {}
    for slowness, runs in ways.items():
        packed[slowness] = {}
        for name, seeds in runs.items():
            common = {key: value for key, value in seeds[0].items() if key != "accuracy"}
            assert all(curve | common == curve for curve in seeds)
            packed[slowness][name] = common | {"accuracy": [curve["accuracy"] for curve in seeds]}
    return packed


def as_text(results: dict[str, Any]) -> str:
    """Return JSON with a line for each list of numbers."""
    return re.sub(r"\[[^\[\]]*\]", lambda numbers: " ".join(numbers[0].split()), json.dumps(results, indent=1)) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(as_text(study()), encoding="utf-8")
