"""The study that comes with the course."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("shipped.json")


@dataclass(frozen=True)
class Trained:
    """A training.

    steps: when it was validated, counted from where the ways part; only where all replicas had the same parameters.
    losses: on the validation text, in nats, after so many steps.
    sent: bytes that a replica sent in all.
    """

    steps: Sequence[int]
    losses: Sequence[float]
    sent: int

    @property
    def final(self) -> float:
        """The loss at the end."""
        return self.losses[-1]


def shipped_diloco() -> dict[str, list[Trained]]:
    """Return name of a way -> its trainings, by seed. DiLoCo with H = 5 is "DiLoCo 5"."""
    ways = json.loads(FILE.read_text(encoding="utf-8"))["ways"]
    return {name: [Trained(**seed) for seed in seeds] for name, seeds in ways.items()}
