"""The state of sharded optimizers: one part per rank, which any other number of ranks can read."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from mpcourse.zero.sharding import Unit

if TYPE_CHECKING:
    from mpcourse.zero.optimizer import ShardedOptimizer

Part = Mapping[str, Any]


def part_of(sharded: "ShardedOptimizer") -> dict[str, Any]:
    """Copy what this rank owns: plain dicts, lists, numbers and tensors, which torch.save takes.

    sharded: an optimizer of any stage.

    In the part, "units" holds for each unit its length without padding, this rank's chunk of the parameters as the
    optimizer updates them, and the optimizer's state for it; "options" holds each group's, e.g. its learning rate.
    """
    inner = sharded.optimizer
    units = [
        {"length": unit.length, "master": _copied(master), "state": _copied(inner.state.get(master, {}))}
        for unit, master in zip(sharded.units, sharded.masters, strict=True)
    ]
    options = [{key: value for key, value in group.items() if key != "params"} for group in inner.param_groups]
    return {"rank": sharded.comm.rank, "ranks": sharded.comm.size, "units": units, "options": options}


def load_parts(sharded: "ShardedOptimizer", parts: Sequence[Part]) -> None:
    """Set masters, their state and the groups' options from the parts of all ranks of a run.

    sharded: an optimizer of any stage.
    parts: of rank 0, 1, ..., of any number of ranks.

    Raises ValueError, before anything changes, where parts are missing or belong to other parameters.
    """
    _check(sharded, parts)
    inner = sharded.optimizer
    for i, (unit, master) in enumerate(zip(sharded.units, sharded.masters, strict=True)):
        held = [part["units"][i] for part in parts]
        master.detach().copy_(resharded([each["master"] for each in held], unit, sharded.comm.rank))
        inner.state.pop(master, None)
        for key, value in held[0]["state"].items():
            if isinstance(value, torch.Tensor) and value.dim():  # it has an element for each of the chunk
                value = resharded([each["state"][key] for each in held], unit, sharded.comm.rank).to(master.device)
            inner.state[master][key] = _copied(value)
    for group, options in zip(inner.param_groups, parts[0]["options"], strict=True):
        group.update(options)


def resharded(chunks: Sequence[torch.Tensor], unit: Unit, rank: int) -> torch.Tensor:
    """Return a rank's chunk of the elements that other ranks' chunks hold; (chunk,), padded with zeros.

    chunks: of rank 0, 1, ..., equally long vectors of one dtype; the last elements of all may be padding.
    unit: how the elements are cut now.
    rank: the rank that owns the result, 0 to unit.ranks - 1.
    """
    own = chunks[0].new_zeros(unit.chunk)
    length = len(chunks[0])  # of each chunk
    begin, end = min(rank * unit.chunk, unit.length), min((rank + 1) * unit.chunk, unit.length)
    for number, chunk in enumerate(chunks):
        first, last = max(begin, number * length), min(end, (number + 1) * length)
        if first < last:
            own[first - begin : last - begin] = chunk[first - number * length : last - number * length]
    return own


def _check(sharded: "ShardedOptimizer", parts: Sequence[Part]) -> None:
    if not parts or [part["rank"] for part in parts] != list(range(parts[0]["ranks"])):
        raise ValueError(f"the parts of all ranks are needed, in their order: got {[part['rank'] for part in parts]}")
    lengths, own = [each["length"] for each in parts[0]["units"]], [unit.length for unit in sharded.units]
    if lengths != own or len(parts[0]["options"]) != len(sharded.optimizer.param_groups):
        raise ValueError(
            f"the parts come from other parameters, groups or bucket_bytes: units of {lengths} elements in "
            f"{len(parts[0]['options'])} groups, and of {own} in {len(sharded.optimizer.param_groups)} here"
        )


def _copied(value: Any) -> Any:
    """Copy a tensor alone, without the buffer that it is a view of; return anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return {key: _copied(each) for key, each in value.items()} if isinstance(value, Mapping) else value
