"""Which part of a layer's parameters a rank has, and how the whole is put together again."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn

from mpcourse.collectives.buffers import offsets
from mpcourse.collectives.tensors import sum_gradients
from mpcourse.common.comm import Comm


class Cut(NamedTuple):
    """Which part of a parameter this rank has.

    dim: the dimension that is cut.
    own: int64 (part,), the indices of the whole along that dimension, in the part's order.
    length: of the whole along that dimension.
    """

    dim: int
    own: torch.Tensor
    length: int


class ParallelLayer(nn.Module):
    """A layer of whose parameters some are split over the ranks of the tensor axis.

    comm: the tensor axis's communicator; None: one rank.
    cuts: by name, the layer's own parameters that are split. All others are the same on all ranks.
    partial: names of parameters whose gradients are those of this rank's rows alone (sequence parallelism), so that
    they have to be added up over the ranks. Names of parameters of modules within contain dots.
    """

    def __init__(self, comm: Comm | None) -> None:
        super().__init__()
        self.comm = comm
        self.cuts: dict[str, Cut] = {}
        self.partial: list[str] = []

    def split_parameter(self, name: str, whole: torch.Tensor, dim: int, own: torch.Tensor) -> None:
        """Make a parameter of this rank's part of `whole`.

        name: of the parameter.
        whole: the same on all ranks; its part is copied.
        dim: the dimension that is cut.
        own: int64, indices along it.
        """
        part = whole.detach().index_select(dim, own.to(whole.device))
        self.register_parameter(name, nn.Parameter(part, requires_grad=whole.requires_grad))
        self.cuts[name] = Cut(dim, own, whole.shape[dim])

    def whole_parameter(self, name: str, whole: torch.Tensor | None) -> None:
        """Make a parameter that all ranks have, a copy of `whole`; None: there is none.

        name: of the parameter.
        whole: the same on all ranks.
        """
        copied = None if whole is None else nn.Parameter(whole.detach().clone(), requires_grad=whole.requires_grad)
        self.register_parameter(name, copied)


def own_part(comm: Comm | None, length: int) -> torch.Tensor:
    """Return this rank's indices out of `length`, int64, consecutive. Shares differ by one at most.

    comm: the tensor axis's communicator; None: one rank. No message is sent.
    length: of what is split.
    Raises ValueError for more ranks than there are parts.
    """
    if comm is None:
        return torch.arange(length, device="cpu")
    if length < comm.size:
        raise ValueError(f"{length} rows or columns cannot be shared by {comm.size} ranks: each needs one at least")
    at = offsets(length, comm.size)
    return torch.arange(at[comm.rank], at[comm.rank + 1], device="cpu")


def sharded_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are split over the ranks of the tensor axis. All others are the same on all ranks.

    module: its layers are searched.
    """
    layers = [m for m in module.modules() if isinstance(m, ParallelLayer)]
    found = {id(p): p for layer in layers for p in (layer._parameters[name] for name in layer.cuts) if p is not None}
    return list(found.values())


def sum_partial_gradients(comm: Comm | None, module: nn.Module) -> None:
    """Add up over all ranks the gradients that each has for its own rows alone. All ranks call it after backward.

    comm: the tensor axis's communicator; None: one rank.
    module: its layers are searched. Without sequence parallelism there is nothing to add up, and nothing is sent.

    Norms, biases behind a row-parallel layer, and positions are the same on all ranks, but each rank has used them for
    its own tokens. All of them travel in one all-reduce.
    """
    layers = [m for m in module.modules() if isinstance(m, ParallelLayer)]
    parameters = {id(p): p for layer in layers for p in (layer.get_parameter(name) for name in layer.partial)}
    sum_gradients(comm, parameters.values())


def whole_state(comm: Comm | None, module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the whole of each parameter by its name, on the CPU. All ranks call it.

    comm: the tensor axis's communicator; None: one rank.
    module: its layers are searched; names are those of `module.named_parameters(remove_duplicate=False)`.

    For tests and for files: it gathers everything on every rank.
    """
    cuts = _cuts(module)
    state = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        part = p.detach().to("cpu", copy=True)
        if name not in cuts:
            state[name] = part
            continue
        cut = cuts[name]
        shape = list(part.shape)
        shape[cut.dim] = cut.length
        state[name] = part.new_empty(shape)
        for own, theirs in [(cut.own, part)] if comm is None else comm.allgather((cut.own, part)):
            state[name].index_copy_(cut.dim, own, theirs)
    return state


def load_whole_state(module: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Copy this rank's part of each whole parameter into `module`. No message is sent.

    module: of any number of ranks.
    state: as `whole_state` returns it, on any number of ranks.
    Raises KeyError for a parameter without a name in `state`.
    """
    cuts = _cuts(module)
    with torch.no_grad():
        for name, p in module.named_parameters(remove_duplicate=False):
            whole = state[name]
            p.copy_(whole.index_select(cuts[name].dim, cuts[name].own) if name in cuts else whole)


def _cuts(module: nn.Module) -> dict[str, Cut]:
    """Return the cuts of all layers, by the names of their parameters within `module`."""
    return {
        f"{path}.{name}".lstrip("."): cut
        for path, layer in module.named_modules()
        if isinstance(layer, ParallelLayer)
        for name, cut in layer.cuts.items()
    }
