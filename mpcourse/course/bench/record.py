"""One measurement."""

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """What was measured, every run of it, and the promise that it is held to (None: no promise). unit: of the runs.

    what: a case and a quantity of it, as "MLP 64-32-10: plain loop", or a quantity alone.
    The median may be the promise at most; with at_least, the promise at least.
    """

    what: str
    runs: list[float]
    unit: str = "s"
    promise: float | None = None
    at_least: bool = False

    @property
    def case(self) -> str | None:
        """Return what comes before the last colon, or None where there is no colon."""
        return self.what.rpartition(": ")[0] or None

    @property
    def quantity(self) -> str:
        return self.what.rpartition(": ")[2]

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def kept(self) -> bool:
        if self.promise is None:
            return True
        return self.median >= self.promise if self.at_least else self.median <= self.promise
