"""What servers and workers say to each other: two rows of numbers a step, and, once, that something went wrong."""

from typing import Any

import numpy as np

# Tags. A worker's push is GRADIENT or FAILURE, a server's answer GO_ON, LAST or FAILURE. All of them bring a row of
# numbers. With a FAILURE come, through another communicator, two numbers: a rank, and which parameter is not finite.
GRADIENT, GO_ON, LAST, FAILURE = range(4)
Reason = tuple[int, int]


def send_reason(aside: Any, rank: int, reason: Reason) -> Any:
    """Begin to tell a rank what went wrong; a request, to be waited for.

    aside: a communicator in which nothing else is said.
    rank: who is told, and calls `receive_reason`.
    reason: a rank, and which parameter of it is not finite.
    """
    return aside.Isend(np.array(reason, np.int64), rank)


def receive_reason(aside: Any, rank: int) -> Reason:
    """What another rank said by `send_reason`: a rank, and which parameter of it is not finite.

    aside: a communicator in which nothing else is said.
    rank: who says it.
    """
    row = np.empty(2, np.int64)
    aside.Recv(row, rank)
    return int(row[0]), int(row[1])
