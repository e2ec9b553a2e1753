"""What workers of a parameter server computed, and in which order the server says that it took it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mpcourse.course.check.cases.on_models import Finding
from mpcourse.course.check.wrong import Wrong, short

OLD = (
    "Those are older weights. Either the next gradient is computed before the answer is received, or what is received "
    "never gets into the array that gradient is called with: comm.Recv(weights, 0), or weights[:] = comm.recv(...)."
)


STARVES = (
    "Gradients are applied in the order in which they arrive. Does the server begin at the same rank again after each "
    "one, or with the newest? Then others starve. A receive from MPI.ANY_SOURCE takes whoever came first."
)


def near(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(a, b, rtol=1e-9, atol=1e-9)


@dataclass(frozen=True)
class WorkerStep:
    """A gradient that a worker computed. weights: where. begun, ended: when, in seconds."""

    weights: np.ndarray
    gradient: np.ndarray
    begun: float
    ended: float


class Gradient:
    """Worker `rank`'s `gradient`, which takes `seconds` and keeps what it was called with in `steps`.

    It depends on the weights, and in each call on chance, so that no two are equal.
    """

    def __init__(self, rank: int, length: int, clock: Callable[[], float], busy: Callable[[], None]) -> None:
        self.length, self.clock, self.busy = length, clock, busy
        self.draw = np.random.default_rng([rank, length])
        self.slope = self.draw.uniform(0.5, 1.5, length)
        self.steps: list[WorkerStep] = []

    def __repr__(self) -> str:
        return "gradient"

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        if not isinstance(weights, np.ndarray) or weights.shape != (self.length,) or weights.dtype != np.float64:
            got = f"shape {weights.shape}, {weights.dtype}" if isinstance(weights, np.ndarray) else short(weights)
            why = "A gradient is computed at weights: all of them, as the server sent them."
            if weights is None:
                why = "comm.Recv fills the array that it is given and returns nothing. comm.recv returns what came."
            raise Wrong(f"gradient(weights) with an array of shape ({self.length},), float64", got, why)
        seen, begun = weights.copy(), self.clock()
        self.busy()
        gradient = self.slope * seen + self.draw.standard_normal(self.length)
        self.steps.append(WorkerStep(seen, gradient.copy(), begun, self.clock()))
        return gradient


@dataclass(frozen=True)
class Played:
    """What came of one training.

    start, final: the server's weights before and after. order: what `serve` returned. taken: each worker's steps, by
    rank. before, left: each worker's weights before and after, by rank.
    """

    start: np.ndarray
    rate: float
    steps: int
    order: object
    final: np.ndarray
    taken: dict[int, list[WorkerStep]]
    before: dict[int, np.ndarray]
    left: dict[int, np.ndarray]

    @property
    def workers(self) -> int:
        return len(self.taken)


def computed(played: Played) -> Finding | None:
    """Who computed another number of gradients than `steps`."""
    for rank, steps in played.taken.items():
        if len(steps) != played.steps:
            why = "Each round computes one gradient and keeps it in a variable, to be sent."
            if len(steps) == 1 < played.steps:
                why = "Is one gradient sent again and again? Each round calls gradient anew, at the newest weights."
            elif len(steps) < played.steps:
                why = f"`steps` rounds: for _ in range(steps), here {played.steps} of them."
            elif len(steps) == played.steps + 1:
                why = "One round too many, or one more gradient before the loop or after it."
            return Finding(rank, f"{played.steps} calls of gradient on rank {rank}", f"{len(steps)}", why)
    return None


def listed(played: Played, late: float) -> Finding | None:
    """What is wrong with the list that `serve` returned. late: seconds by which a gradient may be taken too late."""
    order, steps = played.order, played.steps
    total, workers = played.workers * steps, sorted(played.taken)
    asked = f"a list of {total} ranks from serve, one for each gradient"
    if order is None:
        return Finding(0, asked, "None", "Is the list returned? `order.append(...)` returns None, too.")
    if not isinstance(order, list | tuple):
        return Finding(
            0, asked, short(order), "Return a list of ints: who sent the first gradient, who sent the second, ..."
        )
    if any(isinstance(rank, bool) or not hasattr(rank, "__index__") for rank in order):
        return Finding(0, asked, short(order), "The ranks are asked as ints: status.Get_source() is one.")
    if any(rank < 0 for rank in order):
        why = "A negative number is MPI.ANY_SOURCE, or a Status that no receive was given. Recv(..., status=status)."
        return Finding(0, asked, short(order), why)
    if len(order) != total:
        why = "One rank for each gradient: append where a gradient is applied, and nowhere else."
        if sorted(order) == workers:
            why = "Each worker is in it once. Who sends several gradients is in it several times."
        elif len(order) < total:
            why += " None is dropped, however old it is."
        return Finding(0, asked, f"{short(order)}: {len(order)} of them", why)
    if total and set(order) == set(range(played.workers)):
        return Finding(
            0, asked, short(order), "Are workers counted from 0? Rank 0 is the server; ranks 1 and above are asked."
        )
    for rank in workers:
        if order.count(rank) != steps:
            why = "A Status tells of the receive that it was given last. Ask it before anything else is received."
            if any(each not in workers for each in order):
                why = "Who sent each gradient is asked, as a rank: rank 0 is the server, and sends none."
            return Finding(0, f"rank {rank} {steps} times in the list from serve", f"{short(order)}", why)
    if (wrong := _not_by_time(played, order, late)) is not None:
        why = "Is the list sorted, or made from range(1, comm.size)? Append who sent the gradient that was applied."
        return Finding(0, "a list from serve in the order in which gradients were applied", wrong, why)
    return None


def in_order(played: Played, order: list[int] | tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(rank, how many of its gradients came before) of each gradient in `order`."""
    before = dict.fromkeys(played.taken, 0)
    for rank in order:
        yield rank, before[rank]
        before[rank] += 1


def out_of_turn(played: Played) -> Finding | None:
    """Who was passed over: while its gradient was there, another worker's were applied twice that came later.

    Once is in order: a server that asks each rank in turn cannot know who came first, and nobody starves by it. Only
    where what `serve` returned is a right list, and right by `valued`, too.
    """
    turns = list(in_order(played, played.order))  # type: ignore[arg-type]
    for at, (rank, k) in enumerate(turns):
        there = played.taken[rank][k].ended
        for other in played.taken:
            later = [j for r, j in turns[:at] if r == other != rank and played.taken[r][j].ended > there]
            if len(later) > 1:
                first, last = later[0] + 1, later[-1] + 1
                asked = f"rank {rank}'s gradient number {k + 1} first, for it came before rank {other}'s number {first}"
                got = f"rank {other}'s numbers {first} to {last} were applied before it"
                return Finding(0, asked, got, STARVES)
    return None


def _not_by_time(played: Played, order: list[int] | tuple[int, ...], late: float) -> str | None:
    """Two in the list of which the later one came earlier."""
    turns = list(in_order(played, order))
    for i, (a, b) in enumerate(zip(turns, turns[1:], strict=False)):
        ended = [played.taken[rank][k].ended for rank, k in (a, b)]
        if ended[1] < ended[0] - late:
            return (
                f"{short(list(order))}: but number {i + 2}, rank {b[0]}'s, arrived before number {i + 1}, rank {a[0]}'s"
            )
    return None
