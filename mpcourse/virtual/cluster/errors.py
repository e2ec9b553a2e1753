"""What goes wrong between ranks, told on every one of them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Wait:
    """Where a rank is that cannot go on. call: e.g. "Recv(source=1, tag=0)". peers: the ranks that it waits for."""

    rank: int
    call: str
    peers: tuple[int, ...]
    line: str

    def __str__(self) -> str:
        return f"rank {self.rank} waits in {self.call}, {self.line}"


class ClusterError(RuntimeError):
    """A mistake in what ranks say to each other. Every rank that was still running raises one.

    kind: "deadlock", "truncated", "datatypes", "collectives", "counts", "buffer", "never received", "never waited",
    "changed", "misuse". waits: where each rank was that waited. cycle: ranks that wait for each other in a circle.
    """

    def __init__(self, kind: str, text: str, waits: Sequence[Wait] = (), cycle: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.kind, self.text, self.waits, self.cycle = kind, text, tuple(waits), tuple(cycle)


class Deadlock(ClusterError):
    """No rank can go on: what they wait for will never come."""


class RankFailed(RuntimeError):
    """On the other ranks, when one has raised an error of its own."""
