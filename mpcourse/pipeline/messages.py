"""Tensors from rank to rank without pickling: a short header, then the data. The sender waits for neither."""

import struct
from collections.abc import Sequence
from typing import Any

import torch

from mpcourse.common.comm import Comm, MpiRequest
from mpcourse.common.errors import RankFailed

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
HEADER_BYTES = 1024
NOTHING = -1  # instead of a dtype: no gradient
FAILED = -1  # instead of the number of tensors: none will come, and a reason follows


class TensorChannel:
    """Send and receive tensors without pickling, over a communicator.

    comm: mpi4py's communicator or a virtual rank's; nothing else in it may use the same tags.

    A header says how many tensors follow and, for each tensor, its dtype, whether it requires a gradient, and its
    shape. Tensors on a GPU travel through the host's memory.
    """

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self._sent: list[tuple[MpiRequest, object]] = []  # requests, and what must not change before they are done
        self._header = bytearray(HEADER_BYTES)

    def send(self, tensors: Sequence[torch.Tensor | None], to: int, tag: int) -> None:
        """Begin to send tensors. Every rank that sends must call `finish` later.

        tensors: of any shape, with a dtype in DTYPES; do not change them before `finish`. None: no gradient.
        to: the rank that receives them.
        tag: the receiver must use the same one.
        Raises ValueError for what no message can hold.
        """
        # One list and one call of struct, because time spent in Python here delays the rank that waits for the tensor.
        fields = [len(tensors)]
        for t in tensors:
            if t is None:
                fields.append(NOTHING)
            elif t.dtype not in DTYPES:
                raise ValueError(f"a part of the model returned a tensor of {t.dtype}, which no message can hold")
            else:
                fields += [DTYPES.index(t.dtype), t.requires_grad, t.dim(), *t.shape]
        header = struct.pack(f"{len(fields)}q", *fields)
        if len(header) > HEADER_BYTES:
            raise ValueError(f"a part of the model returned {len(tensors)} tensors: too many for one message")
        self._start(header, to, tag, header)
        for t in tensors:
            if t is not None and t.numel():
                there = t.detach().cpu().contiguous()
                self._start(memory_of(there), to, tag, there)

    def send_failure(self, reason: str, to: int, tag: int) -> None:
        """Send a failure instead of tensors: the rank that receives it raises RankFailed.

        reason: the text of that error.
        to: the rank that receives it.
        tag: the receiver must use the same one.
        """
        text = reason.encode()[: HEADER_BYTES - 16]
        message = struct.pack("2q", FAILED, len(text)) + text
        self._start(message, to, tag, message)

    def receive(self, source: int, tag: int, device: torch.device) -> list[torch.Tensor | None]:
        """Wait for the tensors that a rank has sent. Return them, with requires_grad as it was sent.

        source: the rank that sends.
        tag: the sender must use the same one.
        device: where the tensors are put.
        Raises RankFailed where that rank sent a failure.
        """
        header = self._header
        self.comm.Recv(header, source, tag)
        count, length = struct.unpack_from("2q", header)
        if count == FAILED:
            raise RankFailed(header[16 : 16 + length].decode(errors="replace"))
        tensors: list[torch.Tensor | None] = []
        at = 8
        for _ in range(count):
            dtype, learns, dims = struct.unpack_from("3q", header, at)
            if dtype == NOTHING:
                tensors.append(None)
                at += 8
                continue
            shape = struct.unpack_from(f"{dims}q", header, at + 24)
            at += 8 * (3 + dims)
            t = torch.empty(shape, dtype=DTYPES[dtype])
            if t.numel():
                self.comm.Recv(memory_of(t), source, tag)
            tensors.append(t.to(device).requires_grad_(bool(learns)))
        return tensors

    def finish(self) -> None:
        """Wait until everything that was sent has left this rank's buffers."""
        for request, _ in self._sent:
            request.Wait()
        self._sent.clear()

    def _start(self, buffer: Any, to: int, tag: int, owner: Any) -> None:
        self._sent.append((self.comm.Isend(buffer, to, tag), owner))


def memory_of(t: torch.Tensor) -> Any:
    """Return the bytes of a tensor as a buffer for mpi4py: numpy lacks bfloat16, and MPI lacks float16 too.

    t: a contiguous CPU tensor of any shape and dtype.
    """
    from mpi4py import MPI  # a sender has started MPI; a process that only imports this module need not be a rank

    return MPI.buffer.fromaddress(t.data_ptr(), t.nbytes)
