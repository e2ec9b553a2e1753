"""A tensor where MPI can read it: on the CPU, contiguous; or on a GPU, if MPI is CUDA-aware."""

import contextlib
import warnings
from collections.abc import Iterator

import torch

from mpcourse.common.comm import Comm
from mpcourse.common.cuda_aware import cuda_aware
from mpcourse.virtual import MPI, mpi_of

KNOWN = (torch.float32, torch.float64, torch.int32, torch.int64)  # dtypes that MPI has a name for

_warned = False


def bytes_of(t: torch.Tensor) -> bytes:
    """Return the bytes of a tensor.

    t: of any shape, dtype and device.
    """
    there = t.detach().cpu().contiguous().view(-1)
    return there.view(torch.uint8).numpy().tobytes()


@contextlib.contextmanager
def on_host(t: torch.Tensor) -> Iterator[torch.Tensor]:
    """Give all of t as one flat buffer in the host's memory; changes to the buffer reach t.

    t: of any shape, dtype and device.

    A contiguous CPU tensor is its own buffer. Other tensors are copied there and back, those of a GPU through pinned
    memory.
    """
    t = t.detach()
    if t.device.type == "cpu" and t.is_contiguous():
        yield t.view(-1)
        return
    buffer = to_host(t)
    yield buffer
    t.copy_(buffer.view(t.shape))


def readable_by_mpi(comm: Comm, t: torch.Tensor) -> bool:
    """Return whether MPI reads t in place, on a GPU. If so, wait for what was enqueued, because MPI does not.

    comm: mpi4py's communicator, or a virtual rank's. No message is sent, so any rank may call this.
    t: of any shape, dtype and device.
    """
    known = t.device.type == "cuda" and t.dtype in KNOWN and t.is_contiguous()
    if not known or mpi_of(comm) is MPI or not cuda_aware():
        return False
    torch.cuda.current_stream(t.device).synchronize()
    return True


def to_host(t: torch.Tensor) -> torch.Tensor:
    """Copy all of t to one flat buffer in the host's memory: to pinned memory, if t is on a GPU.

    t: of any shape, dtype and device.
    """
    if t.device.type != "cpu":
        _warn_once(t.device)
    buffer = torch.empty(t.numel(), dtype=t.dtype, pin_memory=t.device.type == "cuda")
    return buffer.copy_(t.detach().reshape(-1))


def _warn_once(device: torch.device) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"what is on {device} travels through the host's memory: to the CPU, over MPI, and back", stacklevel=4
        )
