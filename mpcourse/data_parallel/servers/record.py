"""What servers and workers record of a training: which worker brought each gradient, and how stale it was when used."""

from dataclasses import dataclass
from typing import NamedTuple


class Push(NamedTuple):
    """A gradient, as a server recorded it.

    worker: its rank.
    staleness: number of updates since the weights at which it was computed.
    applied: False where it arrived too late.
    seconds: time of arrival since the training began, on the server's clock.
    """

    worker: int
    staleness: int
    applied: bool
    seconds: float


@dataclass(frozen=True)
class Served:
    """What servers and workers record of a training.

    pushes: by server, in the order of arrival.
    losses: what each worker's `backward` returned, in order, by the worker's rank.
    seconds: until the last rank was done.
    """

    pushes: list[list[Push]]
    losses: dict[int, list[float]]
    seconds: float

    def staleness(self, server: int = 0) -> list[int]:
        """Return how stale each gradient was that a server applied, in updates, in order.

        server: its rank.
        """
        return [push.staleness for push in self.pushes[server] if push.applied]
