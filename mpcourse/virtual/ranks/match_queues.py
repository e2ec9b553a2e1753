"""What was sent to one rank of one communicator and not received, and its waiting receives, found without a search."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.matching import Message
    from mpcourse.virtual.ranks.request import Request

ANY = -1  # a source or a tag that may be any


class MatchQueues:
    """Messages in the order in which each source sent them, receives in the order in which they began.

    sources: messages by source. tags: the same messages, by source and tag. A message that is taken by its tag stays in
    its source's queue, marked `taken`, unless it is the first there, so that the first of each queue is never taken.
    exact: receives that name a source and a tag, by both; wild: receives that leave one of them open.
    """

    __slots__ = ("exact", "sources", "tags", "wild")

    def __init__(self) -> None:
        self.sources: dict[int, deque[Message]] = {}
        self.tags: dict[tuple[int, int], deque[Message]] = {}
        self.exact: dict[tuple[int, int], deque[Request]] = {}
        self.wild: list[Request] = []

    # -- messages --

    def put(self, m: "Message") -> None:
        """Keep a message until it is received."""
        m.taken = m.awaited = False
        source, key = m.source, (m.source, m.tag)
        queue = self.sources.get(source)
        if queue is None:
            queue = self.sources[source] = deque()
        queue.append(m)
        queue = self.tags.get(key)
        if queue is None:
            queue = self.tags[key] = deque()
        queue.append(m)

    def take(self, m: "Message") -> None:
        """Remove a message that is the first of its source and tag."""
        key, queue = (m.source, m.tag), self.sources[m.source]
        m.taken = True
        while queue and queue[0].taken:
            queue.popleft()
        alike = self.tags[key]
        alike.popleft()
        if not alike:
            del self.tags[key]

    def first(self, source: int, tag: int) -> "Message | None":
        """Return the message that a receive from `source`, or from any, gets: the earliest that fits, or None."""
        if source != ANY:
            queue = self.sources.get(source) if tag == ANY else self.tags.get((source, tag))
            return queue[0] if queue else None
        return min(self.firsts(tag), key=lambda m: (m.posted, m.order), default=None)

    def firsts(self, tag: int, source: int = ANY) -> "Iterator[Message]":
        """Yield the earliest message with that tag, from each source or from one."""
        for each in self.sources if source == ANY else (source,):
            if queue := self.sources.get(each) if tag == ANY else self.tags.get((each, tag)):
                yield queue[0]

    def messages(self) -> "list[Message]":
        """Return all messages, in the order in which they were sent."""
        return sorted((m for q in self.sources.values() for m in q if not m.taken), key=lambda m: m.order)

    # -- receives --

    def wait(self, r: "Request") -> None:
        """Keep a receive until its message arrives."""
        if r.peer == ANY or r.tag == ANY:
            self.wild.append(r)
            return
        queue = self.exact.get((r.peer, r.tag))
        if queue is None:
            queue = self.exact[r.peer, r.tag] = deque()
        queue.append(r)

    def receiver(self, source: int, tag: int) -> "Request | None":
        """Return the earliest receive that a message from `source` with `tag` fits, or None."""
        queue = self.exact.get((source, tag))
        exact = queue[0] if queue else None
        for r in self.wild:
            if exact is not None and r.order > exact.order:
                break
            if r.tag in (ANY, tag) and r.peer in (ANY, source):
                return r
        return exact

    def pair(self, m: "Message") -> "tuple[Message, Request] | None":
        """Return a message and a receive, each the first for the other: `m` and its receive, or an earlier pair.

        None: no receive is waiting that `m` fits.
        """
        while (r := self.receiver(m.source, m.tag)) is not None:
            first = self.first(r.peer, r.tag)
            if first is None or first is m:
                return m, r
            m = first
        return None

    def forget(self, r: "Request") -> None:
        """Remove a receive that has its message, or is given up."""
        if r.peer == ANY or r.tag == ANY:
            self.wild.remove(r)
            return
        queue = self.exact[r.peer, r.tag]
        queue.remove(r)
        if not queue:
            del self.exact[r.peer, r.tag]
