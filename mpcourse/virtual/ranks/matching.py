"""Which send meets which receive, and what moves between them."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mpcourse.virtual.ranks.buffers import alike
from mpcourse.virtual.ranks.match_queues import ANY, MatchQueues
from mpcourse.virtual.ranks.request import Line, Request, Status, put

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.world import World


class Message:
    """Something that was sent. It must be small, because there may be tens of thousands.

    owner: its sender in the world; source: in the communicator. data: what was given, or a copy of it. eager: it leaves
    at once, from `start` to `end`, whether or not its receiver waits. request: what its sender waits for. awaited: the
    cluster will decide at `posted` which receive gets it.
    """

    __slots__ = (
        "awaited", "data", "dest", "eager", "end", "line", "name", "nbytes", "objects", "order", "owner", "posted",
        "request", "source", "start", "tag", "taken",
    )  # fmt: skip

    def __init__(
        self, name: str, owner: int, source: int, dest: int, tag: int, data: np.ndarray, objects: bool, posted: float,
        line: Line,
    ) -> None:  # fmt: skip
        self.name, self.owner, self.source, self.dest, self.tag, self.line = name, owner, source, dest, tag, line
        self.data, self.objects, self.posted = data, objects, posted
        self.nbytes = data.nbytes
        self.start = self.end = posted
        self.eager = self.taken = self.awaited = False
        self.order = 0  # among all messages
        self.request: Request | None = None


class Matching:
    """Messages that have not been received, and receives whose message has not come.

    A message goes to the first receive that it fits, in the order in which they began, and messages of one rank do not
    overtake each other. A receive that names its source takes its message as soon as both are known, unless an earlier
    receive or message has to be decided first. A receive from any source takes what was sent first. So what it gets is
    decided when the cluster's time reaches the time at which a message was sent: until then a rank may send an earlier
    one. This is therefore always true: a message that is kept here and that fits a waiting receive is also among what
    the cluster will do next (`awaited`), and gets its receive when its time comes.

    messages: source, target, tag, bytes, posted, start, end, line of each received message, and whether it was pickled,
    in the order in which messages met receives. It is a flat list, because a tuple for each would keep Python's garbage
    collector busy.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.queues: defaultdict[tuple[int, int], MatchQueues] = defaultdict(MatchQueues)  # by context and receiver
        self.order = world.order
        self.messages: list[Any] = []

    def received(self, since: int = 0) -> Iterator[tuple]:
        """Yield source, target, tag, bytes, posted, start, end, line and pickled of each message, as tuples.

        since: an earlier length of `messages`; later ones are yielded.
        """
        return zip(*[itertools.islice(self.messages, since, None)] * 9, strict=True)

    def send(self, m: Message, context: int, target: int, keeps: bool, ready: bool = False) -> None:
        """Send `m` to rank `target` of the world. keeps: its data may change before it is received."""
        world, queues = self.world, self.queues[context, target]
        world.said += 1
        if m.eager:
            m.start, m.end = world.wires.leave(m.owner, target, m.nbytes, m.posted)
        r = queues.receiver(m.source, m.tag)
        if r is not None and r.peer != ANY and queues.first(m.source, r.tag) is None:
            queues.forget(r)
            self._meet(m, r)
            return
        if r is None and ready:
            world.fail("misuse", f"{world.who(m)}: a ready send needs a receive that waits already, and none does")
        if keeps and not m.objects:
            m.data = m.data.copy()
        m.order = next(self.order)
        queues.put(m)
        if r is not None:
            world.decide_later(queues, m, r)
        waiter = world.waiters[target]
        waiting = waiter.message
        if waiter.asleep or (waiting is not None and waiting[0] == context and _fits(m, *waiting[1:])):
            world.push(self._there(m, target), target)

    def take(self, context: int, rank: int, source: int, tag: int) -> Message | None:
        """Return the message that a receive from `source` gets at once, or None where it has to wait."""
        queues = self.queues[context, rank]
        if queues.wild or (m := queues.first(source, tag)) is None or m.awaited:
            return None
        queues.take(m)
        return m

    def receive(self, r: Request) -> None:
        """Begin to receive."""
        self.world.said += 1
        queues = self.queues[r.context, r.owner]
        r.order = next(self.order)
        m = queues.first(r.peer, r.tag)
        if m is None:
            queues.wait(r)
            return
        is_due = r.peer != ANY or m.posted <= self.world.clock[r.owner]
        if is_due and queues.receiver(m.source, m.tag) is None:
            queues.take(m)
            self._meet(m, r)
            return
        queues.wait(r)
        for m in queues.messages():
            if not m.awaited and _fits(m, r.peer, r.tag):
                self.world.decide_later(queues, m, r)

    def forget(self, r: Request) -> None:
        """Give up a receive."""
        self.queues[r.context, r.owner].forget(r)

    def look(self, r: Request) -> None:
        """Let a rank that waits for a receive from any source take what has arrived."""
        queues = self.queues[r.context, r.owner]
        while r.end is None and (m := queues.first(r.peer, r.tag)) is not None:
            if m.posted > self.world.clock[r.owner]:
                self.world.decide_later(queues, m, r)
                return
            self.decide(queues, m)

    def decide(self, queues: MatchQueues, m: Message) -> None:
        """Decide a message whose time has come: earlier messages find their receives first, then `m` its own."""
        m.awaited = False
        while not m.taken and (pair := queues.pair(m)) is not None:
            first, r = pair
            queues.take(first)
            queues.forget(r)
            self._meet(first, r)

    def find(self, context: int, rank: int, source: int, tag: int, status: Status | None) -> bool:
        """Return whether a message has arrived that a receive of rank `rank` would take."""
        queues, now = self.queues[context, rank], self.world.clock[rank]
        if not queues.sources:
            return False
        there = [m for m in queues.firsts(tag, source) if self._there(m, rank) <= now]
        if not there:
            return False
        if status is not None:
            m = min(there, key=lambda m: (m.posted, m.order))  # as a receive from any source chooses
            status.source, status.tag, status.nbytes = m.source, m.tag, m.nbytes
        return True

    def soonest(self, context: int, rank: int, source: int, tag: int) -> float | None:
        """Return when the first of such messages can be found, or None while none was sent."""
        times = (self._there(m, rank) for m in self.queues[context, rank].firsts(tag, source))
        return min(times, default=None)

    def next(self, rank: int, now: float) -> float | None:
        """Return when the next message to a rank can be found that has not arrived by now, or None."""
        ours = (queues for (_, target), queues in self.queues.items() if target == rank)
        times = (self._there(m, rank) for queues in ours for m in queues.messages())
        return min((at for at in times if at > now), default=None)

    def move(self, m: Message, rank: int, posted: float) -> float:
        """Return when `m` has arrived at rank `rank`, which was ready for it at `posted`."""
        wires = self.world.wires
        if m.eager:
            end = wires.arrive(m.owner, rank, m.start, m.end)
            start = end - (m.end - m.start)
        else:
            start, end = wires.carry(m.owner, rank, m.nbytes, m.posted if m.posted > posted else posted)
            if m.request is not None:
                self.world.settle(m.request, end)
        self.messages += (m.owner, rank, m.tag, m.nbytes, m.posted, start, end, m.line, m.objects)
        return end if end > posted else posted

    def check(self, m: Message, r: Request) -> None:
        """Check that `m` is what `r` expects. Raises ClusterError on all ranks if it is not."""
        say, into = self.world.who, r.array
        if m.objects is not r.objects:
            self.world.fail(
                "datatypes",
                f"{say(r)} gets the message of {say(m)}: one of them is upper-case, which moves memory, the other "
                "lower-case, which moves objects. Use the same case on both sides",
            )
        if r.room is not None and m.nbytes > r.room:
            advice = f", give it a buffer, irecv(bytearray({m.nbytes})), or use recv" if r.name == "irecv" else ""
            self.world.fail(
                "truncated",
                f"message truncated: {say(r)} has room for {r.room} bytes, {say(m)} sent an object that takes "
                f"{m.nbytes} when pickled{advice}",
            )
        if into is None or not m.nbytes:
            return
        sent, wanted = m.data.dtype, into.dtype
        if not alike(sent, wanted):
            self.world.fail(
                "datatypes",
                f"{say(r)} expects {wanted}, {say(m)} sent {sent}: MPI moves bytes and converts nothing, so both must "
                "be of one datatype",
            )
        if m.nbytes > r.nbytes:
            self.world.fail(
                "truncated",
                f"message truncated: {say(r)} has room for {_length_and_dtype(into)}, {say(m)} sent "
                f"{_length_and_dtype(m.data)}",
            )

    def left(self) -> list[Message]:
        """Return the messages that were not received."""
        return sorted((m for queues in self.queues.values() for m in queues.messages()), key=lambda m: m.order)

    def _there(self, m: Message, target: int) -> float:
        """Return when a probe can find a message."""
        return m.posted + self.world.wires.link(m.owner, target).latency

    def _meet(self, m: Message, r: Request) -> None:
        self.check(m, r)
        r.source, r.tag_found, r.nbytes = m.source, m.tag, m.nbytes
        end = self.move(m, r.owner, r.posted)
        if not r.blocking or r.objects:  # handed over in its rank's wait, because the program may not rely on it before
            r.data = m.data if m.objects else m.data.copy()
        elif r.array is not None:
            put(m.data, r.array)
        self.world.settle(r, end)


def _fits(m: Message, source: int, tag: int) -> bool:
    return source in (m.source, ANY) and tag in (m.tag, ANY)


def _length_and_dtype(array: np.ndarray) -> str:
    """Return an array's length and type: "10 float64"."""
    return f"{len(array)} {array.dtype}"
