"""A tensor's numbers where MPI can read them: on the CPU, in one piece."""

import contextlib
import warnings
from collections.abc import Iterator

import torch

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
