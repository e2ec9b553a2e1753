"""The machines of a plan: GPUs in nodes, the links between them, and the time of messages over these."""

from dataclasses import dataclass

from mpcourse.collectives import cost
from mpcourse.common.errors import UserError
from mpcourse.virtual.specs import GPU, Link, find_gpu, find_link, link_between

MOST_GPUS = 1_000_000
_INSIDE = {"V100": "NVLink 2", "A100": "NVLink 3", "H100-SXM": "NVLink 4", "H200": "NVLink 4", "B200": "NVLink 5"}


@dataclass(frozen=True)
class Machines:
    """GPUs in nodes, and the links between them.

    gpus: their number.
    gpu: the kind of all of them.
    per_node: GPUs in a node.
    inside: the link between two GPUs of a node.
    between: the card that each GPU has, to other nodes.

    Ranks are numbered as in `mpcourse.grid.Grid`: tensor on neighbours, then data, pipeline slowest.
    Raises UserError for nodes that the GPUs do not fill.
    """

    gpus: int
    gpu: GPU
    per_node: int = 8
    inside: Link | None = None
    between: Link | None = None

    @staticmethod
    def named(
        gpus: int, gpu: str, per_node: int = 8, inside: str | None = None, between: str = "InfiniBand HDR"
    ) -> "Machines":
        """Make machines from names of the hardware tables.

        gpus: their number.
        gpu: a name of `mpcourse.virtual.GPUS`.
        per_node: GPUs in a node.
        inside: a name of `mpcourse.virtual.LINKS`; None: what joins such GPUs in a node, else PCIe. GPUs without peers
        copy through the host instead of over PCIe.
        between: a name of `mpcourse.virtual.LINKS`.
        Raises UserError for unknown names, and for nodes that the GPUs do not fill.
        """
        spec = find_gpu(gpu)
        if inside is None:
            inside = next((link for part, link in _INSIDE.items() if part in spec.name), spec.host_link)
        return Machines(gpus, spec, per_node, link_between([spec], inside), find_link(between))

    def __post_init__(self) -> None:
        if not 1 <= self.gpus <= MOST_GPUS:
            raise UserError(f"{self.gpus} GPUs: a plan has 1 to {MOST_GPUS}")
        if self.per_node < 1:
            raise UserError(f"{self.per_node} GPUs a node: a node has 1 or more")
        if self.gpus > self.per_node and self.gpus % self.per_node:
            raise UserError(
                f"{self.gpus} GPUs do not fill nodes of {self.per_node}: give --gpus-per-node another number"
            )

    def sums(self, axis: str, grid: tuple[int, int, int], nbytes: float, one_ring: bool = False) -> float:
        """Return the seconds of an all-reduce along an axis; an all-gather takes half of them.

        axis: "data" or "tensor".
        grid: sizes of data, pipeline and tensor.
        nbytes: on each rank.
        one_ring: use only one ring over all ranks between nodes.

        Inside a node it is a ring. Between nodes it is the faster of two ways: one ring over all ranks, whose slowest
        hop is one card's; or sums inside nodes, and then between them over a card for each GPU.
        """
        data, _, tensor = grid
        size, stride = (data, tensor) if axis == "data" else (tensor, 1)
        return self.sum_over(size, stride, nbytes, one_ring)

    def gather(self, context: int, tensor: int, nbytes: float) -> float:
        """Return the seconds of an all-gather along the context axis, which comes after the tensor axis.

        context: size of that axis.
        tensor: size of the tensor axis.
        nbytes: of the result.
        """
        return self.sum_over(context, tensor, nbytes) / 2

    def all_to_all(self, size: int, stride: int, nbytes: float) -> float:
        """Return the seconds of an all-to-all over some ranks: each sends equally much to each.

        size: number of ranks.
        stride: distance between their numbers.
        nbytes: of one rank, to all ranks together; what is for itself stays there.

        What goes to the same node and what goes to others travels at the same time.
        """
        if size == 1 or not nbytes:
            return 0.0
        on_node = max(1, min(size, self.per_node // stride))
        inside = _known(self.inside).seconds(nbytes * (on_node - 1) / size) if on_node > 1 else 0.0
        between = _known(self.between).seconds(nbytes * (size - on_node) / size) if size > on_node else 0.0
        return max(inside, between)

    def sum_over(self, size: int, stride: int, nbytes: float, one_ring: bool = False) -> float:
        """Return the seconds of an all-reduce over some ranks.

        size: number of ranks.
        stride: distance between their numbers.
        nbytes: on each rank.
        one_ring: use only one ring over all ranks between nodes.
        """
        if size == 1 or not nbytes:
            return 0.0
        on_node = max(1, min(size, self.per_node // stride))
        if on_node == size:
            return _ring(size, nbytes, self.inside)
        flat = _ring(size, nbytes, self.between)
        if size % on_node or one_ring:
            return flat
        by_node = _ring(on_node, nbytes, self.inside) + _ring(size // on_node, nbytes / on_node, self.between)
        return min(flat, by_node)

    def transfer(self, grid: tuple[int, int, int], nbytes: float, split: bool) -> float:
        """Return the seconds of an activation's transfer from a stage to the next.

        grid: sizes of data, pipeline and tensor.
        nbytes: of the activation.
        split: between nodes, each rank of the tensor axis sends its share, and the shares are gathered.
        """
        data, pipeline, tensor = grid
        if pipeline == 1:
            return 0.0
        inside, between = _known(self.inside), _known(self.between)
        if data * pipeline * tensor <= self.per_node:
            return inside.seconds(nbytes)
        if split and tensor > 1:
            return between.seconds(nbytes / tensor) + _ring(tensor, nbytes, self.inside) / 2
        return between.seconds(nbytes)


def _known(link: Link | None) -> Link:
    assert link is not None
    return link


def _ring(size: int, nbytes: float, link: Link | None) -> float:
    return cost.seconds("ring", size, nbytes, cost.of_link(_known(link)))
