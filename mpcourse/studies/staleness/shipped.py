"""The study that comes with the course."""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("shipped.json")


@dataclass(frozen=True)
class Runs:
    """Trainings in one way, by seed.

    updates, gradients: when the accuracy was measured. seconds (virtual) and accuracy (percent): for each seed one
    number for each measurement. staleness: of the gradients that were used, on average, for each seed.
    """

    updates: list[int]
    gradients: list[int]
    seconds: list[list[float]]
    staleness: list[float]
    accuracy: list[list[float]]

    @property
    def final(self) -> list[float]:
        """The accuracy at the end, by seed."""
        return [seed[-1] for seed in self.accuracy]

    @property
    def took(self) -> list[float]:
        """The seconds of the whole training, by seed."""
        return [seed[-1] for seed in self.seconds]

    def needed(self, percent: float) -> dict[str, list[float]]:
        """Return, by seed, the updates, gradients and seconds until a measurement first reached this accuracy.

        Raises ValueError where a seed never did.
        """
        if not all(max(seed) >= percent for seed in self.accuracy):
            raise ValueError(f"not every seed reached {percent:g} %")
        first = [next(i for i, look in enumerate(seed) if look >= percent) for seed in self.accuracy]
        return {
            "updates": [self.updates[i] for i in first],
            "gradients": [self.gradients[i] for i in first],
            "seconds": [seconds[i] for seconds, i in zip(self.seconds, first, strict=True)],
        }


def shipped_ways(slowness: str) -> dict[str, Runs]:
    """Return name of a way -> its trainings, where "one slow" worker is slow, or each is slow "now and then"."""
    return {name: Runs(**runs) for name, runs in _read()["ways"][slowness].items()}


def shipped_delay() -> dict[float, dict[str, list[float]]]:
    """Return learning rate -> "no delay" and "double buffering" -> the accuracy at the end (percent), by seed."""
    return {float(rate): accuracies for rate, accuracies in _read()["delay"].items()}


def shipped_staleness() -> dict[float, list[list[float]]]:
    """Return learning rate -> for each of `study.STALENESS` the accuracy at the end (percent), by seed."""
    return {float(rate): accuracies for rate, accuracies in _read()["stale"].items()}


def _read() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))
