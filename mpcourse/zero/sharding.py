"""Which rank owns which elements: parameters side by side in a flat buffer, padded, cut into one chunk per rank."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

# What optimizers take: tensors, or groups of them with options of their own, e.g. {"params": [...], "lr": 0.1}.
Parameters = nn.Module | Iterable[torch.Tensor] | Iterable[Mapping[str, Any]]


class Owned(NamedTuple):
    """A part of one parameter.

    parameter: its number in the unit.
    begin: the first of its elements, flattened.
    end: the last one + 1.
    """

    parameter: int
    begin: int
    end: int


class Unit:
    """Parameters that are sharded and sent together. Rank r owns the r-th of `ranks` equally long chunks of them.

    parameters: of one dtype and device, of any shapes; they lie side by side in this order.
    ranks: number of ranks that own a chunk each, 1 or more.

    length: elements without padding.
    chunk: elements of each rank; ranks * chunk is the length of a flat buffer, whose last elements may be padding.
    Padding belongs to no rank, and is zero. A chunk may begin and end anywhere, also within a parameter, which suits
    optimizers that compute each element by itself.
    Source: ZeRO (Rajbhandari et al. 2020, section 5.1).
    """

    def __init__(self, parameters: Sequence[torch.Tensor], ranks: int) -> None:
        self.parameters, self.ranks = list(parameters), ranks
        self.ends = list(itertools.accumulate(p.numel() for p in self.parameters))
        self._end = dict(zip(self.parameters, self.ends, strict=True))
        self.length = self.ends[-1]
        self.chunk = -(-self.length // ranks)  # rounded up: the padding is shorter than `ranks`

    def empty(self) -> torch.Tensor:
        """Return a flat buffer for all elements, (ranks * chunk,), in the parameters' dtype. Its padding is zero."""
        flat = self.parameters[0].new_empty(self.ranks * self.chunk)
        flat[self.length :].zero_()
        return flat

    def view(self, flat: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        """Return the place of a parameter in a flat buffer, in its shape, on the same memory.

        flat: (ranks * chunk,), of any dtype.
        p: one of the unit's parameters.
        """
        end = self._end[p]
        return flat[end - p.numel() : end].view(p.shape)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return each parameter's place in a flat buffer, in its shape, on the same memory.

        flat: (ranks * chunk,), of any dtype.
        """
        return [self.view(flat, p) for p in self.parameters]

    def shard(self, flat: torch.Tensor, rank: int) -> torch.Tensor:
        """Return the chunk of a flat buffer that belongs to one rank: (chunk,), on the same memory.

        flat: (ranks * chunk,), of any dtype.
        rank: the rank that owns the chunk, 0 to ranks - 1.
        """
        return flat[rank * self.chunk : (rank + 1) * self.chunk]

    def owned(self, rank: int) -> list[Owned]:
        """Return the elements that a rank owns, by parameter, without padding.

        rank: the owner, 0 to ranks - 1.
        """
        first, last = rank * self.chunk, (rank + 1) * self.chunk
        pieces = []
        for i, (p, end) in enumerate(zip(self.parameters, self.ends, strict=True)):
            begin = end - p.numel()
            if max(begin, first) < min(end, last):
                pieces.append(Owned(i, max(begin, first) - begin, min(end, last) - begin))
        return pieces

    def parameter_at(self, rank: int, element: int) -> torch.Tensor:
        """Return the parameter to which an element of a rank's chunk belongs.

        rank: the rank that owns the chunk, 0 to ranks - 1.
        element: its place in the chunk, from 0; not in the padding.
        """
        place = rank * self.chunk + element
        return next(p for p, end in zip(self.parameters, self.ends, strict=True) if place < end)


def groups_of(parameters: Parameters) -> list[dict[str, Any]]:
    """Return groups as torch's optimizers have them: {"params": [tensors], and options}.

    parameters: a module or tensors, which make one group; or groups.
    """
    given = list(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)
    groups = [dict(each) for each in given if isinstance(each, Mapping)] or [{"params": given}]
    for group in groups:
        held = group["params"]
        group["params"] = [held] if isinstance(held, torch.Tensor) else list(held)
    return groups


def trained(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups without frozen parameters, and with each tied parameter once; empty groups are left out.

    groups: each {"params": [tensors], and options}.

    Raises ValueError where nothing is left.
    """
    seen: set[torch.Tensor] = set()
    kept = []
    for group in groups:
        held = [p for p in dict.fromkeys(group["params"]) if p.requires_grad and p not in seen]
        seen.update(held)
        if held:
            kept.append({**group, "params": held})
    if not kept:
        raise ValueError("there is no parameter to train")
    return kept


def divided(parameters: Iterable[torch.Tensor], most_bytes: float) -> list[list[torch.Tensor]]:
    """Divide parameters into lists of consecutive ones of one dtype and device.

    parameters: of any shapes, dtypes and devices.
    most_bytes: a list is closed as soon as it holds so many bytes.
    """
    lists: list[list[torch.Tensor]] = []
    for _, alike in itertools.groupby(parameters, lambda p: (p.dtype, p.device)):
        nbytes: float = most_bytes
        for p in alike:
            if nbytes >= most_bytes:
                lists.append([])
                nbytes = 0
            lists[-1].append(p)
            nbytes += p.nbytes
    return lists
