"""When each action of a schedule began and ended: predicted by `replay`, or measured on devices or ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mpcourse.pipeline.schedule import Action
from mpcourse.virtual.timeline import Event

PHASES = {"F": "forward", "B": "backward", "I": "backward", "W": "weight"}


class Timed(NamedTuple):
    """An action, and when it ran.

    action: its stage is the one in whose list of `Execution.stages` it is.
    start, end: in seconds, or in units of the costs that were given to `replay`.
    """

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Execution:
    """When each action of a schedule began and ended.

    stages: for each stage, its actions in the order in which they ran.
    transfers: what went over links, if known.
    """

    stages: list[list[Timed]]
    transfers: Sequence[Event] = ()

    @property
    def start(self) -> float:
        """Time at which the first action began."""
        return min(t.start for row in self.stages for t in row)

    @property
    def makespan(self) -> float:
        """Time from the first start to the last end."""
        return max(t.end for row in self.stages for t in row) - self.start

    @property
    def busy(self) -> list[float]:
        """Time that each stage computes."""
        return [sum(t.end - t.start for t in row) for row in self.stages]

    @property
    def idle(self) -> list[float]:
        """Time that each stage waits: before its first action, between two actions, or after its last."""
        return [self.makespan - busy for busy in self.busy]

    @property
    def bubble(self) -> float:
        """Share of all stages' time that is idle, 0 to 1."""
        whole = self.makespan * len(self.stages)
        return sum(self.idle) / whole if whole else 0.0

    @property
    def chunks(self) -> int:
        """Parts of the model on each stage."""
        return 1 + max(t.action.chunk for row in self.stages for t in row)

    @property
    def microbatches(self) -> int:
        """Micro-batches that the batch was cut into."""
        return 1 + max(t.action.microbatch for row in self.stages for t in row)

    @property
    def peak(self) -> list[float]:
        """The most micro-batches whose activations each stage holds at once. A chunk of one counts 1 / chunks.

        Activations are held from the forward to the backward, or to its weight part, which still needs them.
        """
        peaks = []
        for row in self.stages:
            held = most = 0
            for t in row:
                held += {"F": 1, "B": -1, "W": -1, "I": 0}[t.action.kind]
                most = max(most, held)
            peaks.append(most / self.chunks)
        return peaks

    def as_dict(self) -> dict:
        """Return plain lists and numbers, for JSON; `from_dict` reads them."""
        return {
            "makespan": self.makespan,
            "bubble": self.bubble,
            "idle": self.idle,
            "peak": self.peak,
            "stages": [[t.action._asdict() | {"start": t.start, "end": t.end} for t in row] for row in self.stages],
        }

    @classmethod
    def from_dict(cls, record: dict) -> "Execution":
        """Make an execution, without its transfers, from plain lists and numbers.

        record: what `as_dict` returned.
        """
        return cls(
            [
                [Timed(Action(t["kind"], t["microbatch"], t["chunk"]), t["start"], t["end"]) for t in row]
                for row in record["stages"]
            ]
        )

    @property
    def events(self) -> list[Event]:
        """All actions and all transfers as events of a timeline, in the order in which they begin.

        Actions are in lanes "stage 0", "stage 1" and so on.
        """
        actions = [
            Event(f"stage {s}", str(t.action), "compute", t.start, t.end, t.start, phase=PHASES[t.action.kind])
            for s, row in enumerate(self.stages)
            for t in row
        ]
        return sorted([*actions, *self.transfers], key=lambda e: e.start)
