"""Stage 3: each rank keeps only its own shard of the parameters, too, and gathers a layer while it computes."""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from mpcourse.common.comm import Comm
from mpcourse.zero.elementwise import MakeOptimizer
from mpcourse.zero.gradients import ShardedGradients
from mpcourse.zero.in_step import BACKWARD, FORWARD, WHOLE
from mpcourse.zero.messages import all_gather
from mpcourse.zero.optimizer import BUCKET
from mpcourse.zero.sharding import Parameters, Unit, divided


class ShardedParameters(ShardedGradients):
    """A sharded optimizer that keeps only this rank's shard of the parameters. All ranks make one together.

    make_optimizer: makes a torch optimizer of groups, e.g. `lambda groups: AdamW(groups, lr=1e-3)`; it must update each
    element by itself.
    parameters: a module, tensors or groups, the same on all ranks. Their values, and a module's buffers, become those
    of the first rank. Frozen parameters are not sharded; a tied parameter is sharded once.
    comm: mpi4py's communicator, or a virtual rank's: the ranks that share all.
    layers: modules that each compute at once, in about the order in which forward runs them. Every trained parameter
    belongs to one of them, or to several where it is tied. None: those children of `parameters`, which is a module,
    that have parameters.
    replicas: the ranks that own the same shards in other such groups, where sharding stays within nodes
    (`within_nodes`); None: there are no others.
    master: dtype of the copies of shards that the optimizer updates, e.g. float32 for bfloat16 parameters; None: it
    updates the parameters themselves.

    A layer's parameters are gathered before its forward, and again before its backward; after each they are freed, and
    then read as NaN, except within `whole`. Gradients are those of stage 2, with a layer as a unit. Each rank sends
    3 P (p - 1) / p values in a step of one backward pass. A layer that also uses the parameters of another one, which
    are tied, gathers those, too.
    All ranks run the same layers in the same order; otherwise all raise RankFailed, which names the layers.
    Raises ValueError for trained parameters outside of all layers, and, on every rank, for an optimizer that is not
    element-wise, for models that differ in shape, for optimizers that differ in their options, and where nothing is
    trained.
    Source: ZeRO (Rajbhandari et al. 2020), P_os+g+p, section 5.3.
    """

    def __init__(
        self,
        make_optimizer: MakeOptimizer,
        parameters: Parameters,
        comm: Comm,
        layers: Sequence[nn.Module] | None = None,
        *,
        replicas: Comm | None = None,
        master: torch.dtype | None = None,
    ) -> None:
        if layers is None:
            if not isinstance(parameters, nn.Module):
                raise ValueError("layers: where parameters are not a module's, name the modules that compute at once")
            layers = [child for child in parameters.children() if list(child.parameters())]
        self.layers = list(layers)
        super().__init__(make_optimizer, parameters, comm, replicas=replicas, master=master, bucket_bytes=BUCKET)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Gather all parameters within this context, to be inspected or saved. All ranks enter it together."""
        self._in_step.check(WHOLE)
        self._gather(range(len(self.units)))
        self._stay = True
        try:
            yield
        finally:
            self._stay = False
            self._free(range(len(self.units)))

    # Which units there are, and what is kept of them.

    def _divided(self, parameters: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Return lists of parameters of one layer, dtype and device. A tied one belongs to the first of its layers."""
        layer_of: dict[torch.Tensor, int] = {}
        for number, layer in enumerate(self.layers):
            layer_of = dict.fromkeys(layer.parameters(), number) | layer_of
        for p in parameters:
            if p not in layer_of:
                raise ValueError(
                    f"{self.names[p]!r} belongs to no layer: each trained parameter must be gathered with one"
                )
        groups = []
        for number in range(len(self.layers)):
            inside = [p for p in parameters if layer_of[p] == number]
            groups += divided(inside, math.inf)
        return groups

    def _shard(self, unit: Unit, flat: torch.Tensor) -> torch.Tensor:
        return nn.Parameter(super()._shard(unit, flat).clone(), requires_grad=False)

    def _begin(self) -> None:
        self._here = set(range(len(self.units)))  # units whose parameters are in memory
        self._stay = False
        self._places = [unit.views(flat) for unit, flat in zip(self.units, self.flats, strict=True)]
        self._nothing = [
            [place.new_full((), float("nan")).expand(place.shape) for place in places] for places in self._places
        ]
        super()._begin()
        self._needed = [
            sorted({self._unit_of[p] for p in layer.parameters() if p in self._unit_of}) for layer in self.layers
        ]
        for number, layer in enumerate(self.layers):
            self._handles.append(layer.register_forward_pre_hook(lambda *_, n=number: self._before_forward(n)))
            self._handles.append(layer.register_forward_hook(lambda *args, n=number: self._after_forward(n, args[-1])))

    # When a layer's parameters are in memory.

    def _layer_names(self, parameters: Parameters) -> list[str]:
        names = {m: name for name, m in parameters.named_modules()} if isinstance(parameters, nn.Module) else {}
        return [repr(names.get(layer) or number) for number, layer in enumerate(self.layers)]

    def _compare(self, what: int, number: int) -> None:
        """Check, before a layer is gathered, that all ranks are about to gather it."""
        if not self._here.issuperset(self._needed[number]):
            self._in_step.check(what, number)

    def _before_forward(self, number: int) -> None:
        self._compare(FORWARD, number)
        self._gather(self._needed[number])

    def _after_forward(self, number: int, output: object) -> None:
        if self._sent is None:  # otherwise a checkpoint runs the layer again, for the backward that follows
            self._free(self._needed[number])
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda _: self._before_backward(number))  # the layer's backward begins with it

    def _before_backward(self, number: int) -> None:
        if torch.is_grad_enabled():  # only create_graph=True does that
            raise RuntimeError(
                "this backward pass makes a graph (create_graph=True, as for a gradient penalty), for which parameters "
                "would have to stay: stage 3 frees them. Take stage 2"
            )
        self._begin_pass()
        self._compare(BACKWARD, number)
        self._free(self._here - set(self._needed[number]))  # parameters of the layer behind it
        self._gather(self._needed[number])

    def _send(self, i: int) -> None:
        self._free([i])  # all gradients of its parameters have been computed
        super()._send(i)

    def _forget_pass(self) -> None:
        super()._forget_pass()
        self._free(range(len(self.units)))

    def _publish(self, i: int) -> None:
        self._free([i])
        self.shards[i].copy_(self.masters[i])  # the others get it before they compute

    @torch.no_grad()
    def _gather(self, units: Iterable[int]) -> None:
        """Gather all parameters of these units, unless they are in memory."""
        for i in units:
            if i not in self._here:
                self._allocate(i)
                all_gather(self.ring, self.flats[i])
                self._here.add(i)

    def _allocate(self, i: int) -> None:
        """Allocate memory for unit i, with this rank's shard in its place."""
        unit, flat = self.units[i], self.flats[i]
        # The old storage is resized, and no new one made, because it has views: what autograd has saved of a parameter,
        # such as its transpose.
        flat.untyped_storage().resize_(flat.numel() * flat.element_size())
        unit.shard(flat, self.comm.rank).copy_(self.shards[i])
        for p, place in zip(unit.parameters, self._places[i], strict=True):
            p.data = place

    def _free(self, units: Iterable[int]) -> None:
        for i in [] if self._stay else units:
            if i in self._here:
                for p, nothing in zip(self.units[i].parameters, self._nothing[i], strict=True):
                    p.data = nothing
                self.flats[i].untyped_storage().resize_(0)
                self._here.discard(i)
