"""When a server applies what workers bring, and which workers continue: all that differs between kinds of training."""

from dataclasses import dataclass
from typing import Protocol


class Turn(Protocol):
    """A policy at work on one server, for a number of workers, which are numbered from 0."""

    def arrives(self, worker: int, staleness: int) -> tuple[list[int], list[int]]:
        """Decide what the server does when a worker's gradient arrives.

        worker: its number, from 0.
        staleness: number of updates since the weights at which the gradient was computed.
        Returns the workers whose gradients, held until now, are applied together, as their mean; and the workers that
        are answered afterwards. If a worker is answered and its gradient was not applied, the gradient is dropped.
        """
        ...


class Policy(Protocol):
    """When a server applies gradients, and which workers continue."""

    def begin(self, workers: int) -> Turn:
        """Return the policy at work on one server.

        workers: their number, 1 or more.
        Raises ValueError where the policy makes no sense for so many workers.
        """
        ...


@dataclass(frozen=True)
class Synchronous(Policy):
    """Each update is the mean of all workers' gradients, and all workers wait for it.

    backup: number of workers that are not waited for. An update is made of the first gradients that arrive, and later
    ones are dropped (Chen et al., "Revisiting Distributed Synchronous SGD", 2016).
    """

    backup: int = 0

    def begin(self, workers: int) -> Turn:
        if not 0 <= self.backup < workers:
            raise ValueError(f"backup={self.backup}: of {workers} workers, 0 to {workers - 1} may come too late")
        return SynchronousTurn(workers - self.backup)


class SynchronousTurn(Turn):
    """`Synchronous` at work on one server.

    wanted: number of gradients that make an update.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.here: list[int] = []

    def arrives(self, worker: int, staleness: int) -> tuple[list[int], list[int]]:
        if staleness:  # it belongs to an update that was made without it
            return [], [worker]
        self.here.append(worker)
        if len(self.here) < self.wanted:
            return [], []
        complete, self.here = sorted(self.here), []  # sorted, so that the sum does not depend on the order of arrival
        return complete, complete


@dataclass(frozen=True)
class Asynchronous(Policy):
    """Each gradient is an update, in order of arrival, and its worker continues at once (Dean et al., 2012)."""

    def begin(self, workers: int) -> Turn:
        return AsynchronousTurn()


class AsynchronousTurn(Turn):
    """`Asynchronous` at work on one server."""

    def arrives(self, worker: int, staleness: int) -> tuple[list[int], list[int]]:
        return [worker], [worker]


@dataclass(frozen=True)
class BoundedStaleness(Policy):
    """Each gradient is an update, in order of arrival; no worker begins a step more than `bound` ahead of the slowest.

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

    workers: their number.
    bound: steps that a worker may be ahead of the slowest.
    """

    def __init__(self, workers: int, bound: int) -> None:
        self.bound, self.steps = bound, [0] * workers  # steps that each has done
        self.waiting: list[int] = []

    def arrives(self, worker: int, staleness: int) -> tuple[list[int], list[int]]:
        self.steps[worker] += 1
        self.waiting.append(worker)
        most = min(self.steps) + self.bound
        free = [w for w in self.waiting if self.steps[w] <= most]
        self.waiting = [w for w in self.waiting if self.steps[w] > most]
        return [worker], free
