"""A tensor's numbers where MPI can read them: on the CPU, in one piece; or on a GPU, if MPI is CUDA-aware."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from mpcourse.cuda_aware import cuda_aware
from mpcourse.virtual import MPI, mpi_of

KNOWN = (torch.float32, torch.float64, torch.int32, torch.int64)  # what MPI has a name for

_said = False


def bytes_of(t: torch.Tensor) -> bytes:
    """The bytes of a tensor, wherever it is and whatever its dtype."""
    there = t.detach().cpu().contiguous().view(-1)
    return there.view(torch.uint8).numpy().tobytes()


@contextlib.contextmanager
def on_host(t: torch.Tensor) -> Iterator[torch.Tensor]:
    """All of t as one row in the host's memory; what is done to it is done to t.

    That of a contiguous CPU tensor is itself. Others are copied there and back, a GPU's through pinned memory.
    """
    t = t.detach()
    if t.device.type == "cpu" and t.is_contiguous():
        yield t.view(-1)
        return
    row = to_host(t)
    yield row
    t.copy_(row.view(t.shape))


def reads(comm: Any, t: torch.Tensor) -> bool:
    """Whether `comm` takes t where it lies, on a GPU. What was enqueued for it is done then: MPI does not wait."""
    known = t.device.type == "cuda" and t.dtype in KNOWN and t.is_contiguous()
    if not known or mpi_of(comm) is MPI or not cuda_aware():
        return False
    torch.cuda.current_stream(t.device).synchronize()
    return True


def to_host(t: torch.Tensor) -> torch.Tensor:
    """A copy of all of t as one row in the host's memory: pinned memory, for a GPU's."""
    if t.device.type != "cpu":
        _say(t.device)
    row = torch.empty(t.numel(), dtype=t.dtype, pin_memory=t.device.type == "cuda")
    return row.copy_(t.detach().reshape(-1))


def _say(device: torch.device) -> None:
    global _said
    if not _said:
        _said = True
        warnings.warn(
            f"what is on {device} travels through the host's memory: to the CPU, over MPI, and back", stacklevel=4
        )
