"""The study that comes with the course."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

FILE = Path(__file__).with_name("shipped.json")


@dataclass(frozen=True)
class Runs:
    """Trainings in one way, by seed.

    updates, gradients, seconds: when the accuracy was measured. accuracy: in percent, for each seed one number for each
    measurement. staleness: of the gradients that were used, on average.
    """

    updates: list[int]
    gradients: list[int]
    seconds: list[float]
    staleness: float
    accuracy: list[list[float]]

    @property
    def final(self) -> list[float]:
        """The accuracy at the end, by seed."""
        return [seed[-1] for seed in self.accuracy]

    def seconds_to(self, percent: float) -> float:
        """Return when the mean over the seeds first reached this accuracy. Raises ValueError if it never did."""
        for seconds, looks in zip(self.seconds, zip(*self.accuracy, strict=True), strict=True):
            if fmean(looks) >= percent:
                return seconds
        raise ValueError(f"the mean accuracy never reached {percent:g} %")


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
