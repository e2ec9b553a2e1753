"""When a server applies what workers bring, and whom it lets go on: all that tells synchronous from asynchronous."""

from dataclasses import dataclass
from typing import Protocol


class Turn(Protocol):
    """A policy at work on one server, for so many workers, which are numbered from 0."""

    def arrives(self, worker: int, staleness: int) -> tuple[list[int], list[int]]:
        """A worker's gradient is there: what the server does now.

        worker: its number, from 0.
        staleness: how many updates were made since the weights that the gradient was computed at.
        Returns whose gradients, held until now, are applied together, as their mean; and who is answered afterwards. Of
        a worker that is answered without its gradient having been applied, that gradient is dropped.
        """
        ...


class Policy(Protocol):
    """When a server applies gradients, and whom it lets go on."""

    def begin(self, workers: int) -> Turn:
        """The policy at work on one server.

        workers: how many there are, 1 or more.
        Raises ValueError where the policy makes no sense for so many workers.
        """
        ...


@dataclass(frozen=True)
class Synchronous(Policy):
    """An update is the mean of all workers' gradients, and all of them wait for it.

    backup: so many are not waited for. An update is made of the first that are there, and what comes later is dropped
    (Chen et al., "Revisiting Distributed Synchronous SGD", 2016).
    """

    backup: int = 0

    def begin(self, workers: int) -> Turn:
        if not 0 <= self.backup < workers:
            raise ValueError(f"backup={self.backup}: of {workers} workers, 0 to {workers - 1} may come too late")
        return SynchronousTurn(workers - self.backup)


class SynchronousTurn(Turn):
    """`Synchronous` at work on one server.

    wanted: an update is made of so many gradients.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.here: list[int] = []

    def arrives(self, worker: int, staleness: int) -> tuple[list[int], list[int]]:
        if staleness:  # of an update that was made without it
            return [], [worker]
        self.here.append(worker)
        if len(self.here) < self.wanted:
            return [], []
        complete, self.here = sorted(self.here), []  # sorted: the sum does not depend on which came first
        return complete, complete


@dataclass(frozen=True)
class Asynchronous(Policy):
    """Each gradient is an update, as it comes, and its worker goes on at once (Dean et al., 2012)."""

    def begin(self, workers: int) -> Turn:
        return AsynchronousTurn()


class AsynchronousTurn(Turn):
    """`Asynchronous` at work on one server."""

    def arrives(self, worker: int, staleness: int) -> tuple[list[int], list[int]]:
        return [worker], [worker]


@dataclass(frozen=True)
class BoundedStaleness(Policy):
    """Each gradient is an update, as it comes; no worker begins a step while it is over `bound` steps ahead of the
    slowest.

    bound: steps, 0 or more. With 0 all workers begin each step together. Source: Ho et al., "More Effective Distributed
    ML via a Stale Synchronous Parallel Parameter Server", 2013.
    """

    bound: int

    def begin(self, workers: int) -> Turn:
        if self.bound < 0:
            raise ValueError(f"bound={self.bound}: a worker can be 0 or more steps ahead")
        return BoundedTurn(workers, self.bound)


class BoundedTurn(Turn):
    """`BoundedStaleness` at work on one server.

    workers: how many there are.
    bound: steps that a worker may be ahead of the slowest.
    """

    def __init__(self, workers: int, bound: int) -> None:
        self.bound, self.steps = bound, [0] * workers  # that each has done
        self.waiting: list[int] = []

    def arrives(self, worker: int, staleness: int) -> tuple[list[int], list[int]]:
        self.steps[worker] += 1
        self.waiting.append(worker)
        most = min(self.steps) + self.bound
        free = [w for w in self.waiting if self.steps[w] <= most]
        self.waiting = [w for w in self.waiting if self.steps[w] > most]
        return [worker], free
