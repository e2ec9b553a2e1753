"""Tensors that travel along a ring of ranks, while the ranks compute."""

from collections.abc import Callable, Sequence

import torch

from mpcourse.collectives.buffers import mpi_buffer
from mpcourse.common.comm import Comm

Tensor = torch.Tensor


def pass_on(comm: Comm, tensors: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> Callable[[], list[Tensor]]:
    """Begin to send tensors to the next rank; return a function that waits, and returns those of the previous rank.

    comm: of two ranks or more, which all call this, and then what it returns.
    tensors: of one dtype, and on one device. They must not change before the wait.
    shapes: of the tensors that arrive, which have the same dtype.
    """
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    flat = torch.cat([x.detach().reshape(-1) for x in tensors])
    if (on_devices := getattr(comm, "messages", None)) is not None:
        messages = on_devices()
        messages.send(flat, after)

        def arrived() -> list[Tensor]:
            whole = messages.receive(before)
            messages.__exit__()
            return _in_shapes(whole, shapes)

        return arrived
    leaving = flat.cpu()
    arriving = torch.empty(sum(torch.Size(shape).numel() for shape in shapes), dtype=flat.dtype)
    requests = [comm.Irecv(mpi_buffer(arriving), before), comm.Isend(mpi_buffer(leaving), after)]

    def wait() -> list[Tensor]:
        for request in requests:
            request.Wait()
        return _in_shapes(arriving.to(flat.device), shapes)

    return wait


def _in_shapes(flat: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    parts = flat.split([torch.Size(shape).numel() for shape in shapes])
    return [part.view(tuple(shape)) for part, shape in zip(parts, shapes, strict=True)]
