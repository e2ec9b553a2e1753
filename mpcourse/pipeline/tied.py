"""One parameter on several ranks: each has a copy, and the copies stay equal because their gradients are summed."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.pipeline.messages import memory_of


class Tied:
    """This rank's tied parameters, and the sum of their gradients. All ranks make one together.

    comm: mpi4py's communicator, or a virtual rank's. Ranks without a tied parameter make a Tied, too.
    own: this rank's parameters, each under a name that is the same on all ranks that hold a copy.

    The values become those of the lowest rank that holds the parameter.
    Raises ValueError, on every rank, where copies differ in shape, dtype, or in whether they are trained, and for a
    name that only one of several ranks has.
    """

    def __init__(self, comm: Comm, own: Mapping[str, nn.Parameter]) -> None:
        by_rank = comm.allgather({name: (tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in own.items()})
        self._shared: list[tuple[Any, nn.Parameter]] = []
        for name in sorted(set().union(*by_rank)):
            holders = {rank: of[name] for rank, of in enumerate(by_rank) if name in of}
            if len(holders) == 1 < comm.size:
                raise ValueError(
                    f"tied parameter {name!r} is named on rank {min(holders)} alone, so its gradients would be added "
                    "to no others: name it in `tied` on each rank that holds a copy"
                )
            if len(set(holders.values())) > 1:
                raise ValueError(f"tied parameter {name!r} is not the same on all ranks: {holders}")
            group = comm.Split(int(name in own), comm.rank)  # ranks without a copy form a group that is not used
            if name in own:
                value = own[name].detach().cpu().contiguous()
                group.Bcast(memory_of(value), 0)
                own[name].data.copy_(value)
                if own[name].requires_grad:
                    self._shared.append((group, own[name]))
        self._before: list[torch.Tensor | None] = []

    def begin(self) -> None:
        """Put aside the gradients of earlier steps, which are already sums."""
        self._before = [p.grad for _, p in self._shared]
        for _, p in self._shared:
            p.grad = None

    def sum_gradients(self) -> None:
        """Set each copy's .grad to the sum of what all copies got since `begin`, plus what was there before."""
        for (group, p), before in zip(self._shared, self._before, strict=True):
            # Sums of shorter dtypes are made in float32, because MPI has none of these dtypes.
            dtype = p.dtype if p.dtype == torch.float64 else torch.float32
            mine = torch.zeros(p.shape, dtype=dtype) if p.grad is None else p.grad.detach().to("cpu", dtype)
            whole = torch.empty_like(mine, memory_format=torch.contiguous_format)
            group.Allreduce(mine.contiguous().numpy(), whole.numpy())
            gradient = whole.to(p.device, p.dtype)
            p.grad = gradient if before is None else before + gradient
