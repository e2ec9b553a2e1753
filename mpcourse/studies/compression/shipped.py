"""The study that comes with the course."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

FILE = Path(__file__).with_name("shipped.json")


@dataclass(frozen=True)
class Trained:
    """Trainings in one way.

    accuracy: learning rate -> accuracy on the test images at the end (percent), by seed.
    sent: bytes that a replica sends in a step.
    """

    accuracy: dict[float, list[float]]
    sent: int

    @property
    def best(self) -> float:
        """The learning rate with the highest mean accuracy."""
        return max(self.accuracy, key=lambda rate: fmean(self.accuracy[rate]))


def shipped_compression() -> dict[str, Trained]:
    """Return name of a way -> its trainings."""
    ways = json.loads(FILE.read_text(encoding="utf-8"))["ways"]
    return {
        name: Trained({float(rate): seeds for rate, seeds in way["accuracy"].items()}, way["sent"])
        for name, way in ways.items()
    }
