"""A server: it holds some of the weights, takes gradients from workers, and answers with new weights."""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from mpcourse.collectives.buffers import mpi_buffer
from mpcourse.data_parallel.checked.communicator import CheckedCommunicator
from mpcourse.data_parallel.servers.messages import FAILURE, GO_ON, LAST, Reason, receive_reason, send_reason
from mpcourse.data_parallel.servers.policies import Turn
from mpcourse.data_parallel.servers.record import Push
from mpcourse.virtual import mpi_of

DOING = "waits for workers"


class Server:
    """A server's part of a training, on its own rank.

    communicator: of all servers and workers.
    weights: one row, floating point, changed in place by `optimizer`.
    optimizer: `weights` is its only parameter.
    turn: the policy's, which numbers workers 0, 1, ...
    workers: their ranks, which are consecutive.
    updates: number of updates after which all workers are stopped.
    on_update: called after each update, with its number, or None.
    clock: returns seconds since the training began.
    """

    def __init__(
        self,
        communicator: CheckedCommunicator,
        weights: torch.Tensor,
        optimizer: torch.optim.Optimizer,
        turn: Turn,
        workers: list[int],
        updates: int,
        on_update: Callable[[int], None] | None,
        clock: Callable[[], float],
    ) -> None:
        self.comm, self.aside = communicator.comm, communicator.comm.Dup()
        self.control, self.mpi = communicator.control, mpi_of(communicator.comm)
        self.weights, self.optimizer, self.turn = weights, optimizer, turn
        self.workers, self.updates, self.on_update, self.clock = workers, updates, on_update, clock
        self.version = 0  # updates made
        self.given = dict.fromkeys(workers, 0)  # the version that each worker has
        self.computing = set[int]()  # workers that have been answered, and will send another gradient
        self.coming = deque[tuple[Any, torch.Tensor]]()  # a receive for each of them, from any worker
        self.held: dict[int, torch.Tensor] = {}  # gradients that have arrived, whose workers have no answer yet
        self.free: list[torch.Tensor] = []  # rows that can receive gradients
        self.pushes: list[Push] = []
        self.failure: Reason | None = None

    def run(self) -> None:
        """Serve until all workers have been stopped. `failure` says why, if that was before the last update."""
        self._answer(self.workers)
        while self.coming:
            request, row = self.coming.popleft()
            status = self.mpi.Status()
            self.control.wait(request, DOING, status)
            worker = status.source
            if status.tag == FAILURE:
                self.failure = receive_reason(self.aside, worker)
            self.computing.discard(worker)
            self.held[worker] = row
            self._take(worker)

    def _receive(self) -> None:
        """Begin to receive from all workers that compute, so that gradients arrive while answers are sent."""
        while len(self.coming) < len(self.computing):
            row = self.free.pop() if self.free else torch.empty_like(self.weights)
            self.coming.append((self.comm.Irecv(mpi_buffer(row), self.mpi.ANY_SOURCE), row))

    def _take(self, worker: int) -> None:
        """Use what `worker` has brought, or keep it, or drop it; answer the workers that may continue."""
        staleness = self.version - self.given[worker]
        over = self.failure is not None or self.version == self.updates
        first = self.workers[0]
        used, free = ([], [worker - first]) if over else self.turn.arrives(worker - first, staleness)
        applied = [w + first for w in used]
        self.pushes.append(Push(worker, staleness, not over and (worker in applied or not free), self.clock()))
        if applied:
            self._update(applied)
        over = self.failure is not None or self.version == self.updates
        self._answer(sorted(self.held) if over else [w + first for w in free])

    def _update(self, workers: list[int]) -> None:
        """Apply the mean of these workers' gradients."""
        mean = self.held[workers[0]]
        for worker in workers[1:]:
            mean += self.held[worker]
        self.weights.grad = mean.div_(len(workers)) if len(workers) > 1 else mean
        self.optimizer.step()
        self.weights.grad = None
        self.version += 1
        if self.on_update is not None:
            self.on_update(self.version)

    def _answer(self, workers: list[int]) -> None:
        """Send the newest weights, and wait until they are sent: the next update writes to the same memory."""
        tag = FAILURE if self.failure is not None else LAST if self.version == self.updates else GO_ON
        # Begin with another worker each time, because the first of several has its answer before the others.
        turn = self.version % len(workers) if workers else 0
        sending = []
        for worker in workers[turn:] + workers[:turn]:
            sending.append(self.comm.Isend(mpi_buffer(self.weights.detach()), worker, tag))
            if self.failure is not None:
                sending.append(send_reason(self.aside, worker, self.failure))
            self.given[worker] = self.version
            if tag == GO_ON:
                self.computing.add(worker)
            if (row := self.held.pop(worker, None)) is not None:
                self.free.append(row)
        self._receive()
        for request in sending:
            self.control.wait(request, DOING)
