"""What goes wrong between ranks, raised on every one of them."""

from collections.abc import Sequence

from mpcourse.common.deadlock import Wait
from mpcourse.virtual.ranks import constants

_NUMBERS = {
    "truncated": constants.ERR_TRUNCATE, "counts": constants.ERR_COUNT, "datatypes": constants.ERR_TYPE,
    "buffer": constants.ERR_BUFFER, "changed": constants.ERR_BUFFER,
}  # fmt: skip


class ClusterError(RuntimeError):
    """A mistake in what ranks send each other. Every rank that was still running raises one.

    kind: "deadlock", "truncated", "datatypes", "collectives", "counts", "buffer", "never received", "never waited",
    "changed", "misuse", "stalled". A number alone is mpi4py's MPI.Exception(number).
    text: of the error.
    waits: where each waiting rank was.
    cycle: ranks that wait for each other in a circle.
    number: MPI's class of the error, e.g. MPI.ERR_RANK; None: that of its kind, or ERR_OTHER.
    """

    def __init__(
        self,
        kind: str | int = constants.SUCCESS,
        text: str = "",
        waits: Sequence[Wait] = (),
        cycle: Sequence[int] = (),
        number: int | None = None,
    ) -> None:
        if isinstance(kind, int):
            number, text = kind, constants.named(kind)
            kind = "misuse"
        super().__init__(text)
        self.kind, self.text, self.waits, self.cycle = kind, text, tuple(waits), tuple(cycle)
        self.number = _NUMBERS.get(kind, constants.ERR_OTHER) if number is None else number

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        """Compare by number, as mpi4py's errors do."""
        return self is other or (isinstance(other, int) and self.number == other)

    def Get_error_class(self) -> int:
        """Return MPI's number of the error's class, as in MPICH: MPI.ERR_TRUNCATE, ERR_COUNT, ERR_TYPE, ERR_RANK, ...

        It is MPI.ERR_OTHER for errors without a class in MPI, such as a deadlock.
        """
        return self.number

    error_class = property(Get_error_class)

    Get_error_code = Get_error_class  # MPICH's code also contains where it was raised
    error_code = property(Get_error_code)

    def Get_error_string(self) -> str:
        return self.text

    error_string = property(Get_error_string)


class Deadlock(ClusterError):
    """No rank can go on: what the ranks wait for will never come."""
