"""All-reduces of flat buffers that are in flight, on whichever device the buffers are."""

import torch

from mpcourse.collectives.fast.nonblocking import NonblockingRing, Request
from mpcourse.common.comm import Comm
from mpcourse.data_parallel.host_staging import readable_by_mpi, to_host
from mpcourse.virtual import mpi_of

_in_flight: set["MpiAllreduce"] = set()  # MPI writes into their buffers, even if no caller holds them any more


class MpiAllreduce:
    """The sum of a flat buffer on a GPU, whose memory MPI reads, by MPI's own algorithm; begun by all ranks.

    comm: mpi4py's communicator.
    buffer: of one dimension, on a GPU, of the same length and dtype on all ranks; do not touch it before the end.
    """

    def __init__(self, comm: Comm, buffer: torch.Tensor) -> None:
        self._request = comm.Iallreduce(mpi_of(comm).IN_PLACE, buffer)
        _in_flight.add(self)

    def test(self) -> bool:
        """Return whether it is done."""
        if done := self._request.Test():
            _in_flight.discard(self)
        return done

    def wait(self) -> None:
        """Wait until it is done."""
        self._request.Wait()
        _in_flight.discard(self)


class BufferAllreduces:
    """The sums of flat buffers over all ranks. All ranks begin them in the same order, with the same first tag.

    comm: mpi4py's communicator, or a virtual rank's.
    buffers: of one dimension each, of the same lengths and dtypes on all ranks; do not touch them before the end.
    tag: buffer number i takes tag `tag` + i.

    A buffer on a GPU that MPI does not read is summed in the host's memory, and copied back by `wait`.
    """

    def __init__(self, comm: Comm, buffers: list[torch.Tensor], tag: int = 0) -> None:
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []  # each with the tensor in which it is summed
        self._sums: list[Request] = []
        for i, buffer in enumerate(buffers):
            if readable_by_mpi(comm, buffer):
                self._buffers.append((buffer, buffer))
                self._sums.append(MpiAllreduce(comm, buffer))
            else:
                host = buffer if buffer.device.type == "cpu" else to_host(buffer)
                self._buffers.append((buffer, host))
                self._sums.append(NonblockingRing(comm, host, tag + i))

    def test(self) -> bool:
        """Proceed as far as possible without waiting; return whether all is done."""
        return all([each.test() for each in self._sums])

    def wait(self) -> None:
        """Proceed until all is done."""
        for each, (buffer, host) in zip(self._sums, self._buffers, strict=True):
            each.wait()
            if buffer is not host:
                buffer.copy_(host)
