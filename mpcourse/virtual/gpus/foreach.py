"""Operations over lists of tensors, as torch.optim and clip_grad_norm_ use them: each device gets its own.

torch groups the lists by device before it calls them (torch/utils/_foreach_utils.py). It asks for the real device,
which is the same for all, so here the virtual ones replace it.
"""

from collections.abc import Callable
from typing import Any

import torch

from mpcourse.virtual.gpus.box import HOST, block_index, box_here

Tensor = torch.Tensor
_group: Any = torch._C._group_tensors_by_device_and_dtype


def group_by_device(lists: list[list[Any]], with_indices: bool = False) -> dict[tuple, tuple]:
    """Return what torch's function returns, {(device, dtype): (lists, indices)}, by the first list's devices."""
    groups, box = _group(lists, with_indices), box_here()
    if box is None:
        return groups
    grouped: dict[tuple, tuple] = {}
    for (real, dtype), (columns, indices) in groups.items():
        places = [block_index(block) for block in box.blocks_of(columns[0])]
        for place in dict.fromkeys(places):
            chosen = [i for i, each in enumerate(places) if each == place]
            picked = [[column[i] for i in chosen] if column else [] for column in columns]
            device = real if place == HOST and not box.dry else box.device_at(place)
            grouped[device, dtype] = picked, [indices[i] for i in chosen] if indices else []
    return grouped


def apart(args: tuple, kwargs: dict, places: Callable[[list[Tensor]], tuple], run: Callable[..., Any]) -> list[Any]:
    """Call `run(args, kwargs)` for the positions of each combination of devices; return results in the lists' order.

    If there is one combination, of several devices, call it for one position at a time: CUDA's slow path, in which each
    pair is judged by itself.
    """
    n = len(args[0])

    def pick(value: Any, chosen: list[int]) -> Any:
        return [value[i] for i in chosen] if isinstance(value, list | tuple) and len(value) == n else value

    combinations: dict[tuple, list[int]] = {}
    for i in range(n):
        beside = [t for a in args if isinstance(a, list | tuple) and len(a) == n for t in [a[i]]]
        combinations.setdefault(places([t for t in beside if isinstance(t, Tensor)]), []).append(i)
    results: list[Any] = [None] * n
    for chosen in combinations.values() if len(combinations) > 1 else [[i] for i in range(n)]:
        out = run(tuple(pick(a, chosen) for a in args), {k: pick(v, chosen) for k, v in kwargs.items()})
        for i, value in zip(chosen, out or (), strict=False):
            results[i] = value
    return results
