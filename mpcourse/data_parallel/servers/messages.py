"""What servers and workers send each other: two rows of numbers a step, and, at most once, a failure."""

from typing import Any

import numpy as np

# Tags. A worker's push has GRADIENT or FAILURE, a server's answer GO_ON, LAST or FAILURE. Each brings a row of numbers.
# With a FAILURE come two numbers, through another communicator: a rank, and which of its parameters is not finite.
GRADIENT, GO_ON, LAST, FAILURE = range(4)
Reason = tuple[int, int]


def send_reason(aside: Any, rank: int, reason: Reason) -> Any:
    """Begin to send a rank what went wrong; return a request, to be waited for.

    aside: a communicator for nothing else.
    rank: the receiver, which calls `receive_reason`.
    reason: a rank, and which of its parameters is not finite.
    """
    return aside.Isend(np.array(reason, np.int64), rank)


def receive_reason(aside: Any, rank: int) -> Reason:
    """Receive what another rank sent by `send_reason`: a rank, and which of its parameters is not finite.

    aside: a communicator for nothing else.
    rank: the sender.
    """
    row = np.empty(2, np.int64)
    aside.Recv(row, rank)
    return int(row[0]), int(row[1])
