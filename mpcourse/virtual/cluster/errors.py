"""What goes wrong between ranks, told on every one of them."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def nearest(name: str, names: Iterable[str]) -> str:
    """How a refusal of an attribute goes on: the name that was meant, if there is one like it."""
    likely = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], 1, 0.75)
    return f": did you mean {likely[0]}?" if likely else ": they have what the course and most programs use of mpi4py"


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

    def Get_error_class(self) -> int:
        """MPI's number for such an error, as MPICH has it: of truncation, of a rank or root, or another one."""
        return {"truncated": 14, "counts": 2, "datatypes": 3, "buffer": 1}.get(self.kind, 15)

    Get_error_code = Get_error_class

    def Get_error_string(self) -> str:
        return self.text


class Deadlock(ClusterError):
    """No rank can go on: what they wait for will never come."""


class RankFailed(RuntimeError):
    """On the other ranks, when one has raised an error of its own."""
