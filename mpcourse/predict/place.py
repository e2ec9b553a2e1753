"""Any model on several devices: its children in the order of registration, cut after some of them."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn as nn

from mpcourse.common.errors import UserError
from mpcourse.split import balance, copy


def children(model: nn.Module) -> dict[str, nn.Module]:
    """Return the parts between which a model can be cut, by name.

    model: any. A ModuleList is never called, so its elements are parts.
    """
    parts: dict[str, nn.Module] = {}
    for name, child in model.named_children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            parts |= {f"{name}.{inner}": part for inner, part in children(child).items()}
        else:
            parts[name] = child
    return parts


def stages(names: Sequence[str], cuts: Sequence[str], gpus: int) -> list[list[str]]:
    """Divide a model's children into one list for each device.

    names: of the children, in their order.
    cuts: names after which it is cut.
    gpus: number of devices.
    Raises UserError if it cannot be cut so.
    """
    if len(cuts) != gpus - 1:
        raise UserError(
            f"--cut {','.join(cuts)} makes {len(cuts) + 1} parts for --gpus {gpus}: give --gpus {len(cuts) + 1}, or "
            f"{'no cut' if gpus == 1 else f'{gpus - 1} of them'}"
        )
    if gpus > 1:
        _check_enough(names, gpus)
    for i, cut in enumerate(cuts):
        if cut not in names:
            raise UserError(f"no child {cut!r} to cut after: the model has {', '.join(names)}")
        if cut == names[-1]:
            raise UserError(f"nothing comes after {cut!r}: cut after one of {', '.join(names[:-1])}")
        if cut in cuts[:i]:
            raise UserError(f"--cut names {cut!r} twice: each device needs a child at least")
    parts: list[list[str]] = [[]]
    for name in names:
        parts[-1].append(name)
        if name in cuts:
            parts.append([])
    return parts


def balanced(costs: dict[str, int], gpus: int) -> list[str]:
    """Return the children after which to cut, so that the most expensive part costs as little as possible.

    costs: of each child, by name, in their order.
    gpus: number of parts.
    Raises UserError for fewer children than parts.
    """
    names = list(costs)
    _check_enough(names, gpus)
    cuts, end = [], 0
    for size in balance(list(costs.values()), gpus)[:-1]:
        end += size
        cuts.append(names[end - 1])
    return cuts


def place(model: nn.Module, parts: Sequence[Sequence[str]], devices: Sequence[torch.device]) -> None:
    """Move the children of a model to devices, and make each child take its arguments there.

    model: changed in place; parameters of the model itself go to the first device.
    parts: names of the children on each device.
    devices: one for each part.
    Raises UserError where parts share a parameter.
    """
    modules = children(model)
    owner: dict[int, tuple[str, torch.device]] = {}
    for part, device in zip(parts, devices, strict=True):
        for name in part:
            for parameter in modules[name].parameters():
                other, where = owner.setdefault(id(parameter), (name, device))
                if where != device:
                    raise UserError(
                        f"{other} and {name} share a parameter of shape {tuple(parameter.shape)}, which cannot be on "
                        f"{where} and on {device}: cut so that both are on one device"
                    )
    model._apply(lambda t: t.to(devices[0]), recurse=False)
    for part, device in zip(parts, devices, strict=True):
        for name in part:
            modules[name].to(device).register_forward_pre_hook(_brings_arguments_to(device), with_kwargs=True)


def moved(value: Any, device: torch.device) -> Any:
    """Return `value` with all tensors in it, also in lists, tuples and dicts, on a device.

    value: of any kind.
    device: where tensors are copied to.
    """
    if isinstance(value, torch.Tensor):
        return copy(value, device)
    if isinstance(value, dict):
        return {key: moved(v, device) for key, v in value.items()}
    if isinstance(value, list | tuple):
        parts = [moved(v, device) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)  # a named tuple, or not
    return value


def _brings_arguments_to(device: torch.device) -> Any:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return moved(args, device), moved(kwargs, device)

    return hook


def _check_enough(names: Sequence[str], gpus: int) -> None:
    if len(names) < gpus:
        raise UserError(
            f"--gpus {gpus}: the model has {len(names)} children ({', '.join(names) or 'none'}), and each device needs "
            "one at least"
        )
