"""A notice board: what each rank of one machine says, in memory that all of them see."""

from typing import Any

from mpcourse.collectives.shared import shared_memory

ROWS = 64  # where rows begin, in bytes; before them stands how many were written
TURNS = 2  # rows of each rank: who is one ahead writes where nobody reads any more, and nobody can be two ahead


class Board:
    """Rows of `length` bytes, one of each rank of `comm` a round, of real ranks of one machine, which all make one.

    A round is: `write`, wait until `full`, `read`. No message is sent, so that MPI has nothing to do, which matters
    where its code has left the core's cache since the last round.
    """

    def __init__(self, comm: Any, length: int) -> None:
        self.round, self._rank = 0, comm.rank
        self._window, self._boards = shared_memory(comm, ROWS + TURNS * length)
        self._counts = [board[:8].cast("q") for board in self._boards]
        self._counts[self._rank][0] = 0
        self._places = [slice(ROWS + turn * length, ROWS + (turn + 1) * length) for turn in range(TURNS)]
        comm.Barrier()

    def write(self, row: bytes) -> None:
        """What this rank says in the next round."""
        self.round += 1
        self._boards[self._rank][self._places[self.round % TURNS]] = row
        self._window.Sync()  # the row before the count
        self._counts[self._rank][0] = self.round
        self._window.Sync()

    @property
    def full(self) -> bool:
        """Whether all ranks have written in this round."""
        self._window.Sync()
        return all([count[0] >= self.round for count in self._counts])

    def read(self) -> list[bytes]:
        """What each rank says in this round, by rank, once the board is full."""
        self._window.Sync()
        place = self._places[self.round % TURNS]
        return [board[place].tobytes() for board in self._boards]
