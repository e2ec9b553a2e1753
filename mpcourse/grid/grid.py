"""A grid of ranks: one coordinate for each way to cut a training, and one communicator for each."""

import math
from collections.abc import Iterable, Sequence

from mpcourse.common.comm import Comm
from mpcourse.data_parallel.nodes import nodes_of

AXES = ("data", "pipeline", "tensor")  # of every grid
EVERY_AXIS = (*AXES, "context", "expert")  # a grid has the last two only if they are asked for
# From the outermost to the innermost, as Megatron-LM numbers its ranks.
ORDER = ("pipeline", "data", "expert", "context", "tensor")


class Grid:
    """A grid of ranks, data x pipeline x tensor x context x expert. All ranks make one together, with equal arguments.

    comm: mpi4py's communicator, or a virtual rank's.
    data, pipeline, tensor, context, expert: the sizes; their product is the number of ranks. Ranks of a context axis
    share the tokens of the same sequences. Ranks of an expert axis share the experts; like those of the data axis, each
    has sequences of its own. A grid in which `context` or `expert` is 1 does not have this axis.
    order: the axes from the outermost to the innermost. Along the innermost, neighbours have consecutive numbers, and
    launchers put such ranks on one node. Axes that the grid does not have are left out.
    within: axes whose groups may each lie on one node only.
    ranks_per_node: treat so many ranks in a row as a node; None: compare host names.

    The grid's own `data`, `pipeline`, `tensor`, `context` and `expert` are this rank's communicators, of the ranks that
    differ from it in that coordinate only; its rank in each is the coordinate. `replicas` has the ranks with the same
    parameters, along data, context and expert; `expert_replicas` those among them with the same experts, along data and
    context. `nodes` has for each rank of `comm` the number of its node. The default order puts tensor parallelism on
    neighbours, because it sends activations four times in each layer and waits for them. Data parallelism sends
    gradients only once a step, and a pipeline only what crosses a cut (Narayanan et al. 2021, section 3; Llama 3's
    order has data outermost).
    Raises ValueError, on every rank, for sizes whose product is not the number of ranks, an invalid order, different
    arguments on different ranks, and a group that `within` forbids.
    """

    def __init__(
        self,
        comm: Comm,
        *,
        data: int = 1,
        pipeline: int = 1,
        tensor: int = 1,
        context: int = 1,
        expert: int = 1,
        order: Sequence[str] = ORDER,
        within: Iterable[str] = (),
        ranks_per_node: int | None = None,
    ) -> None:
        sizes = {"data": data, "pipeline": pipeline, "tensor": tensor, "context": context, "expert": expert}
        self.comm, self.axes = comm, tuple(axis for axis in EVERY_AXIS if axis in AXES or sizes[axis] != 1)
        self.sizes = {axis: sizes[axis] for axis in self.axes}
        self.order = tuple(axis for axis in order if axis in self.axes or axis not in EVERY_AXIS)
        self._check(tuple(within))
        self.nodes: list[int] = comm.allgather(nodes_of(comm, ranks_per_node).inter_rank)
        for axis in within:
            if apart := self.straddling(axis):
                raise ValueError(self._straddles(axis, apart[0]))
        self.data, self.pipeline, self.tensor, self.context, self.expert = (self._along(axis) for axis in EVERY_AXIS)
        same = self.axes == AXES
        self.replicas = self.data if same else self._along("data", "context", "expert")
        self.expert_replicas = self.data if same else self._along("data", "context")

    def _along(self, *axes: str) -> Comm:
        """Return a communicator of the ranks that differ from this one in these axes alone."""
        own = self.coordinates(self.comm.rank)
        # The color is the same for all of them, and the key numbers them.
        color = self.rank_at(**own | {axis: 0 for axis in axes if axis in self.axes})
        return self.comm.Split(color, self.comm.rank)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{axis} {self.sizes[axis]}" for axis in self.order)
        return f"<Grid {sizes}, rank {self.comm.rank} at {self.coordinates(self.comm.rank)}>"

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return a rank's place: {"data": 0, "pipeline": 1, "tensor": 3}.

        rank: of `comm`.
        """
        coordinate = {}
        for axis in reversed(self.order):
            rank, coordinate[axis] = divmod(rank, self.sizes[axis])
        return {axis: coordinate[axis] for axis in self.axes}

    def rank_at(self, *, data: int, pipeline: int, tensor: int, context: int = 0, expert: int = 0) -> int:
        """Return the rank of `comm` with these coordinates.

        data, pipeline, tensor, context, expert: from 0 on.
        """
        at = {"data": data, "pipeline": pipeline, "tensor": tensor, "context": context, "expert": expert}
        rank = 0
        for axis in self.order:
            rank = rank * self.sizes[axis] + at[axis]
        return rank

    def groups(self, axis: str) -> list[tuple[int, ...]]:
        """Return the ranks of `comm` in each communicator of an axis, in their order there.

        axis: one of `axes`.
        """
        groups: dict[int, list[int]] = {}
        for rank in range(self.comm.size):
            groups.setdefault(self.rank_at(**self.coordinates(rank) | {axis: 0}), []).append(rank)
        return [tuple(group) for group in groups.values()]

    def straddling(self, axis: str) -> list[tuple[int, ...]]:
        """Return the groups of an axis whose ranks are on several nodes: their messages cross the network.

        axis: one of `axes`.
        """
        return [group for group in self.groups(axis) if len({self.nodes[rank] for rank in group}) > 1]

    def axis_of(self, a: int, b: int) -> str | None:
        """Return the axis along which two ranks differ, or None if there is none or more than one.

        a, b: ranks of `comm`.
        """
        one, other = self.coordinates(a), self.coordinates(b)
        differing = [axis for axis in self.axes if one[axis] != other[axis]]
        return differing[0] if len(differing) == 1 else None

    def _check(self, within: tuple[str, ...]) -> None:
        """Raise ValueError on all ranks if one of them would raise it."""
        asked = self.comm.allgather((self.sizes, self.order, within))
        for rank, arguments in enumerate(asked):
            if arguments != asked[0]:
                raise ValueError(f"rank {rank} asks for another grid than rank 0: {arguments} and {asked[0]}")
        if sorted(self.order) != sorted(self.axes):
            raise ValueError(f"order is {', '.join(self.axes)} in some order, each once, not {self.order!r}")
        if unknown := [axis for axis in within if axis not in self.axes]:
            raise ValueError(f"within: there is no axis {unknown[0]!r}, but {', '.join(self.axes)}")
        for axis, size in self.sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"{axis} must be a whole number, 1 or more: got {size!r}")
        if (product := math.prod(self.sizes.values())) != self.comm.size:
            sizes = " x ".join(f"{axis} {size}" for axis, size in self.sizes.items())
            raise ValueError(f"{sizes} is a grid of {product} ranks, and this run has {self.comm.size}")

    def _straddles(self, axis: str, group: tuple[int, ...]) -> str:
        on = ", ".join(f"rank {rank} on node {self.nodes[rank]}" for rank in group)
        each = max(self.nodes.count(node) for node in self.nodes)
        return (
            f"the {axis} axis straddles nodes: {on}. A node has {each} ranks here. Make {axis} a divisor of that and "
            f"the last in order, which is {self.order}"
        )
