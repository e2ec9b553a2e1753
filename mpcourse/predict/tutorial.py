"""ChainerMN's tutorial of 2018, its two tables row by row: predict, from single-node rows, the effect of Ethernet."""

from functools import partial
from typing import NamedTuple

from mpcourse.collectives import rabenseifner_allreduce
from mpcourse.collectives.fast.segmented import segmented_ring_allreduce
from mpcourse.data.published import CHAINERMN_TUTORIAL, Processes, Scaling
from mpcourse.predict.scaling import Machines, StepTime, Summing, step, steps_of_epoch
from mpcourse.virtual.specs import Link

# What MPI_Allreduce did in 2018 for these gradients, 7.18 MB of float32, by the libraries' own sources: MPICH (3.2)
# uses Rabenseifner's algorithm above 2048 bytes; Open MPI (1.2 to 4.0, coll_tuned_decision_fixed.c) a ring from 10 000
# bytes on, in segments of 1 MiB where each rank has more than that.
MPICH_2018 = rabenseifner_allreduce
OPEN_MPI_2018 = partial(segmented_ring_allreduce, segment=1 << 20)
LATENCY = 10e-6  # seconds of a copy between two GPUs of a node; the table's single-node rows cannot show it


class Row(NamedTuple):
    """A published row beside the predicted one.

    published: processes, nodes and seconds.
    step: the predicted step, by part.
    seconds: predicted, for the whole training.
    """

    published: Processes
    step: StepTime
    seconds: float

    @property
    def off(self) -> float:
        """The part by which the prediction is above the published figure."""
        return self.seconds / self.published.seconds - 1


def step_of(row: Processes, table: Scaling = CHAINERMN_TUTORIAL) -> float:
    """Return the seconds of one of a row's steps.

    row: of the table.
    table: published; its epochs, examples and batch are used.
    """
    return row.seconds / (table.epochs * steps_of_epoch(table.examples, table.batch, row.processes))


def fitted(table: Scaling = CHAINERMN_TUTORIAL, communicator: Summing = "hierarchical") -> tuple[float, Link]:
    """Fit the seconds that a GPU computes in a step, and the link inside a node, to the two single-node GPU rows.

    table: published.
    communicator: a name for `create_communicator`, or an all-reduce of one flat buffer, f(comm, x).
    """
    one, two = (step_of(row, table) for row in table.gpu if row.nodes == 1)
    # Virtual time is a straight line in a link's seconds per byte, so two points determine it.
    at = [
        step(one, table.parameters, Machines(2, 1, Link("", bandwidth, LATENCY)), communicator).seconds
        for bandwidth in (1e9, 1e10)
    ]
    slope = (at[0] - at[1]) / (1e-9 - 1e-10)
    return one, Link("inside a node, fitted", 1 / (1e-10 + (two - at[1]) / slope), LATENCY)


def gpu_rows(
    table: Scaling = CHAINERMN_TUTORIAL, communicator: Summing = "hierarchical", between: str | Link = "1 GbE"
) -> list[Row]:
    """Predict all GPU rows. Two numbers are fitted, to the rows of one node; those of two nodes follow from them.

    table: published.
    communicator: a name for `create_communicator`, or an all-reduce of one flat buffer, f(comm, x).
    between: a node's link to the others; a name of `mpcourse.virtual.LINKS`, or a Link.

    Gradients are copied through the host's memory where they leave a node, over the link of the node's GPUs.
    """
    compute, inside = fitted(table, communicator)
    rows = []
    for row in table.gpu:
        machines = Machines(row.processes, row.nodes, inside, between, inside)
        predicted = step(compute, table.parameters, machines, communicator)
        rows.append(Row(row, predicted, table.epochs * predicted.epoch(table.examples, table.batch, row.processes)))
    return rows


def cpu_rows(
    table: Scaling = CHAINERMN_TUTORIAL, communicator: Summing = "hierarchical", between: str | Link = "1 GbE"
) -> list[Row]:
    """Predict all CPU rows. A process's computing time is taken from single-node rows with as many processes per node.

    table: published.
    communicator: a name for `create_communicator`, or an all-reduce of one flat buffer, f(comm, x).
    between: a node's link to the others; a name of `mpcourse.virtual.LINKS`, or a Link.

    With 1 and with 2 processes it is taken from the row itself. With more it is taken from a straight line through the
    rows with 4, 6 and 10, seconds = a + b times processes on the node. A sum inside a node costs nothing beside that.
    """
    alone = {row.processes: step_of(row, table) for row in table.cpu if row.nodes == 1}
    a, b = _line({k: s for k, s in alone.items() if k > 2})
    rows = []
    for row in table.cpu:
        each = row.processes // row.nodes
        compute = alone[row.processes] if row.processes <= 2 else a + b * each
        machines = Machines(row.processes, row.nodes, Link("memory", float("inf"), 0.0), between)
        predicted = step(compute, table.parameters, machines, communicator)
        rows.append(Row(row, predicted, table.epochs * predicted.epoch(table.examples, table.batch, row.processes)))
    return rows


def _line(points: dict[int, float]) -> tuple[float, float]:
    """Return a and b of the straight line a + b x that is nearest to the points (least squares)."""
    mean_x, mean_y = (sum(each) / len(points) for each in (points, points.values()))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points.items()) / sum((x - mean_x) ** 2 for x in points)
    return mean_y - slope * mean_x, slope
