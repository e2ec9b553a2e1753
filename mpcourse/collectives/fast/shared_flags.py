"""Short messages between ranks of one machine, through memory that all ranks see: MPI sends nothing."""

from mpcourse.collectives.fast.shared_buffer import shared_window
from mpcourse.common.comm import Comm

ROWS = 64  # bytes from the start to the first row; the count of rows written comes before
TURNS = 2  # rows per rank: a rank one round ahead writes a row that is no longer read; none can be two rounds ahead


class SharedFlags:
    """Rows of bytes, one from each rank per round, in memory that all ranks share. All ranks make one together.

    comm: mpi4py's communicator, whose ranks are on one machine.
    length: bytes of a row.

    In a round, call `write`, wait until `complete`, and call `read`. MPI has nothing to do, which matters if its code
    has left the core's cache since the last round.
    """

    def __init__(self, comm: Comm, length: int) -> None:
        self.round, self._rank = 0, comm.rank
        self._window, self._memories = shared_window(comm, ROWS + TURNS * length)
        self._counts = [memory[:8].cast("q") for memory in self._memories]
        self._counts[self._rank][0] = 0
        self._places = [slice(ROWS + turn * length, ROWS + (turn + 1) * length) for turn in range(TURNS)]
        comm.Barrier()

    def write(self, row: bytes) -> None:
        """Begin the next round with this rank's row. Every rank calls it, and waits for none.

        row: as many bytes as `length` says.
        """
        self.round += 1
        self._memories[self._rank][self._places[self.round % TURNS]] = row
        self._window.Sync()  # writes the row before the count
        self._counts[self._rank][0] = self.round
        self._window.Sync()

    @property
    def complete(self) -> bool:
        """Whether all ranks have written in this round."""
        self._window.Sync()
        return all([count[0] >= self.round for count in self._counts])

    def read(self) -> list[bytes]:
        """Return the rows of this round, by rank, once it is complete."""
        self._window.Sync()
        place = self._places[self.round % TURNS]
        return [memory[place].tobytes() for memory in self._memories]
