"""What a study's rows show: the best setting for each batch, and the batch from which on more examples help less."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

Row = dict[str, Any]  # of a study's runs.csv, by column
AXES = ("optimizer", "rule", "rate", "warmup")  # what may differ between a batch's settings


def tuned(rows: Sequence[Row], column: str, least: bool = False) -> dict[int, list[Row]]:
    """Return for each batch the rows of its best setting, one row per seed.

    rows: of a study's runs.csv, by column.
    column: the column whose mean over seeds is compared.
    least: take the setting with the smallest mean. False: with the largest.

    A setting is left out if one of its runs has no value there, for example because it never reached the target. A
    batch without another setting is left out, too.
    """
    settings: dict[int, dict[tuple, list[Row]]] = {}
    for row in rows:
        settings.setdefault(row["batch"], {}).setdefault(tuple(row[axis] for axis in AXES), []).append(row)
    best = {}
    for batch, each in sorted(settings.items()):
        whole = [runs for runs in each.values() if all(run[column] is not None for run in runs)]
        if whole:
            best[batch] = (min if least else max)(whole, key=lambda runs: mean(run[column] for run in runs))
    return best


@dataclass(frozen=True)
class Critical:
    """A curve of steps against batch: least_steps (1 + B / b), where b is a batch in examples and B the critical one.

    least_steps: updates that a very large batch needs.
    batch: B, in examples, at which twice the least steps are needed, and twice the least examples.
    """

    least_steps: float
    batch: float

    def steps(self, batch: float) -> float:
        """Return the number of updates that a batch needs.

        batch: in examples.
        """
        return self.least_steps * (1 + self.batch / batch)


def critical_batch(steps: Mapping[int, float] | Mapping[float, float]) -> Critical:
    """Return the curve that is nearest to measured steps; distance is measured in the logarithm of steps.

    steps: updates to a target, by batch in examples.

    McCandlish et al. (2018), equation 2.11. Where steps do not bend, the critical batch is a thousandth of the smallest
    or a thousand times the largest.
    Raises ValueError unless there are two batches or more, and steps above 0.
    """
    if len(steps) < 2 or min(*steps, *steps.values()) <= 0:
        raise ValueError(f"steps above 0 at two batches or more tell where they bend: got {dict(steps)}")
    batches, wanted = np.array(list(steps), float), np.log(list(steps.values()))
    tried = np.geomspace(batches.min() / 1000, batches.max() * 1000, 60_001)  # neighbours differ by less than 0.1 %
    offsets = wanted - np.log1p(tried[:, None] / batches)  # the logarithm of least_steps that fits each point
    nearest = int(offsets.var(axis=1).argmin())
    return Critical(float(np.exp(offsets[nearest].mean())), float(tried[nearest]))


def noise_until(rows: Sequence[Row], target: float) -> float:
    """Return the noise scale on the way to a test accuracy, in examples: the mean over updates of one setting's runs.

    rows: of a noise.csv.
    target: a test accuracy, 0 to 1; a run counts until it reaches it.

    At each record, the scale is the ratio of two means over runs, of tr(Sigma) and of |G|^2. Where batches are large,
    the mean over updates should equal the critical batch (McCandlish et al. 2018, appendix D).
    Raises ValueError without rows, and where |G|^2 is lost in the noise.
    """
    if not rows:
        raise ValueError("no rows to average over")
    arrived: set[int] = set()
    at: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        if row["run"] not in arrived:
            at.setdefault(row["step"], []).append(row)
        if row["test_accuracy"] >= target:
            arrived.add(row["run"])
    squares = {step: mean(r["gradient_square"] for r in each) for step, each in at.items()}
    if lost := [step for step, square in squares.items() if square <= 0]:
        raise ValueError(f"|G|^2 is lost in the noise after {lost[0]} updates: measure it with more examples")
    return mean(mean(r["trace"] for r in each) / squares[step] for step, each in at.items())
