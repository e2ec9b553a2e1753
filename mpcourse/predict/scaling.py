"""The time of a step with p ranks on n machines: what a rank computes, and the sum of gradients on virtual ranks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from mpcourse.common.comm import Comm
from mpcourse.common.errors import UserError
from mpcourse.data_parallel import create_communicator
from mpcourse.virtual import MPI, Topology, run
from mpcourse.virtual.specs import Link, find_link

MOST = 1 << 25  # bytes of gradients that the virtual ranks hold together

# A communicator's name, or an all-reduce f(comm, x), which adds up all gradients in one flat buffer.
Summing = str | Callable[[Any, torch.Tensor], None]


@dataclass(frozen=True)
class Machines:
    """Ranks on nodes, and the links between them.

    ranks: on all nodes, one per GPU, equally many on each.
    nodes: their number.
    inside: the link between two ranks of a node; a name of `mpcourse.virtual.LINKS`, or a Link.
    between: a node's own link to the others; a name or a Link.
    staging: the link over which gradients are copied to the host's memory and back where they leave a node; a name or a
    Link. None: they are not copied.
    Raises UserError where ranks and nodes do not fit, and for an unknown name.
    """

    ranks: int
    nodes: int = 1
    inside: str | Link = "PCIe 3.0 x16"
    between: str | Link = "10 GbE"
    staging: str | Link | None = None

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.ranks < self.nodes or self.ranks % self.nodes:
            raise UserError(f"{self.ranks} ranks on {self.nodes} nodes: each node needs as many as the others")
        for link in (self.inside, self.between, *((self.staging,) if self.staging else ())):
            find_link(link)

    def topology(self, shrink: int = 1) -> Topology:
        """Return the machines, for virtual ranks.

        shrink: all bandwidths are divided by it, for messages that are shorter by the same factor.
        """
        inside, between = (
            replace(link, bandwidth=link.bandwidth / shrink) for link in map(find_link, (self.inside, self.between))
        )
        each = self.ranks // self.nodes
        return Topology([rank // each for rank in range(self.ranks)], inside, between)


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step.

    compute: what every rank computes.
    staging: copies to and from the host's memory.
    sum: the sum of gradients over ranks.
    """

    compute: float
    staging: float
    sum: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole step."""
        return self.compute + self.staging + self.sum

    @property
    def efficiency(self) -> float:
        """Efficiency of each rank, compared with one that trains alone: also the speedup over the number of ranks."""
        return self.compute / self.seconds

    def epoch(self, examples: int, batch: int, ranks: int) -> float:
        """Return the seconds in which all ranks together see all examples once.

        examples: of the training set.
        batch: examples of each rank in a step.
        ranks: their number.
        """
        return steps_of_epoch(examples, batch, ranks) * self.seconds


def step(
    compute: float, parameters: Sequence[int], machines: Machines, communicator: Summing = "hierarchical"
) -> StepTime:
    """Return the time of a data-parallel step, in which gradients are summed after backward, in float32.

    compute: seconds of forward, backward and update on one rank.
    parameters: number of elements in each.
    machines: they hold the ranks.
    communicator: a name for `create_communicator`, or an all-reduce of one flat buffer, f(comm, x).
    Raises UserError for seconds below 0 or infinite, and for a model without parameters.
    """
    if not 0 <= compute < math.inf:
        raise UserError(f"a step computes for 0 seconds or more, not {compute}")
    staging = 0.0
    if machines.staging is not None and machines.nodes > 1:
        staging = 2 * find_link(machines.staging).seconds(4 * sum(parameters))
    return StepTime(compute, staging, sum_seconds(communicator, parameters, machines))


def steps_of_epoch(examples: int, batch: int, ranks: int) -> int:
    """Return how many steps all examples take; the last step may be shorter.

    examples: of the training set.
    batch: examples of each rank in a step.
    ranks: their number.
    Raises UserError for a number below 1.
    """
    if min(examples, batch, ranks) < 1:
        raise UserError(f"{examples} examples, batches of {batch}, {ranks} ranks: each is 1 or more")
    return math.ceil(examples / (batch * ranks))


def sum_seconds(communicator: Summing, parameters: Sequence[int], machines: Machines) -> float:
    """Return the virtual seconds in which ranks sum float32 gradients, by the communicator's own code.

    communicator: a name for `create_communicator`, or an all-reduce of one flat buffer, f(comm, x).
    parameters: number of elements in each.
    machines: they hold the ranks.

    "naive" sums them parameter by parameter, all others in one flat buffer. Other messages between ranks are not
    included. Where the gradients of all ranks would not fit into this machine's memory, ranks hold fewer numbers and
    links have less bandwidth by the same factor: alpha + n beta stays the same. Only what depends on n in another way
    differs, such as the choice of an algorithm.
    Raises UserError for a model without parameters.
    """
    if not parameters or min(parameters) < 1:
        raise UserError("a model to train has parameters, of 1 number or more each")
    if machines.ranks == 1:
        return 0.0
    shrink = math.ceil(4 * sum(parameters) * machines.ranks / MOST)
    rows = [max(1, round(n / shrink)) for n in (parameters if communicator == "naive" else [sum(parameters)])]

    def program(comm: Comm) -> tuple[float, float]:
        if isinstance(communicator, str):
            add_up = create_communicator(communicator, comm, machines.ranks // machines.nodes).allreduce
        else:
            add_up = partial(communicator, comm)
        comm.Barrier()
        begin = MPI.Wtime()
        for length in rows:
            add_up(torch.zeros(length))
        return begin, MPI.Wtime()

    times = run(program, machines.ranks, machines.topology(shrink), record=False).results
    return max(end for _, end in times) - min(begin for begin, _ in times)
