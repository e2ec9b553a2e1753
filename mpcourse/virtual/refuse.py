"""What devices refuse, in torch's own words: tensors of several devices in one operation, and values of a dry run."""

from collections.abc import Sequence
from typing import Any

import torch

from mpcourse.virtual.asked import asking_line
from mpcourse.virtual.box import HOST, Block, Box
from mpcourse.virtual.cost import Operation
from mpcourse.virtual.line import told

Tensor = torch.Tensor


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors among `values`, and in lists and tuples among them."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(value)
    return found


def mixed(inputs: list[Tensor], blocks: Sequence[Block | None], index: int) -> bool:
    """Whether inputs are not all on device `index`. A tensor without dimensions on the CPU does not count."""
    for t, block in zip(inputs, blocks, strict=True):
        if (HOST if block is None else block.index) != index and not (block is None and t.dim() == 0):
            return True
    return False


def may_mix(op: Operation, args: tuple, inputs: list[Tensor], blocks: Sequence[Block | None]) -> bool:
    """On CUDA too some operations take arguments from the CPU: indices, and the lengths of packed sequences."""
    if op.name in ("copy_", "_pack_padded_sequence", "set_"):
        return True
    if not op.indexes:
        return False
    values = [args[0], *args[2:3]]
    kept = [(t, b) for t, b in zip(inputs, blocks, strict=True) if b is not None or any(t is v for v in values)]
    return not mixed([t for t, _ in kept], [b for _, b in kept], HOST if kept[0][1] is None else kept[0][1].index)


def refusal(func: Any, op: Operation, args: tuple, kwargs: dict, box: Box) -> RuntimeError:
    """torch's own error for tensors on several devices, then what they are and where they come from."""
    found: list[tuple[str, Tensor, int]] = []
    for argument, value in [
        *zip([a.name for a in func._schema.arguments], args, strict=False),
        *kwargs.items(),
    ]:
        for t in tensors_in((value,)):
            block = box.block_of(t)
            if block is not None or t.dim() > 0:
                found.append((argument, t, HOST if block is None else block.index))
    first = found[0]
    other = next(f for f in found if f[2] != first[2])
    names = box.device_at(first[2]), box.device_at(other[2])
    if op.pointwise:
        text = (
            f"Expected all tensors to be on the same device, but found at least two devices, {names[0]} and {names[1]}!"
        )
    else:
        text = (
            f"Expected all tensors to be on the same device, but got {other[0]} is on {names[1]}, different from other "
            f"tensors on {names[0]} (when checking argument in method wrapper_vgpu_{op.name})"
        )
    lines = []
    for _, t, index in (first, other):
        block = box.block_of(t)
        made = f", {block.allocation}" if block is not None else f", {tuple(t.shape)}"
        lines.append(f"\n  {box.device_at(index)}{made}")
    return RuntimeError(text + "".join(lines))


def no_data(what: str) -> RuntimeError:
    """The error for a value asked of a dry box."""
    line = told(asking_line()[0])
    return RuntimeError(
        f"{what} at {line}: a dry box holds no data, so there is no value to read; leave out `dry=True`"
    )
