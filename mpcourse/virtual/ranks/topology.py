"""Which link a message takes from rank to rank, and when that link is free.

This is Hockney's model, one message at a time: a message of n bytes takes alpha + n beta, during which its sender sends
nothing else and its receiver receives nothing else. Sending and receiving at once is free (full duplex).
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mpcourse.virtual.specs import Link, find_link

SELF = Link("a rank to itself", float("inf"), 0.0)


@dataclass(frozen=True)
class Topology:
    """Which link a message takes from rank to rank.

    nodes: for each rank its node, e.g. (0, 0, 1, 1); (): each rank has its own node.
    inside: the link between two ranks of one node; a Link or a name in `mpcourse.virtual.LINKS`.
    between: the link between two nodes, which all ranks of a node share; a Link or a name.
    links: another link for single pairs, by (from, to).
    Raises UserError for an unknown name.
    """

    nodes: Sequence[int] = ()
    inside: str | Link = "NVLink 1"
    between: str | Link = "10 GbE"
    links: Mapping[tuple[int, int], str | Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for link in (self.inside, self.between, *self.links.values()):
            find_link(link)

    def node(self, rank: int) -> int:
        """Return the node of a rank.

        rank: its number, from 0.
        """
        return self.nodes[rank] if self.nodes else rank

    def link(self, source: int, target: int) -> Link:
        """Return the link from one rank to another.

        source, target: ranks.
        """
        if (own := self.links.get((source, target))) is not None:
            return find_link(own)
        if source == target:
            return SELF
        return find_link(self.inside if self.node(source) == self.node(target) else self.between)

    def slowest(self, ranks: Sequence[int]) -> Link:
        """Return a link as slow as the slowest between two of some ranks, in latency and in bandwidth.

        ranks: two or more.
        """
        apart = len({self.node(r) for r in ranks}) > 1
        links = [find_link(self.between if apart else self.inside)]
        links += [find_link(link) for (a, b), link in self.links.items() if a in ranks and b in ranks]
        return Link("slowest", min(k.bandwidth for k in links), max(k.latency for k in links))


def topology_of(link: str | Link | Topology, size: int) -> Topology:
    """Return the topology that `link` means for `size` ranks. Raises ValueError for another number of ranks."""
    if not isinstance(link, Topology):
        return Topology(between=link)
    if link.nodes and len(link.nodes) != size:
        raise ValueError(f"the topology has nodes for {len(link.nodes)} ranks, the run has {size}")
    for pair in link.links:
        if not all(0 <= r < size for r in pair):
            raise ValueError(f"the topology has a link {pair[0]} -> {pair[1]}, the run has ranks 0 to {size - 1}")
    return link


class Incoming:
    """The times at which the link into a node is in use.

    Messages are booked in the order of their receives, which need not be the order in which they arrive: of two ranks
    of a node, the one that receives first may get its message last. So each message takes the first gap that it fits
    into.
    """

    def __init__(self) -> None:
        self.starts: list[float] = []  # of the times in use, in order, separate from each other
        self.ends: list[float] = []

    def book(self, ready: float, seconds: float) -> float:
        """Return when a message that is ready from `ready` on, and takes so many seconds, begins to arrive."""
        starts, ends = self.starts, self.ends
        needed = seconds * (1 - 1e-9)  # a gap of exactly this length fits, in spite of rounding
        at, i = ready, bisect_right(ends, ready)
        while i < len(starts) and starts[i] < at + needed:
            at = max(at, ends[i])
            i += 1
        end = at + seconds
        if i < len(starts) and starts[i] <= end:
            end = ends[i]
            del starts[i], ends[i]
        if i and ends[i - 1] >= at:
            ends[i - 1] = end
        else:
            starts.insert(i, at)
            ends.insert(i, end)
        return at


class Wires:
    """When ranks and nodes are free to send and to receive."""

    def __init__(self, topology: Topology, size: int) -> None:
        self.topology = topology
        self.out, self.into = [0.0] * size, [0.0] * size
        self.nodes = [topology.node(r) for r in range(size)]
        self.out_of_node = dict.fromkeys(self.nodes, 0.0)
        self.into_node = {node: Incoming() for node in self.out_of_node}
        self.shared = len(self.out_of_node) < size
        # Where every pair has the same link, as in most runs, nothing is looked up.
        self.one = None if self.shared or topology.links else find_link(topology.between)
        self.known: dict[tuple[int, int], Link] = {}
        self.slowest_of: dict[tuple[int, ...], Link] = {}  # by ranks that have made a collective call

    def link(self, source: int, target: int) -> Link:
        if self.one is not None and source != target:
            return self.one
        link = self.known.get((source, target))
        if link is None:
            link = self.known[source, target] = self.topology.link(source, target)
        return link

    def slowest(self, ranks: tuple[int, ...]) -> Link:
        """Return the topology's answer, which is cached, because ranks ask in each collective call."""
        link = self.slowest_of.get(ranks)
        if link is None:
            link = self.slowest_of[ranks] = self.topology.slowest(ranks)
        return link

    def carry(self, source: int, target: int, nbytes: int, ready: float) -> tuple[float, float]:
        """Return when a message for which both sides are ready begins and ends."""
        if source == target:
            return ready, ready
        ready = max(ready, self.out[source], self.into[target])
        if self._between_nodes(source, target):
            link, home = self.link(source, target), self.nodes[source]
            seconds = link.latency + nbytes / link.bandwidth
            ready = self.into_node[self.nodes[target]].book(max(ready, self.out_of_node[home]), seconds)
        start, self.into[target] = self.leave(source, target, nbytes, ready)
        return start, self.into[target]

    def leave(self, source: int, target: int, nbytes: int, ready: float) -> tuple[float, float]:
        """Return from when to when a message is sent, even if its receiver is not ready; see `arrive`."""
        if source == target:
            return ready, ready
        link = self.link(source, target)
        start = max(ready, self.out[source])
        if between := self._between_nodes(source, target):
            start = max(start, self.out_of_node[self.nodes[source]])
        self.out[source] = end = start + link.latency + nbytes / link.bandwidth
        if between:
            self.out_of_node[self.nodes[source]] = end
        return start, end

    def arrive(self, source: int, target: int, start: float, end: float) -> float:
        """Return when what was sent from `start` to `end` has arrived: later where rank or node received others."""
        if source == target:
            return end
        at = max(start, self.into[target])
        if self._between_nodes(source, target):
            at = self.into_node[self.nodes[target]].book(at, end - start)
        self.into[target] = at = at + (end - start)
        return at

    def _between_nodes(self, source: int, target: int) -> bool:
        """Return whether a message takes the link that all ranks of a node share."""
        return self.shared and self.nodes[source] != self.nodes[target]
