"""A worker: it takes weights from all servers, computes a gradient, and brings each server its part."""

from collections.abc import Callable
from typing import Any

import torch

from mpcourse.collectives.buffers import mpi_buffer
from mpcourse.data_parallel.checked.communicator import CheckedCommunicator
from mpcourse.data_parallel.servers.messages import FAILURE, GRADIENT, LAST, Reason, receive_reason, send_reason
from mpcourse.data_parallel.servers.shards import Shards
from mpcourse.virtual import mpi_of

DOING = "waits for servers"


class Worker:
    """A worker's part of a training, on its own rank.

    communicator: of all servers and workers.
    weights: the shards that hold its copy of the model.
    gradients: the row that `compute` writes a step's gradients to, as long as all shards together.
    compute: computes them; returns the number of a parameter whose gradient is not finite, or None.
    """

    def __init__(
        self,
        communicator: CheckedCommunicator,
        weights: Shards,
        gradients: torch.Tensor,
        compute: Callable[[], int | None],
    ) -> None:
        self.comm, self.aside = communicator.comm, communicator.comm.Dup()
        self.control, self.mpi = communicator.control, mpi_of(communicator.comm)
        self.weights, self.gradients, self.compute = weights, gradients, compute
        self.failure: Reason | None = None

    def run(self) -> None:
        """Work until all servers have announced the last step. `failure` says why, if that was too early."""
        serving = list(range(len(self.weights.lengths)))
        coming = self._receive(serving)
        while serving := self._arrive(coming):
            if self.failure is None:
                bad = self.compute()
                self.failure = None if bad is None else (self.comm.rank, bad)
            coming = self._receive(serving)  # first, so that no answer has to wait
            self._push(serving)

    def _receive(self, servers: list[int]) -> list[tuple[int, Any]]:
        return [(s, self.comm.Irecv(mpi_buffer(self.weights.piece(s)), s)) for s in servers]

    def _arrive(self, coming: list[tuple[int, Any]]) -> list[int]:
        """Wait for these weights. Return the servers that want another gradient."""
        wanted = []
        for server, request in coming:
            status = self.mpi.Status()
            self.control.wait(request, DOING, status)
            if status.tag == FAILURE:
                self.failure = receive_reason(self.aside, server)
            elif status.tag != LAST:
                wanted.append(server)
        return wanted

    def _push(self, servers: list[int]) -> None:
        sending = []
        for server in servers:
            part = mpi_buffer(self.weights.piece(server, self.gradients))
            sending.append(self.comm.Isend(part, server, GRADIENT if self.failure is None else FAILURE))
            if self.failure is not None:
                sending.append(send_reason(self.aside, server, self.failure))
        for request in sending:
            self.control.wait(request, DOING)
