"""Tensors from rank to rank without pickling: a small header, then the data, neither of which makes the sender wait."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
MAX_TENSORS, MAX_DIMS = 8, 8
NOTHING = -1  # in place of a dtype: no gradient
FAILED = -1  # in place of the number of tensors: none will come, for the reason that follows


class RankFailed(RuntimeError):
    """Another rank has raised, so what this one waits for never arrives."""


class Mailbox:
    """What one rank sends and receives over `comm`, in mpi4py's words.

    A header is of fixed size, so that its receiver needs to know nothing: how many tensors, and of each the dtype,
    whether it requires a gradient, and the shape. Tensors on a GPU travel through the host's memory.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self._sent: list[tuple[Any, Any]] = []  # requests, and the buffers that must not change before they are done

    def send(self, tensors: Sequence[torch.Tensor | None], to: int, tag: int) -> None:
        """Begin to send; every rank that does must `finish` sometime. Tensors must not be changed before that."""
        header = _header()
        if len(tensors) > MAX_TENSORS or any(t is not None and t.dim() > MAX_DIMS for t in tensors):
            raise ValueError(f"a part of the model passes up to {MAX_TENSORS} tensors of up to {MAX_DIMS} dimensions")
        header[0, 0] = len(tensors)
        for row, t in zip(header[1:], tensors, strict=False):
            if t is None:
                row[0] = NOTHING
            elif t.dtype not in DTYPES:
                raise ValueError(f"a part of the model returned a tensor of {t.dtype}, which no message can hold")
            else:
                row[:3] = DTYPES.index(t.dtype), t.requires_grad, t.dim()
                row[3 : 3 + t.dim()] = t.shape
        self._start(header, to, tag)
        for t in tensors:
            if t is not None and t.numel():
                self._start(bytes_of(t.detach().cpu().contiguous()), to, tag)

    def send_failure(self, reason: str, to: int, tag: int) -> None:
        """In place of tensors: whoever receives this raises RankFailed."""
        header = _header()
        text = np.frombuffer(reason.encode()[: header[1:].nbytes], np.uint8)
        header[0, :2] = FAILED, len(text)
        header[1:].reshape(-1).view(np.uint8)[: len(text)] = text
        self._start(header, to, tag)

    def receive(self, source: int, tag: int, device: torch.device) -> list[torch.Tensor | None]:
        """Wait for what rank `source` has sent with `tag`; on `device`, with requires_grad as it was sent."""
        header = _header()
        self.comm.Recv(header, source, tag)
        if header[0, 0] == FAILED:
            text = header[1:].reshape(-1).view(np.uint8)[: header[0, 1]]
            raise RankFailed(text.tobytes().decode(errors="replace"))
        found: list[torch.Tensor | None] = []
        for row in header[1 : 1 + header[0, 0]].tolist():
            if row[0] == NOTHING:
                found.append(None)
                continue
            t = torch.empty(row[3 : 3 + row[2]], dtype=DTYPES[row[0]])
            if t.numel():
                self.comm.Recv(bytes_of(t), source, tag)
            found.append(t.to(device).requires_grad_(bool(row[1])))
        return found

    def finish(self) -> None:
        """Wait until all that was sent is out of this rank's buffers."""
        for request, _ in self._sent:
            request.Wait()
        self._sent.clear()

    def _start(self, buffer: np.ndarray, to: int, tag: int) -> None:
        self._sent.append((self.comm.Isend(buffer, to, tag), buffer))


def _header() -> np.ndarray:
    return np.zeros((MAX_TENSORS + 1, MAX_DIMS + 3), np.int64)


def bytes_of(t: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous CPU tensor, whatever its dtype: numpy has no bfloat16."""
    return t.view(-1).view(torch.uint8).numpy()
