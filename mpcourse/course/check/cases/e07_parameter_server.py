"""What e07_parameter_server is asked: on virtual ranks values, who waits for whom, and bytes; on real ones, values."""

import functools
import itertools
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.ranks import pickles, rebinds
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Finding, Test, always, demand, judge, why_of
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran
    from mpcourse.virtual import ClusterError, Event

# -- inputs --

RATE = 0.1
SLOW = 5.3  # seconds for a gradient of a slow worker; others take 1 and a bit, no two alike
PATIENCE = 1.0  # seconds a worker may wait for an answer, where gradients take 1 and more, and messages 0.0001
# A server that asks one worker after the other by Iprobe, asks less and less often while nothing comes.
LATE = 0.5  # seconds by which such a server may take a gradient too late
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


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    for size, steps, length, slow in CASES:
        _virtually(answer, comm, size, steps, length, {r: _seconds(r, slow) for r in range(1, size)})
    for size, steps, length in WAITING:  # the highest rank comes first, and the lowest last
        _virtually(answer, comm, size, steps, length, {r: 1e-5 * (size - r) for r in range(1, size)}, ANSWER)
    _virtually(answer, comm, *CROSSED, {1: 1.0, 2: 1.001}, crossed=True)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    if comm.size == 1:
        return  # a server without a worker is not asked for
    # What goes through another communicator than this goes wrong here.
    backwards = cast("TracedComm", comm.Split(0, -comm.rank))
    for ranks, steps, length in ((comm, 5, 7), (comm, 3, 20_003), (backwards, 4, 5), (backwards, 0, 3)):
        if not _really(answer, ranks, steps, length):
            return


class _Hurried:
    """A communicator as ranks may see it anywhere.

    Something else runs after each send of rank 1, and a message may be written into the buffer of an Irecv at once.
    """

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._comm, name)

        def call(*args: Any, **options: Any) -> Any:
            buffer = args[0] if args else options.get("buf")
            buffer = buffer[0] if isinstance(buffer, list | tuple) else buffer
            if name == "Irecv" and isinstance(buffer, np.ndarray) and buffer.dtype.kind == "f":
                buffer.fill(math.nan)
            made = method(*args, **options)
            self._comm.compute(HELD_UP if self._comm.rank == 1 and name.lower().endswith("send") else 0.0)
            return made

        return call if callable(method) and name.lower().endswith(("send", "irecv")) else method


def _weights(rank: int, length: int) -> np.ndarray:
    """Return a rank's weights before the call: the model on rank 0, on other ranks what must not be used."""
    if rank == 0:
        return np.random.default_rng(length).standard_normal(length)
    return 1000.0 * rank + np.arange(length)


def _seconds(rank: int, slow: tuple[int, ...] | None) -> float:
    if slow is None:
        return 1.0
    return SLOW + 0.1 * rank if rank in slow else 1.0 + 0.13 * rank


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
        demand([ARGUMENT], SimpleNamespace(got=weights, length=self.length))
        seen, begun = weights.copy(), self.clock()
        self.busy()
        gradient = self.slope * seen + self.draw.standard_normal(self.length)
        self.steps.append(WorkerStep(seen, gradient.copy(), begun, self.clock()))
        return gradient


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
    """Check the answer on virtual ranks.

    seconds: how long a gradient takes each worker. answers: how long an answer takes at least; None: as long as other
    messages. crossed: whether messages of two workers arrive crosswise.
    """
    from mpcourse.course.check.virtual_run import LINK, OnVirtualRank, virtually
    from mpcourse.virtual import LINKS, MPI, ClusterError, Topology

    workers = range(1, size)
    slower = {} if answers is None else {(0, rank): replace(LINKS[LINK], latency=answers) for rank in workers}
    weights = [_weights(rank, length) for rank in range(size)]
    gradients = {
        rank: Gradient(rank, length, MPI.Wtime, lambda rank=rank: MPI.COMM_WORLD.compute(seconds[rank]))  # type: ignore[misc]
        for rank in workers
    }
    taken = {rank: gradient.steps for rank, gradient in gradients.items()}
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
            comm_of=_Hurried if crossed else lambda comm: comm,
        )
    except OnVirtualRank as failed:
        if isinstance(failed.error, ClusterError):
            failed.error = _explained(failed.error, taken, weights, steps)
        raise
    played = Played(steps, ran.results[0], weights, taken, ran.source, math.inf if crossed else LATE, crossed)
    if crossed:
        finding = judge([COUNTS], *played.workers) or judge(LIST, played) or _wrong_values(played)
        two = finding and (ran.run.messages[1:, 0] >= 2 * steps).all()
        ran.demand(finding._replace(why=TWO_MESSAGES) if finding and two else finding)
        return
    ran.demand(
        judge([COUNTS], *played.workers)
        or _repeated(played)
        or judge([WAITS], *_waits(ran, taken, seconds))
        or judge(LIST, played)
        or _wrong_values(played)
        or judge([TURNS], *played.turns)
        or judge(MESSAGES, *[_sent(ran, a, b, steps, 8 * length) for a in (*workers, 0) for b in (*workers, 0)])
    )


def _really(answer: Answer, comm: "TracedComm", steps: int, length: int) -> bool:
    """Return whether all is well on real ranks. Every rank must call this."""
    from mpi4py import MPI  # this makes a process a rank

    elsewhere = MPI.COMM_WORLD.begun  # type: ignore[attr-defined]
    rank, slow = comm.rank, comm.size - 1
    weights = _weights(rank, length)
    pause = 0.02 if rank == slow else 0.002
    gradient = Gradient(rank, length, time.perf_counter, lambda: time.sleep(pause))
    name, what = ("work", gradient) if rank else ("serve", RATE)
    result = answer.call(name, comm, weights, what, steps, changes=(weights,))
    elsewhere = MPI.COMM_WORLD.begun - elsewhere  # type: ignore[attr-defined]
    demand([ELSEWHERE], SimpleNamespace(calls=elsewhere, shown=counted(elsewhere, "call")))
    everyone = MPI.Intracomm(comm).allgather((weights, gradient.steps, result))  # our own, and so not watched
    taken = {r: everyone[r][1] for r in range(1, comm.size)}
    weights_of = [own for own, _, _ in everyone]
    played = Played(steps, everyone[0][2], weights_of, taken, answer.path.read_text(), math.inf)
    finding = judge([COUNTS], *played.workers) or _repeated(played) or judge(LIST, played) or _wrong_values(played)
    if finding and finding.rank == rank:
        longest = max(length for _, _, length, _ in CASES)
        why = f"{finding.why} It is right on virtual ranks, with arrays of up to {longest} numbers."
        raise Wrong(finding.asked, finding.got, why)
    return not finding


# -- facts: values --


def near(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays differ by rounding alone."""
    return np.allclose(a, b, rtol=1e-9, atol=1e-9)


Way = Callable[["Played", list[np.ndarray], list[WorkerStep]], np.ndarray]  # of versions and steps, the next version


@dataclass(frozen=True)
class Played:
    """What came of one training, on the server.

    order: what `serve` returned. weights: each rank's in the end. taken: each worker's steps, by rank. source: the text
    of the learner's file. late: seconds by which the server may take a gradient too late. hurried: whether ranks had
    a _Hurried communicator.
    """

    steps: int
    order: Any
    weights: Sequence[np.ndarray]
    taken: dict[int, list[WorkerStep]]
    source: str
    late: float
    hurried: bool = False

    rank = 0
    rate = RATE
    start = property(lambda self: _weights(0, len(self.final)))
    final = property(lambda self: self.weights[0])
    n_workers = property(lambda self: len(self.taken))
    workers = property(lambda self: [Taken(rank, self, rank) for rank in self.taken])

    @functools.cached_property
    def turns(self) -> list["Taken"]:
        """Each gradient, in the order in which the server says that it took them."""
        return [Taken(0, self, r, self.order[:at].count(r), at) for at, r in enumerate(self.order)]

    def versions(self, way: Way) -> list[np.ndarray]:
        """Return the weights from the start on, after each update by `way`."""
        versions, steps = [self.start], []
        for turn in self.turns:
            steps.append(turn.step)
            versions.append(way(self, versions, steps))
        return versions

    @functools.cached_property
    def right(self) -> list[np.ndarray]:
        return self.versions(lambda p, v, s: v[-1] - p.rate * s[-1].gradient)

    # The list from serve.

    total = property(lambda self: self.n_workers * self.steps)
    is_list = property(lambda self: isinstance(self.order, list | tuple))
    is_ints = property(lambda self: all(hasattr(r, "__index__") and not isinstance(r, bool) for r in self.order))
    miscounted = property(lambda self: next((r for r in self.taken if self.order.count(r) != self.steps), None))

    @property
    def too_late(self) -> int | None:
        """The place in the list of a gradient that was there before the one that is named before it."""
        ended = [turn.step.ended for turn in self.turns]
        return next((i for i, (a, b) in enumerate(itertools.pairwise(ended), 1) if b < a - self.late), None)

    unchanged = property(lambda self: near(self.final, self.start))
    shorter = property(lambda self: _shorter(self.final, self.right[-1], self.start))

    @property
    def lag(self) -> str:
        """How old the weights in the end are, if they are any."""
        lost = self.total - (_version(self.final, self.right) or 0)
        known = not self.mistake and _version(self.final, self.right) is not None
        missing = f": the last {lost} of {self.total} gradients are missing" if known else ""
        return ", as before" if self.unchanged else missing

    @functools.cached_property
    def mistake(self) -> str:
        """The first sentence in WAYS whose way explains all weights, those that workers were sent and the last."""
        return next((why for why, way in WAYS.items() if self._explained_by(way)), "")

    def _explained_by(self, way: Way) -> bool:
        others = self.versions(way)
        sent = all(turn.version(others) is not None for turn in self.turns)
        return sent and any(near(self.final, end) for end in (others[-1], self.start))

    @property
    def update(self) -> tuple[str, str]:
        """What was asked, and what came, in the first update in which the mistake shows."""
        others = self.versions(WAYS[self.mistake])
        at = next((v for v, (a, b) in enumerate(zip(self.right, others, strict=True)) if not near(a, b)), 0)
        i = int(np.abs(self.right[at] - others[at]).argmax())
        fro, to = self.right[at - 1][i], self.right[at][i]
        asked = f"weights[{i}] to go from {fro:.6g} to {to:.6g} with gradient {at}, rank {self.order[at - 1]}'s"
        return f"{asked}, learning_rate {self.rate:g}", f"workers were sent {others[at][i]:.6g}"


@dataclass(frozen=True)
class Taken:
    """A worker's gradient number k, from 0, and its answer, seen from `rank`. at: how many were applied before."""

    rank: int
    played: Played
    worker: int
    k: int = 0
    at: int = 0

    steps = property(lambda self: self.played.taken[self.worker])
    step = property(lambda self: self.steps[self.k])
    last = property(lambda self: self.steps[self.k - 1])
    left = property(lambda self: self.played.weights[self.worker])
    ends = property(lambda self: (self.left, self.versions[self.own[-1]]))  # its weights, and what they must be
    number = property(lambda self: self.k + 1)
    repeats = property(lambda self: self.k > 0 and near(self.last.weights, self.step.weights))

    # Versions of the server's weights: number v is what v gradients have made of them.

    versions = property(lambda self: self.played.right)
    own = property(lambda self: [0, *(at + 1 for at, r in enumerate(self.played.order) if r == self.worker)])
    asked = property(lambda self: self.versions[self.own[self.k]])
    older = property(lambda self: _version(self.step.weights, self.versions[: self.own[self.k]]) if self.k else None)
    answer = property(lambda self: self.steps[self.number].weights if self.number < len(self.steps) else self.left)
    answered = property(lambda self: _version(self.answer, self.versions, self.at + 1))
    kept = property(lambda self: near(self.left, self.versions[-1]) or _version(self.left, self.versions, self.own[-1]))
    untouched = property(lambda self: near(self.left, _weights(self.worker, len(self.left))))
    outdated = property(lambda self: _version(self.left, self.versions) is not None)
    without_last = property(lambda self: len(self.steps) > 1 and near(self.left, self.steps[-1].weights))
    rebound = property(lambda self: rebinds(self.played.source, "work", 1))

    def version(self, versions: Sequence[np.ndarray]) -> int | None:
        """Which of these the gradient was computed at, if that is one of those which the worker may have been sent."""
        return _version(self.step.weights, versions[: self.at + 1], self.own[self.k])

    @property
    def answered_first(self) -> bool:
        """Whether all answers are the weights without the gradient that is answered."""
        return all(near(t.step.weights, t.versions[t.own[t.k] - 1]) for t in self.played.turns if t.k)

    @property
    def shorter(self) -> str:
        sent = self.versions[self.own[self.k] : self.at + 1]
        return next(filter(None, (_shorter(self.step.weights, v, self.played.start) for v in sent)), "")

    @property
    def moved(self) -> bool:
        """Whether the worker has applied its own gradient to what it was sent, or to what it had."""
        bases = [self.step.weights + rate * self.last.gradient for rate in (1.0, self.played.rate)]
        own = self.own[self.k]
        return any(_version(b, self.versions, own) is not None or near(b, self.last.weights) for b in bases)

    @property
    def factors(self) -> str:
        """What gradients since the last one were multiplied with; empty where nothing fits."""
        base, end = self.last.weights, self.own[self.k]
        begin = _version(base, self.versions[:end])
        if begin is None or end - begin >= len(base):
            return ""  # as many unknown factors as numbers fit anything
        sent = self.played.turns[begin:end]
        columns = np.stack([turn.step.gradient for turn in sent], axis=1)
        factors = np.linalg.lstsq(columns, base - self.step.weights, rcond=None)[0]
        if not near(columns @ factors, base - self.step.weights):
            return ""
        return " and ".join(
            f"{round(f, 6):.3g} times rank {turn.worker}'s gradient" for f, turn in zip(factors, sent, strict=True)
        )

    @property
    def passed_over(self) -> tuple[int, int, int] | None:
        """A worker, and the first and the last number of its gradients that were taken before and came later.

        There are two of them at least: a server that asks each rank in turn cannot know who came first.
        """
        for other in self.played.taken:
            turns = [turn for turn in self.played.turns[: self.at] if turn.worker == other != self.worker]
            if len(later := [turn.number for turn in turns if turn.step.ended > self.step.ended]) > 1:
                return other, later[0], later[-1]
        return None

    # What sentences show.

    @property
    def seen(self) -> str:
        if self.older is not None:
            return f"it was called with version {self.older}, which was sent before"
        return _at("weights[{i}] was {got}, asked {want}", self.step.weights, self.asked)

    @property
    def left_what(self) -> str:
        return ", what was in it before" if self.untouched else ", older weights" if self.outdated else ""

    others = property(lambda self: " and ".join(f"rank {r}'s" for r in self.played.order[self.at + 1 : self.answered]))

    @property
    def at_which(self) -> str:
        if not self.k:
            return f"rank {self.worker}'s first gradient at the weights that the server began with"
        return f"rank {self.worker}'s gradient number {self.number} at the weights that answered number {self.k}"


def _version(weights: np.ndarray, versions: Sequence[np.ndarray], first: int = 0) -> int | None:
    """Return which of the versions from `first` on `weights` are."""
    return next((v for v in range(first, len(versions)) if near(weights, versions[v])), None)


def _at(text: str, got: np.ndarray, want: np.ndarray) -> str:
    """Fill in a text about the first number that differs."""
    i = int(np.flatnonzero(~np.isclose(got, want, rtol=1e-9, atol=1e-9))[0])
    digits = 6 if f"{got[i]:.6g}" != f"{want[i]:.6g}" else 12
    return text.format(i=i, got=f"{got[i]:.{digits}g}", want=f"{want[i]:.{digits}g}")


def _shorter(got: np.ndarray, want: np.ndarray, start: np.ndarray) -> str:
    """Return the dtype to which gradients were rounded, or the weights."""
    return shorter_dtype(got - start, want - start) or shorter_dtype(got, want)


def _repeated(played: Played) -> Finding | None:
    """Find who computed gradients at the same weights twice, though the server has changed them."""
    everyone = [Taken(r, played, r, k) for r, steps in played.taken.items() for k in range(len(steps))]
    first = next((taken for taken in everyone if taken.repeats and not played.unchanged), None)
    if first is None:
        return None
    if not judge(LIST, replace(played, late=math.inf)) and (
        finding := judge([MISTAKES], played) or judge([ANSWERED_FIRST], replace(first, rank=0))
    ):
        return finding
    return judge([REPEATS], first)


def _wrong_values(played: Played) -> Finding | None:
    """Find wrong weights: at which gradients were computed, on the server, and on the workers in the end."""
    unseen = [replace(turn, rank=turn.worker) for turn in played.turns if turn.version(played.right) is None]
    return (
        judge([FIRST], *played.workers)
        or (judge([MISTAKES], played) if unseen else None)
        or judge([UNSEEN], *unseen)
        or judge([END], played)
        or judge([ANSWERS], *played.turns)
        or judge([KEPT], *played.workers)
    )


# -- facts: who waits for whom, and what is sent --


def _waits(ran: "Ran", taken: dict[int, list[WorkerStep]], seconds: dict[int, float]) -> list[SimpleNamespace]:
    """Return facts of the first wait of a worker for another one; none where no worker has waited.

    seconds: what a gradient takes each worker.
    """
    waits = []
    for rank, steps in taken.items():
        free, busy = [0.0, *(s.ended for s in steps)], [*(s.begun for s in steps), ran.run.clock[rank]]
        pairs = enumerate(zip(free, busy, strict=True))
        waits += [(a, b, rank, k) for k, (a, b) in pairs if b - a > max(PATIENCE, seconds[rank] / 2)]
    copies = [event for event in ran.run.events if event.kind == "copy"]
    return [_wait(*min(waits), copies, taken, seconds)] if waits else []


def _wait(
    begun: float,
    ended: float,
    rank: int,
    k: int,
    copies: list["Event"],
    taken: dict[int, list[WorkerStep]],
    seconds: dict[int, float],
) -> SimpleNamespace:
    """Return the facts of a wait of worker `rank` for the answer to its gradient number k; 0: for its first weights."""
    between = [e for e in copies if e.start <= ended and e.end >= begun]
    up = [e for e in between if e.lane == f"rank {rank} -> rank 0" and e.issued > begun - PATIENCE]
    down = [e for e in between if e.lane == f"rank 0 -> rank {rank}"]
    others = {f"rank 0 -> rank {r}": r for r in taken if r != rank}
    meanwhile = [r for r in others.values() if any(s.begun < ended and s.ended > begun for s in taken[r])]
    slow = max(meanwhile, key=lambda r: seconds[r], default=None)
    other = "" if slow is None else f", while rank {slow} computes for {seconds[slow]:g} s each time"
    first = f"rank {rank} to get its first weights at once"
    return SimpleNamespace(
        rank=rank,
        k=k,
        is_last=k == len(taken[rank]),
        up=up,
        down=down,
        late=_late(up),
        answered=any(e.end < begun + PATIENCE for e in down),
        busy=[others[e.lane] for e in between if e.lane in others and _late([e])],  # and so did not receive
        announcers=[r for r in others.values() if _announced(copies, r, taken[r], ended)],
        seconds=seconds[rank],
        asked=f"rank {rank} to go on at once after its gradient number {k}{other}" if k else first,
        waited=ended - begun,
    )


def _late(events: list["Event"]) -> bool:
    """Return whether a message was received long after it was sent."""
    return any(e.start - e.issued > PATIENCE for e in events)


def _announced(copies: list["Event"], rank: int, steps: list[WorkerStep], at: float) -> bool:
    """Return whether what the server took from `rank` before time `at` had been sent before its gradient was computed.

    A request for weights is no such message, for the answer to it came in between.
    """
    begun = max((step.begun for step in steps if step.begun < at), default=0.0)
    up = [e.issued for e in copies if e.lane == f"rank {rank} -> rank 0" and e.issued <= begun]
    down = [e.issued for e in copies if e.lane == f"rank 0 -> rank {rank}" and e.end <= begun]
    return bool(up) and max(up) > max(down, default=-1.0)


def _explained(
    error: "ClusterError", taken: dict[int, list[WorkerStep]], weights: Sequence[np.ndarray], steps: int
) -> "ClusterError":
    """Say what a deadlock most likely means between a server and its workers; leave other errors as they are."""
    if error.kind != "deadlock" or re.search(r"own tag only|itself|ask again", error.text):
        return error
    *lines, last_line = error.text.splitlines()
    calls = {wait.rank: wait.call for wait in error.waits}
    peers = next((wait.peers for wait in error.waits if wait.rank == 0), ())
    done = {rank: len(steps) for rank, steps in taken.items()}
    stuck = [rank for rank in taken if rank in calls]
    hungry = [rank for rank in stuck if not _sends(calls[rank])]
    few = next((rank for rank in taken if done[rank] < steps), 0)
    worker, to = next(iter(hungry if 0 in calls else stuck), 0), next(iter(peers), 0)
    facts = SimpleNamespace(
        last_line=last_line,
        collective="collective call" in last_line,
        steps=steps,
        done=done,
        stuck=stuck,
        hungry=hungry,
        returned=0 not in calls,
        receives=0 in calls and not _sends(calls[0]),
        calls_bcast="bcast()" in calls.get(0, "").lower(),
        source=to if len(peers) == 1 < len(taken) else None,
        worker=worker,  # which waits for the server
        number=done.get(worker),
        few=few,
        few_done=done.get(few),
        to=to if to in taken else None,
        to_call=calls.get(to, ""),
        kept=to in taken and (not taken[to] or np.array_equal(weights[to], taken[to][-1].weights)),
        total=f"(comm.size - 1) * steps gradients in all, here {len(taken) * steps}",
    )
    why = why_of(STUCK, facts)
    return type(error)(error.kind, "\n".join([*lines, why]), error.waits, error.cycle) if why else error


def _sends(call: str) -> bool:
    """Return whether a wait in `call` is for a send."""
    return re.match(r"(the wait for )?\w*send\(", call, re.IGNORECASE) is not None


def _sent(ran: "Ran", rank: int, to: int, steps: int, nbytes: int) -> SimpleNamespace:
    """Return the facts of what went from a rank to another one, where an array has `nbytes`."""
    return SimpleNamespace(
        rank=rank,
        to=to,
        sent=ran.run.traffic[rank, to],
        asked=steps * nbytes,
        most=(steps + 1) * (nbytes + ROOM),  # who asks for the first weights may ask at length
        each=f"One {'gradient' if rank else 'answer'} for each step, of {nbytes} bytes",
        steps=steps,
        pickled=pickles(ran),
    )


# -- what is said: misconceptions, each with how weights go from version to version by it --


def _scaled(factor: Callable[[Played], float]) -> Way:
    return lambda p, v, s: v[-1] - factor(p) * s[-1].gradient


def _together(p: Played, versions: list[np.ndarray], steps: list[WorkerStep], rate: float) -> np.ndarray:
    """Make one update of as many gradients as there are workers."""
    if len(steps) % p.n_workers:
        return versions[-1]
    return versions[-1] - rate * np.sum([step.gradient for step in steps[-p.n_workers :]], axis=0)


WAYS: dict[str, Way] = {
    "The gradient is added. It points to where the loss grows: weights -= learning_rate * gradient.": (
        _scaled(lambda p: -p.rate)
    ),
    "The learning rate is missing: weights -= learning_rate * gradient.": _scaled(lambda p: 1.0),
    "The learning rate is missing, and the gradient is added: weights -= learning_rate * gradient.": (
        _scaled(lambda p: -1.0)
    ),
    "The learning rate is in it twice.": _scaled(lambda p: p.rate**2),
    "Each gradient is divided by the number of workers. Here nothing is averaged: each is an update of its own.": (
        _scaled(lambda p: p.rate / p.n_workers)
    ),
    "Each gradient is divided by comm.size. Here nothing is averaged: each is an update of its own.": (
        _scaled(lambda p: p.rate / (p.n_workers + 1))
    ),
    "Each gradient is divided by steps. Nothing is averaged here: each is an update of its own.": (
        _scaled(lambda p: p.rate / p.steps)
    ),
    "Workers are sent the weights that serve was given. Where does the updated array go? weights -= ... changes it in "
    "place.": lambda p, v, s: v[-1],
    "The worker sends its weights, and the server takes them for a gradient: send gradient(weights).": lambda p, v, s: (
        v[-1] - p.rate * s[-1].weights
    ),
    "Gradients are collected, and then applied together. Each is an update of its own, before its answer is sent.": (
        lambda p, v, s: _together(p, v, s, p.rate)
    ),
    "Gradients are collected, and then their mean is applied. Each is an update of its own, and nothing is averaged.": (
        lambda p, v, s: _together(p, v, s, p.rate / p.n_workers)
    ),
    "Gradients that were applied before are applied again: the buffer is added to, and never emptied.": (
        lambda p, v, s: v[-1] - p.rate * np.sum([step.gradient for step in s], axis=0)
    ),
    "The gradient is applied to the weights at which it was computed: what others changed meanwhile is lost. The "
    "server applies it to its own weights.": lambda p, v, s: s[-1].weights - p.rate * s[-1].gradient,
    "The worker applies its gradient, and the server takes over its weights: what others changed meanwhile is lost.": (
        lambda p, v, s: s[-1].weights - s[-1].gradient
    ),
    "Each update begins again from the first weights: what was changed before is lost. weights -= ... keeps it.": (
        lambda p, v, s: p.start - p.rate * s[-1].gradient
    ),
    "The gradient takes the place of the weights: weights -= learning_rate * gradient.": (
        lambda p, v, s: s[-1].gradient
    ),
    "The gradient is received into the weights themselves. It needs a buffer of its own: np.empty_like(weights).": (
        lambda p, v, s: (1 - p.rate) * s[-1].gradient
    ),
    "Weights are set to the step alone: -= takes it off, = does not.": lambda p, v, s: p.rate * s[-1].gradient,
    "Weights are set to the step alone: -= takes it off what they were.": lambda p, v, s: -p.rate * s[-1].gradient,
}

# -- what is said --

ARGUMENT = Test(
    "no weights",
    lambda f: not isinstance(f.got, np.ndarray) or f.got.shape != (f.length,) or f.got.dtype != np.float64,
    "gradient(weights) with an array of shape ({length},), float64",
    lambda f: f"shape {f.got.shape}, {f.got.dtype}" if isinstance(f.got, np.ndarray) else short(f.got),
    {
        "comm.Recv fills the array that it is given and returns nothing. comm.recv returns what came.": lambda f: (
            f.got is None
        ),
        "A gradient is computed at weights: all of them, as the server sent them.": always,
    },
)
ELSEWHERE = Test(
    "MPI.COMM_WORLD",
    lambda f: f.calls,
    "all calls to go through comm",
    "{shown} through MPI.COMM_WORLD",
    "Use the `comm` that is given: its ranks may be others.",
)
COUNTS = Test(
    "number of gradients",
    lambda f: len(f.steps) != f.played.steps,
    "{played.steps} calls of gradient on rank {rank}",
    lambda f: f"{len(f.steps)}",
    {
        "Is one gradient sent again and again? Each round calls gradient anew, at the newest weights.": lambda f: (
            len(f.steps) == 1 < f.played.steps
        ),
        "`steps` rounds: for _ in range(steps), here {played.steps} of them.": lambda f: len(f.steps) < f.played.steps,
        "One round too many, or one more gradient before the loop or after it.": lambda f: (
            len(f.steps) == f.played.steps + 1
        ),
        "Each round computes one gradient and keeps it in a variable, to be sent.": always,
    },
)
RANKS = "a list of {total} ranks from serve, one for each gradient"
EACH = "One rank for each gradient: append where a gradient is applied, and nowhere else."
LIST = [
    Test(
        "no list",
        lambda f: not f.is_list or not f.is_ints or any(r < 0 for r in f.order),
        RANKS,
        lambda f: short(f.order),
        {
            "Is the list returned? `order.append(...)` returns None, too.": lambda f: f.order is None,
            "Return a list of ints: who sent the first gradient, who sent the second, ...": lambda f: not f.is_list,
            "The ranks are asked as ints: status.Get_source() is one.": lambda f: not f.is_ints,
            "A negative number is MPI.ANY_SOURCE, or a Status that no receive was given. Recv(..., status=status).": (
                always
            ),
        },
    ),
    Test(
        "length",
        lambda f: len(f.order) != f.total,
        RANKS,
        lambda f: f"{short(f.order)}: {len(f.order)} of them",
        {
            "Each worker is in it once. Who sends several gradients is in it several times.": lambda f: (
                sorted(f.order) == [*f.taken]
            ),
            f"{EACH} None is dropped, however old it is.": lambda f: len(f.order) < f.total,
            EACH: always,
        },
    ),
    Test(
        "from 0",
        lambda f: f.total and {*f.order} == {*range(f.n_workers)},
        RANKS,
        lambda f: short(f.order),
        "Are workers counted from 0? Rank 0 is the server; ranks 1 and above are asked.",
    ),
    Test(
        "counts",
        lambda f: f.miscounted,
        "rank {miscounted} {steps} times in the list from serve",
        lambda f: short(f.order),
        {
            "Who sent each gradient is asked, as a rank: rank 0 is the server, and sends none.": lambda f: (
                not {*f.order} <= {*f.taken}
            ),
            "A Status tells of the receive that it was given last. Ask it before anything else is received.": always,
        },
    ),
    Test(
        "order",
        lambda f: f.too_late,
        "a list from serve in the order in which gradients were applied",
        lambda f: (
            f"{short([*f.order])}: but number {f.too_late + 1}, rank {f.order[f.too_late]}'s, arrived before number "
            f"{f.too_late}, rank {f.order[f.too_late - 1]}'s"
        ),
        "Is the list sorted, or made from range(1, comm.size)? Append who sent the gradient that was applied.",
    ),
]
OLD = (
    "Those are older weights. Either the next gradient is computed before the answer is received, or what is received "
    "never gets into the array that gradient is called with: comm.Recv(weights, 0), or weights[:] = comm.recv(...)."
)
MISTAKES = Test("mistake", lambda f: f.mistake, lambda f: f.update[0], lambda f: f.update[1], "{mistake}")
ANSWERED_FIRST = Test(
    "answered first",
    lambda f: f.answered_first,
    "{at_which}",
    "weights in which number {k} is not applied yet",
    "The answer is sent before the gradient is applied: apply it, and then send the new weights.",
)
REPEATS = Test(
    "same weights", lambda f: f.repeats, "{at_which}", "it was called with the same weights as number {k}", OLD
)
FIRST = Test(
    "no first weights",
    lambda f: f.steps and near(f.steps[0].weights, _weights(f.rank, len(f.left))),
    "rank {rank}'s first gradient at the weights that the server sent",
    "gradient was called with what was in the array before",
    "Nothing was received into it: comm.Recv(weights, 0) fills it, and so does weights[:] = comm.recv(...).",
)
ROUNDED = "Close, but rounded as {shorter} rounds: all is float64 here."
IN_USE = (
    "An Irecv may fill its buffer at any time until its Wait. Here a buffer was read while a message into it was "
    "awaited: use what is in it before the next Irecv, or take two buffers."
)
UNSEEN = Test(
    "other weights",
    always,
    "{at_which}",
    "{seen}",
    {
        OLD: lambda f: f.older is not None,
        IN_USE: lambda f: f.played.hurried and np.isnan(f.step.weights).any(),
        ROUNDED: lambda f: f.shorter,
        "Those are the numbers of its own gradient. The server answers with the weights.": (
            lambda f: f.k and near(f.step.weights, f.last.gradient)
        ),
        "The worker changes the weights itself, too. The server alone applies gradients.": lambda f: f.k and f.moved,
        "Those are its weights before, less {factors}, and the learning rate is {played.rate:g}. Each gradient counts "
        "once, in full, however old it is: does the server scale some, or the worker change what came?": (
            lambda f: f.k and f.factors
        ),
        "By these gradients the server never has such weights. Is anything but the gradient itself applied, is a "
        "buffer used before its Wait, or are other weights sent than those that were changed?": always,
    },
)
END = Test(
    "server in the end",
    lambda f: not near(f.final, f.right[-1]),
    lambda f: _at("weights[{i}] of the server to be {want} in the end", f.final, f.right[-1]),
    lambda f: _at("{got}", f.final, f.right[-1]) + f.lag,
    {
        "They are as they were, while workers were sent the right ones. weights = weights - ... makes a new array; "
        "weights -= ... and weights[:] = ... change the one that serve was given.": lambda f: f.unchanged,
        IN_USE: lambda f: f.hurried and np.isnan(f.final).any(),
        ROUNDED: lambda f: f.shorter,
        "{mistake}": lambda f: f.mistake,  # one that shows in the last update only
        "Each gradient is applied before its answer is sent, the last ones too.": lambda f: f.lag,
        "Do workers send all of the gradient, and is each of them applied once, to the caller's array?": always,
    },
)
ANSWERS = Test(
    "more applied before",
    lambda f: f.answered is not None and f.answered > f.at + 1,
    "the answer to rank {worker}'s gradient number {number} before another gradient is applied",
    "{others} applied before the answer",
    "The server applied more before it answered. Iprobe and Waitsome may find several gradients at once: even then "
    "it applies one, answers that worker, and only then applies the next.",
)
KEPT = Test(
    "worker in the end",
    lambda f: not f.kept,
    lambda f: _at(f"weights[{{i}}] of rank {f.rank} to be {{want}} in the end, as the server sent last", *f.ends),
    lambda f: _at("{got}", *f.ends) + f.left_what,
    {
        "Where steps is 0, every worker gets the first weights, too, and keeps them.": lambda f: (
            not f.played.steps and f.left_what
        ),
        "The answer to its last gradient is missing in them. Each gradient is answered, the last one too, and "
        "the answer goes into the caller's array.": lambda f: f.without_last and not near(f.left, f.played.start),
        "weights = ... gives a name to another object, and the caller's array stays as it is. "
        "comm.Recv(weights, 0) fills it, and so does weights[:] = ...": lambda f: f.left_what and f.rebound,
        "What is received goes into the caller's array: comm.Recv(weights, 0) fills it, and so does "
        "weights[:] = ...": lambda f: f.left_what,
        "What is received goes into the caller's array, and a worker changes nothing in it.": always,
    },
)
TURNS = Test(
    "passed over",
    lambda f: f.passed_over,
    lambda f: (
        f"rank {f.worker}'s gradient number {f.number} first, for it came before rank {f.passed_over[0]}'s number "
        f"{f.passed_over[1]}"
    ),
    lambda f: "rank {}'s numbers {} to {} were applied before it".format(*f.passed_over),
    "Gradients are applied in the order in which they arrive. Does the server begin at the same rank again after "
    "each one, or with the newest? Then others starve. MPI.ANY_SOURCE takes the message that came first.",
)
LAST = "It had its last answer and did not return: after that a worker waits for no other rank, in no Barrier or Bcast."
WAITS = Test(
    "wait",
    always,
    "{asked}",
    "it waited {waited:.1f} s; its own gradients take {seconds:g} s",
    {
        "The first weights go to all workers before any gradient is taken, so that all compute at the same time.": (
            lambda f: f.k == 0
        ),
        LAST: lambda f: f.is_last and (f.answered and not f.late if f.up else not f.down),
        "No message carried the gradient. In a collective call (Reduce, Gather, Bcast, Barrier) everybody waits "
        "for the slowest: a send and a receive concern two ranks only.": lambda f: not f.up,
        "The server was sending to rank {busy[0]}, which was busy and not receiving. An answer goes only to the "
        "worker whose gradient was applied.": lambda f: f.busy,
        "The gradient was there, and the server took it only then. Before, it took a message that rank "
        "{announcers[0]} sent ahead of its gradient, and waited until that was computed. Send when the gradient is "
        "there, and nothing before.": lambda f: f.late and f.announcers,
        "The gradient was there, and the server took it only then: does it receive from one rank after the other? "
        "Or does it wait until all have been served as often? MPI.ANY_SOURCE takes the message that comes first.": (
            lambda f: f.late
        ),
        "The server took the gradient at once, and the answer came late: does it collect gradients of others "
        "first? That is synchronous. Apply each and answer it before the next receive.": always,
    },
)
STUCK = {
    "{last_line} An answer concerns one worker alone: Send it to the one whose gradient was applied, for others are "
    "busy.": lambda f: f.collective and f.calls_bcast and max(f.done.values()) and f.few,
    "{last_line}": lambda f: f.collective,
    "The server has returned, and rank {worker} still has something to send: the server takes {total}.": (
        lambda f: f.returned and f.worker not in f.hungry
    ),
    "The server has returned, and rank {worker} waits for its first weights: they go to every worker, first.": (
        lambda f: f.returned and not f.number
    ),
    "The server has returned without the answer to rank {worker}'s last gradient: each gradient is answered, the last "
    "one too.": lambda f: f.returned and f.number == f.steps,
    "The server has returned without an answer to rank {worker}'s gradient number {number}: each gradient is answered, "
    "and the server takes {total}.": lambda f: f.returned,
    "Rank {few} has returned after {few_done} gradients, and `steps` is {steps}.": (
        lambda f: f.receives and not f.stuck and f.few
    ),
    "The server waits for one gradient more than workers send: it takes {total}, each in one message.": (
        lambda f: f.receives and not f.stuck and f.source is None
    ),
    "The server waits for a gradient, and workers wait for their first weights: send those first.": (
        lambda f: f.receives and f.hungry and not any(f.done.values())
    ),
    "Rank {worker} waits for its first weights: every worker gets them before gradients are taken.": (
        lambda f: f.receives and f.hungry and not f.number
    ),
    "Rank {worker} waits for the answer to its gradient number {number}, and the server waits for the next one: each "
    "gradient is answered before another one is taken, also the last of a worker.": lambda f: f.receives and f.hungry,
    "Rank {to} has returned without taking the answer to its last gradient. Each gradient is answered, the last one "
    "too, and where steps is 0, workers take the first weights.": (
        lambda f: f.to and not f.receives and not f.to_call and f.kept
    ),
    "The server sends rank {to} more than it takes: one answer for each gradient, to who sent that one.": (
        lambda f: f.to and not f.receives and not f.to_call
    ),
    "The server sends to rank {to}, which is sending to the server. An answer goes only to the worker whose gradient "
    "was applied, the status.Get_source() of that very receive. Or does a worker send twice before it receives?": (
        lambda f: f.to and not f.receives and _sends(f.to_call)
    ),
}
MESSAGES = [
    Test(
        "between workers",
        lambda f: f.rank and f.to and f.sent,
        "no message from rank {rank} to rank {to}",
        "{sent} bytes",
        "A worker talks to the server only, and need not know which others there are.",
    ),
    Test(
        "bytes",
        lambda f: f.sent > f.most,
        "about {asked} bytes from rank {rank} to rank {to} in {steps} steps",
        "{sent} bytes",
        {
            "{each}: what else is sent, or is it sent twice? Lower-case "
            "methods pickle all of the object that they are given.": lambda f: f.pickled,
            "{each}: what else is sent, or is it sent twice?": always,
        },
    ),
]
TWO_MESSAGES = (
    "A gradient was taken for another worker's: where a worker sends two messages and the server takes each from any "
    "rank, they may be two workers'. Take the second from the rank that sent the first, or send one message, whose "
    "Status says who sent it."
)
