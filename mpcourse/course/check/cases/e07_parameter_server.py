"""What e07_parameter_server is asked: on virtual ranks values, who waits for whom, and bytes; on real ones, values."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding
from mpcourse.course.check.cases.on_updates import Gradient, Played, WorkerStep, computed, listed, out_of_turn
from mpcourse.course.check.cases.on_updates_values import repeated, valued
from mpcourse.course.check.facts.ranks import pickles
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

RATE = 0.1
SLOW = 5.3  # seconds for a gradient of a slow worker; others take 1 and a bit, no two alike
ROOM = 600  # bytes that a message may have besides its array: for pickling, for a rank beside the gradient
# Ranks, steps, length, slow ranks. Two workers tell most; one makes mistakes that tell less.
CASES = (
    (3, 7, 4, (1,)),
    (3, 7, 4, (2,)),
    (3, 0, 3, ()),
    (2, 3, 5, ()),
    (2, 0, 2, ()),
    (4, 4, 1, (2,)),
    (3, 3, 4000, (2,)),
    (4, 3, 6, None),  # all equally fast: gradients come at once
    (7, 3, 3, (1, 4)),
    (7, 1, 2, (6,)),
)
# Answers so slow that gradients of all others come while the server sends one. All of it takes milliseconds, and so
# nothing is asked of how long a worker waits, but who is next.
ANSWER = 200e-6  # seconds; a gradient is computed in 50e-6 at most, and under way for 30e-6
WAITING = ((4, 5, 4), (6, 4, 3))  # ranks, steps, length
# Sends do not wait, and the first worker is held up after each: if two workers send two messages each, the first
# one's first is there first, then both of the second, then the first one's second.
CROSSED = (3, 4, 5)  # ranks, steps, length
HELD_UP = 0.01  # seconds
TWO_MESSAGES = (
    "A gradient was taken for another worker's: where a worker sends two messages and the server takes each from any "
    "rank, they may be two workers'. Take the second from the rank that sent the first, or send one message, whose "
    "Status says who sent it."
)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for size, steps, length, slow in CASES:
        _virtually(answer, comm, size, steps, length, {r: _seconds(r, slow) for r in range(1, size)})
    for size, steps, length in WAITING:  # the highest rank comes first, and the lowest last
        _virtually(answer, comm, size, steps, length, {r: 1e-5 * (size - r) for r in range(1, size)}, ANSWER)
    _virtually(answer, comm, *CROSSED, {1: 1.0, 2: 1.001}, crossed=True)


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    if comm.size == 1:
        return  # a server without a worker is not asked for
    # What goes through another communicator than this goes wrong here.
    backwards = cast("TracedComm", comm.Split(0, -comm.rank))
    for ranks, steps, length in ((comm, 5, 7), (comm, 3, 20_003), (backwards, 4, 5), (backwards, 0, 3)):
        if not _really(answer, ranks, steps, length):
            return


class _HeldUp:
    """A communicator on whose rank 1 something else runs after each send, as on any machine it may."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._comm, name)
        if self._comm.rank != 1 or not name.lower().endswith("send"):
            return method

        def send(*args: Any, **options: Any) -> Any:
            sent = method(*args, **options)
            self._comm.compute(HELD_UP)
            return sent

        return send


def _weights(rank: int, length: int) -> np.ndarray:
    """What is in a rank's weights before: of rank 0 the model, of others something that must not be used."""
    if rank == 0:
        return np.random.default_rng(length).standard_normal(length)
    return 1000.0 * rank + np.arange(length)


def _seconds(rank: int, slow: tuple[int, ...] | None) -> float:
    if slow is None:
        return 1.0
    return SLOW + 0.1 * rank if rank in slow else 1.0 + 0.13 * rank


def _virtually(
    answer: Answer,
    comm: HasStatusPage,
    size: int,
    steps: int,
    length: int,
    seconds: dict[int, float],
    answers: float | None = None,
    crossed: bool = False,
) -> None:
    """seconds: what a gradient takes each worker. answers: what an answer takes at least; None: as long as others.
    crossed: whether messages of two workers arrive crosswise.
    """
    from mpcourse.course.check.cases.on_updates_waits import LATE, explained, held_up
    from mpcourse.course.check.virtual_run import LINK, OnVirtualRank, virtually
    from mpcourse.virtual import LINKS, MPI, ClusterError, Topology

    workers = range(1, size)
    slower = {} if answers is None else {(0, rank): replace(LINKS[LINK], latency=answers) for rank in workers}
    weights = [_weights(rank, length) for rank in range(size)]
    gradients = {
        rank: Gradient(rank, length, MPI.Wtime, lambda rank=rank: MPI.COMM_WORLD.compute(seconds[rank]))  # type: ignore[misc]
        for rank in workers
    }
    arguments = [(weights[0], RATE, steps)] + [(weights[rank], gradients[rank], steps) for rank in workers]
    try:
        ran = virtually(
            answer,
            comm,
            lambda rank: "work" if rank else "serve",
            size,
            lambda rank: arguments[rank],
            changes=lambda given: given[:1],
            link=Topology(between=LINK, links=slower),
            eager=1 << 20 if crossed else 0,
            comm_of=_HeldUp if crossed else lambda comm: comm,
        )
    except OnVirtualRank as error:
        if isinstance(error.error, ClusterError):
            kept = {r: not g.steps or np.array_equal(weights[r], g.steps[-1].weights) for r, g in gradients.items()}
            error.error = explained(error.error, gradients, kept, steps)
        raise
    taken = {rank: gradient.steps for rank, gradient in gradients.items()}
    played = _played(steps, length, ran.results[0], weights, taken)
    if crossed:
        if finding := computed(played) or listed(played, float("inf")) or valued(played):
            raise ran.wrong(*finding._replace(why=TWO_MESSAGES))
        return
    finding = (
        computed(played)
        or repeated(played)
        or held_up(ran.run, gradients, seconds)
        or listed(played, LATE)
        or valued(played)
        or out_of_turn(played)
        or _bytes(ran, steps, 8 * length)
    )
    if finding:
        raise ran.wrong(*finding)


def _played(
    steps: int, length: int, order: Any, weights: Sequence[np.ndarray], taken: dict[int, list[WorkerStep]]
) -> Played:
    """What happened, for those who judge it. order: what `serve` returned. weights: each rank's in the end."""
    before = {rank: _weights(rank, length) for rank in taken}
    after = {rank: weights[rank] for rank in taken}
    return Played(_weights(0, length), RATE, steps, order, weights[0], taken, before, after)


def _bytes(ran: "Ran", steps: int, nbytes: int) -> Finding | None:
    """What is sent besides one gradient and one answer a step."""
    traffic = ran.run.traffic
    for rank in range(1, ran.run.size):
        for other in range(1, ran.run.size):
            if traffic[rank, other]:
                why = "A worker talks to the server only, and need not know which others there are."
                return Finding(
                    rank, f"no message from rank {rank} to rank {other}", f"{traffic[rank, other]} bytes", why
                )
        for a, b, what in ((rank, 0, "gradient"), (0, rank, "answer")):
            if traffic[a, b] > (steps + 1) * (nbytes + ROOM):  # who asks for the first weights, may ask at length
                why = f"One {what} for each step, of {nbytes} bytes: what else is sent, or is it sent twice?"
                if pickles(ran):
                    why += " Lower-case methods pickle all of the object that they are given."
                asked = f"about {steps * nbytes} bytes from rank {a} to rank {b} in {steps} steps"
                return Finding(a, asked, f"{traffic[a, b]} bytes", why)
    return None


def _really(answer: Answer, comm: "TracedComm", steps: int, length: int) -> bool:
    """On real ranks; whether all is well. Every rank must call this."""
    from mpi4py import MPI  # this makes a process a rank

    elsewhere = MPI.COMM_WORLD.begun  # type: ignore[attr-defined]
    rank, slow = comm.rank, comm.size - 1
    weights = _weights(rank, length)
    pause = 0.02 if rank == slow else 0.002
    gradient = Gradient(rank, length, time.perf_counter, lambda: time.sleep(pause))
    if rank == 0:
        result = answer.call("serve", comm, weights, RATE, steps, changes=(weights,))
    else:
        result = answer.call("work", comm, weights, gradient, steps, changes=(weights,))
    elsewhere = MPI.COMM_WORLD.begun - elsewhere  # type: ignore[attr-defined]
    if elsewhere:
        why = "Use the `comm` that is given: its ranks may be others."
        raise Wrong("all calls to go through comm", f"{counted(elsewhere, 'call')} through MPI.COMM_WORLD", why)
    everyone = MPI.Intracomm(comm).allgather((weights, gradient.steps, result))  # our own, and so not watched
    taken = {r: everyone[r][1] for r in range(1, comm.size)}
    played = _played(steps, length, everyone[0][2], [own for own, _, _ in everyone], taken)
    finding = computed(played) or repeated(played) or listed(played, float("inf")) or valued(played)
    if finding and finding.rank == rank:
        longest = max(length for _, _, length, _ in CASES)
        why = f"{finding.why} It is right on virtual ranks, with arrays of up to {longest} numbers."
        raise Wrong(finding.asked, finding.got, why)
    return not finding
