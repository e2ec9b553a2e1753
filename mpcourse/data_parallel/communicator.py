"""What ranks that train one model exchange: ChainerMN's communicator in its plain form."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from mpcourse.collectives import allreduce, broadcast, naive_allreduce
from mpcourse.collectives.fast.nonblocking import Request
from mpcourse.common.comm import Comm
from mpcourse.data_parallel.flat_buffers import FlatBuffers
from mpcourse.data_parallel.host_staging import on_host, readable_by_mpi
from mpcourse.data_parallel.nodes import Nodes
from mpcourse.data_parallel.parameters import Model, all_tensors, same_tensors, trained_parameters
from mpcourse.virtual import mpi_of


def nothing() -> None:
    """Do nothing: the default for what a rank does while it waits."""


class Communicator:
    """The ranks that train one model, each a copy of it on its share of each batch. All ranks make one together.

    comm: mpi4py's communicator, or a virtual rank's; a duplicate of it is used.
    nodes: this rank's node and place in it, from `nodes_of(comm)`.
    rank, size: among all ranks.
    intra_rank, intra_size: among the ranks on this node.
    inter_rank, inter_size: number of this node, and number of nodes.

    A subclass defines how a flat buffer is summed. Nothing is checked here: where ranks do different things, MPI waits
    or sums what does not belong together. `create_communicator` returns a communicator that checks.
    """

    name = ""

    def __init__(self, comm: Comm, nodes: Nodes) -> None:
        self.comm, self.nodes = comm.Dup(), nodes
        self.rank, self.size = comm.rank, comm.size
        self.intra_rank, self.intra_size = nodes.intra.rank, nodes.intra.size
        self.inter_rank, self.inter_size = nodes.inter_rank, nodes.inter_size
        self.in_flight: list[Request] = []  # all-reduces that have begun and are waited for later
        self._kept: tuple[list[torch.Tensor], FlatBuffers] = ([], FlatBuffers([]))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Communicator":
        return self  # the ranks stay the same: a copied model's batch norms use the same communicator

    def __repr__(self) -> str:
        return f"<{self.name} communicator, rank {self.rank} of {self.size}>"

    def sum(self, buffer: torch.Tensor) -> None:
        """Sum a flat buffer over all ranks, in place: the one method that a subclass must define. All ranks call it.

        buffer: of one dimension, in the host's memory, of the same length and dtype on all ranks.
        """
        allreduce(self.comm, buffer)

    def broadcast_parameters(self, model: Model, root: int = 0) -> None:
        """Copy the parameters of rank `root`, and a module's buffers, to every rank. All ranks call it.

        model: a module, or its tensors, by name or in a list; the same on all ranks.
        root: a rank, the same on all ranks.
        Raises ValueError where `root` is no rank.
        """
        if not 0 <= root < self.size:
            raise ValueError(f"root={root}, but there are ranks 0 to {self.size - 1}")
        with torch.no_grad():
            for tensor in all_tensors(model).values():
                if readable_by_mpi(self.comm, tensor):
                    self.comm.Bcast(tensor.detach(), root)
                    continue
                with on_host(tensor) as buffer:
                    broadcast(self.comm, buffer, root)

    def mean_gradients(self, model: Model) -> None:
        """Replace every parameter's gradient by its mean over all ranks. All ranks call it, after backward.

        model: a module, or its parameters, by name or in a list; the same on all ranks. A gradient that a rank does not
        have (None) counts as zeros. Afterwards gradients are views of one flat buffer for each dtype; the next call
        writes to it.
        Raises ValueError for a sparse gradient.
        """
        parameters = list(trained_parameters(model).values())
        flat = self._flat_buffers(parameters)
        flat.fill([p.grad for p in parameters], 1 / self.size)
        for buffer in flat.buffers:
            self.allreduce(buffer)
        for p, view in zip(parameters, flat.views, strict=True):
            p.grad = view

    def mean_parameters(self, model: Model) -> None:
        """Replace every trained parameter by its mean over all ranks. All ranks call it.

        model: a module, or its parameters, by name or in a list; the same on all ranks.
        """
        parameters = list(trained_parameters(model).values())
        flat = FlatBuffers(parameters)  # not the buffers that may hold gradients
        flat.fill([p.detach() for p in parameters], 1 / self.size)
        for buffer in flat.buffers:
            self.allreduce(buffer)
        with torch.no_grad():
            for p, view in zip(parameters, flat.views, strict=True):
                p.copy_(view)

    def mean(self, value: Any) -> Any:
        """Return the mean of a number over all ranks, with its type. All ranks call it.

        value: a number, or a tensor with one element, of any shape.
        """
        element = value.item() if isinstance(value, torch.Tensor) else value
        buffer = torch.tensor([element], dtype=torch.float64)
        naive_allreduce(self.comm, buffer)
        mean = buffer.item() / self.size
        return torch.full_like(value.detach(), mean) if isinstance(value, torch.Tensor) else mean

    def allreduce(self, buffer: torch.Tensor) -> None:
        """Sum a flat buffer over all ranks, in place, on whichever device it is. All ranks call it.

        buffer: of one dimension, of the same length and dtype on all ranks; on the CPU or a GPU. On a GPU whose memory
        MPI reads, MPI's own algorithm sums it, because ours add up in the host's memory.
        """
        if readable_by_mpi(self.comm, buffer):
            self.comm.Allreduce(mpi_of(self.comm).IN_PLACE, buffer)
            return
        with on_host(buffer) as there:
            self.sum(there)

    def exchange(self, doing: str, *numbers: int, meanwhile: Callable[[], object] = nothing) -> list[tuple[int, ...]]:
        """Return the numbers that each rank gave: a tuple for each rank, in the order of ranks. All ranks call it.

        doing: what this rank is about to do; only a `CheckedCommunicator` compares it.
        numbers: equally many on all ranks.
        meanwhile: only a `CheckedCommunicator` calls it, while this rank waits.
        """
        return self.comm.allgather(numbers)

    def check_equal(
        self, model: Model, optimizer: Mapping[str, torch.Tensor] | None = None, doing: str = "averages gradients"
    ) -> None:
        """Raise ValueError, on every rank, where ranks' parameters differ in value. Here nothing is compared.

        model: a module, or its parameters, by name or in a list.
        optimizer: options and state of its optimizer, by name.
        doing: for the errors of a `CheckedCommunicator`.
        """

    # A communicator that averages during backward overrides the following; without buckets there is nothing to do.

    def attach(self, model: Model) -> None:
        """Prepare for these parameters' gradients: averaging during backward begins here. All ranks call it.

        model: a module, or its parameters, by name or in a list; the same on all ranks.
        """

    def detach(self) -> None:
        """Undo `attach`."""

    def check_idle(self) -> None:
        """Raise RuntimeError between a backward pass whose gradients are being averaged and their mean."""

    def drop(self, model: Model) -> None:
        """Forget the gradients of this step. All ranks call it; where none is being averaged, nothing waits.

        model: a module, or its parameters, by name or in a list; the same on all ranks.
        """

    def no_sync(self) -> AbstractContextManager[None]:
        """Let backward passes within only add to this rank's own gradients. Without buckets they always do."""
        return nullcontext()

    def progress(self) -> None:
        """Let all-reduces that are in flight proceed, without waiting. A rank may call it at any time.

        While a rank computes, they proceed only in this call, because there is no thread for them. MPI's own
        non-blocking collectives have the same need, and the same name for it.
        """
        for request in self.in_flight:
            request.test()

    def _flat_buffers(self, parameters: list[torch.Tensor]) -> FlatBuffers:
        """Return the parameters' flat buffers. Only the last ones are kept, because they are as large as the model."""
        if not same_tensors(parameters, self._kept[0]):
            self._kept = parameters, FlatBuffers(parameters)
        return self._kept[1]
