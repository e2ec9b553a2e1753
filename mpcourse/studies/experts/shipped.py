"""The study that comes with the course."""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("shipped.json")


@dataclass(frozen=True)
class Trained:
    """A training.

    losses: on the validation text, in nats, before the first step and after each `study.EVERY` steps. shares: for each
    layer, the share of choices that went to each expert at the end; None without experts.
    """

    losses: list[float]
    shares: list[list[float]] | None


def shipped_experts() -> dict[str, list[Trained]]:
    """Return name of a way -> its trainings, by seed."""
    ways = json.loads(FILE.read_text(encoding="utf-8"))["ways"]
    return {name: [Trained(**seed) for seed in seeds] for name, seeds in ways.items()}
