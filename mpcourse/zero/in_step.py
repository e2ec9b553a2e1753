"""Checks whether all ranks are about to do the same.

With ZeRO, a rank that runs another layer would take that layer's weights for its own.
"""

from collections.abc import Sequence

from mpcourse.common.comm import Comm
from mpcourse.common.errors import RankFailed
from mpcourse.data_parallel.checked.control_channel import ControlChannel

FORWARD, BACKWARD, PASS, STEP, WHOLE = range(5)
TOLD = (
    "runs the forward pass of layer {}",
    "runs the backward pass of layer {}",
    "begins a backward pass",
    "steps",
    "enters whole()",
)


class InStep:
    """A check that compares what ranks are about to do, before they send anything. All ranks make one together.

    comm: mpi4py's communicator, or a virtual rank's; or an AloneComm, where nothing is compared.
    layers: their names.
    """

    def __init__(self, comm: Comm, layers: Sequence[str]) -> None:
        self.layers = list(layers)
        self._control = None if hasattr(comm, "count") else ControlChannel(comm)

    def check(self, what: int, layer: int = 0, number: int = 0) -> list[int]:
        """Return the numbers that each rank gave, in the order of ranks. All ranks call it.

        what: FORWARD, BACKWARD, PASS, STEP or WHOLE.
        layer: for FORWARD and BACKWARD, its place in `layers`.
        number: any number of this rank's.
        Raises RankFailed, on every rank, where ranks are about to do different things, or where one has ended.
        """
        if self._control is None:
            return [number]
        said = self._control.exchange("goes on with ZeRO", what, layer, number)
        if len({(theirs, at) for theirs, at, _ in said}) > 1:
            told = ", ".join(f"rank {rank} {self._told(theirs, at)}" for rank, (theirs, at, _) in enumerate(said))
            raise RankFailed(
                f"ranks do different things: {told}. With ZeRO all ranks must run the same layers in the same order, "
                "also one that a rank has no use for, and step after the same batches"
            )
        return [theirs for *_, theirs in said]

    def _told(self, what: int, layer: int) -> str:
        name = self.layers[layer] if layer < len(self.layers) else layer
        return TOLD[what].format(name)
