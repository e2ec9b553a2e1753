"""The time that the actions of a pipeline take: given, or measured."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mpcourse.pipeline.execution import Execution

Cost = float | Sequence[float]


@dataclass(frozen=True)
class Costs:
    """The time that each action takes, in any unit.

    forward: of one micro-batch on one stage; where a stage has several chunks, on all of them together. A sequence
    gives the time on each part of the model, in the model's order.
    backward: of one micro-batch on one stage, or on each part of the model.
    weight: the part of `backward` for the weights' gradients, on one stage or on each part of the model; None: half of
    `backward`.
    transfer: of an activation or its gradient from one stage to another; a sequence gives the time of each cut between
    two parts. Stages compute meanwhile; a link carries one transfer at a time in each direction.
    again: with checkpoints, the forward that a backward repeats, unless it follows its own forward at once; on one
    stage, or on each part of the model.
    """

    forward: Cost = 1.0
    backward: Cost = 2.0
    weight: Cost | None = None
    transfer: Cost = 0.0
    again: Cost = 0.0

    def table(self, parts: int, chunks: int) -> dict[str, list[float]]:
        """Return the time of each kind of action on each part of the model: of "F", "B", "I", "W", and "again".

        parts: of the model.
        chunks: parts that each stage has.
        Raises ValueError for costs that make no sense.
        """
        forward = _spread("forward", self.forward, parts, chunks)
        backward = _spread("backward", self.backward, parts, chunks)
        weight = [b / 2 for b in backward] if self.weight is None else _spread("weight", self.weight, parts, chunks)
        if any(w > b for w, b in zip(weight, backward, strict=True)):
            raise ValueError(f"weight is a part of backward: {self.weight} is more than {self.backward}")
        inputs = [b - w for b, w in zip(backward, weight, strict=True)]
        return {
            "F": forward,
            "B": backward,
            "I": inputs,
            "W": weight,
            "again": _spread("again", self.again, parts, chunks),
        }

    def cuts(self, parts: int) -> list[float]:
        """Return the time of a transfer over each cut between two parts.

        parts: of the model.
        Raises ValueError for costs that make no sense.
        """
        return _spread("transfer", self.transfer, parts - 1, 1, "cuts between parts")


def _spread(name: str, cost: Cost, parts: int, chunks: int, of: str = "parts of the model") -> list[float]:
    if isinstance(cost, int | float):
        costs = [cost / chunks] * max(parts, 1)
    else:
        costs = list(cost)
        if len(costs) != parts:
            raise ValueError(f"{name} has {len(costs)} costs, but the schedule has {parts} {of}")
    if bad := [c for c in costs if not (c >= 0 and math.isfinite(c))]:
        raise ValueError(f"{name} must be 0 or more and finite: got {bad[0]}")
    return costs


def measured_costs(runs: Sequence[Execution]) -> Costs:
    """Return the mean time of each part's forward, backward and weight part, in the unit of the executions.

    runs: executions of one schedule, one or more.
    """
    p, chunks = len(runs[0].stages), runs[0].chunks
    took: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        for s, row in enumerate(run.stages):
            for t in row:
                took.setdefault((t.action.kind, t.action.chunk * p + s), []).append(t.end - t.start)

    def mean(kind: str) -> list[float]:
        return [statistics.fmean(took.get((kind, part), [0.0])) for part in range(p * chunks)]

    weight = mean("W")
    backward = [b + i + w for b, i, w in zip(mean("B"), mean("I"), weight, strict=True)]
    return Costs(mean("F"), backward, weight if any(weight) else None)
