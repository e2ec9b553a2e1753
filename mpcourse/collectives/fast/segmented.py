"""Long messages in segments: a segment is added while it is still in the cache.

A whole chunk of megabytes is received into memory, and must be fetched from memory again to be added. A segment is
received into a buffer that fits into the core's cache, and is added at once, which saves a third of the traffic to
memory. Segments that are too short cost more messages than they save: half a megabyte is best on machines with 1 or 2
MB of cache per core. Bytes and bits are those of the plain algorithms.
"""

from collections.abc import Iterable
from typing import Generic

from mpcourse.collectives.buffers import Array, Op, accumulate, chunks, empty_like, flatten, mpi_buffer
from mpcourse.collectives.folding import fold, power_below, rank_at, unfold
from mpcourse.collectives.rabenseifner import halvings
from mpcourse.collectives.ring import ring_allgather
from mpcourse.common.comm import Comm

SEGMENT = 1 << 19  # bytes


def segmented_ring_allreduce(comm: Comm, x: Array, op: Op | None = None, *, segment: int = SEGMENT) -> None:
    """Sum x over all p ranks, in place, along a ring, in short messages. All ranks call it, and get the same bits.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an associative and commutative operation on two flat buffers; None: the sum.
    segment: bytes of a message of the reduce-scatter.

    Each rank sends 2 n (p - 1) / p bytes of the n of x. The bits are those of `ring_allreduce`.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory, or where a segment is shorter than an element.
    """
    p, rank = comm.size, comm.rank
    chunk = chunks(x, p)
    exchange = SegmentedExchange(chunk[-1], segment)
    for step in range(p - 1):
        mine, theirs = chunk[(rank - step) % p], chunk[(rank - step - 1) % p]
        exchange(comm, mine, (rank + 1) % p, theirs, (rank - 1) % p, op)
    ring_allgather(comm, chunk)


def segmented_rabenseifner_allreduce(
    comm: Comm, x: Array, op: Op | None = None, *, segment: int = SEGMENT, far_first: bool = False
) -> None:
    """Sum x over all p ranks, in place, by recursive halving and doubling, in short messages. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an associative and commutative operation on two flat buffers; None: the sum.
    segment: bytes of a message of the recursive halving.
    far_first: send the first and longest messages to the farthest rank. False: to the nearest.

    Each rank sends 2 n (p - 1) / p bytes of the n of x, and 2 n more where p is no power of two. All ranks get the same
    bits, those of `rabenseifner_allreduce`.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory, or where a segment is shorter than an element.
    """
    own = flatten(x)
    place = fold(comm, own, op)
    if place is not None:
        rounds = halvings(place, power_below(comm.size), len(own), far_first)
        for partner, kept, given in rounds:
            other, longest = rank_at(comm, partner), max((own[kept], own[given]), key=len)
            SegmentedExchange(longest, segment)(comm, own[given], other, own[kept], other, op)
        for partner, kept, given in reversed(rounds):
            other = rank_at(comm, partner)
            comm.Sendrecv(mpi_buffer(own[kept]), other, 0, mpi_buffer(own[given]), other, 0)
    unfold(comm, own)


class SegmentedExchange(Generic[Array]):
    """Send a chunk, receive another one and add it, in segments. Both ranks of the exchange call it.

    longest: a chunk as long as the longest on any rank, so that both ranks cut theirs into equally many segments.
    segment: bytes of a message.
    Raises ValueError where a segment is shorter than an element.
    """

    def __init__(self, longest: Array, segment: int) -> None:
        if segment < longest.itemsize:
            raise ValueError(f"a segment of {segment} bytes holds no element of {longest.itemsize}")
        self.segments = max(1, -(-len(longest) // (segment // longest.itemsize)))
        self.received: Array = empty_like(longest, -(-len(longest) // self.segments))

    def __call__(self, comm: Comm, sent: Array, dest: int, into: Array, source: int, op: Op | None) -> None:
        """Send `sent` to rank dest; receive as many elements as `into` has from rank source, and add them to it."""
        pairs: Iterable[tuple[Array, Array]] = [(sent, into)]
        if self.segments > 1:  # cutting takes microseconds, too long for short messages
            pairs = zip(chunks(sent, self.segments), chunks(into, self.segments), strict=True)
        for mine, theirs in pairs:
            arrived = self.received[: len(theirs)]
            comm.Sendrecv(mpi_buffer(mine), dest, 0, mpi_buffer(arrived), source, 0)
            accumulate(theirs, arrived, op)
