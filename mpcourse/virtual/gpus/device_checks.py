"""What devices refuse, in torch's own words: tensors of several devices in one operation, and values of a dry run."""

from typing import Any

import torch

from mpcourse.virtual.gpus.box import HOST, Box, block_index
from mpcourse.virtual.gpus.nested import tensors_in
from mpcourse.virtual.gpus.rules import CPU, METHODS, NUMBER, Rule, rule_of
from mpcourse.virtual.gpus.source_line import asking_line
from mpcourse.virtual.gpus.unplaced import is_marked_number
from mpcourse.virtual.line import location

Tensor = torch.Tensor
_COMES_HOME = "mpcourse_hook"  # an attribute of a tensor
Placed = tuple[str, Tensor, int]  # an argument's name, a tensor in it, and the index of its device


def judged(func: Any, args: tuple, kwargs: dict, box: Box, by_engine: bool = False) -> int:
    """Return the device on which an operation with tensors on several runs. Raises RuntimeError where CUDA does.

    by_engine: whether autograd itself calls it, in backward.
    """
    rule = rule_of(func)
    if by_engine and _adds_numbers(func, args):
        return block_index(box.block_of(args[0]))
    placed: list[Placed] = []
    for argument, value in [*zip(rule.names, args, strict=False), *kwargs.items()]:
        for t in tensors_in((value,)):
            block = box.block_of(t)
            placed.append((argument, t, block_index(block)))
    owners = [p for p in placed if p[0] not in rule.takes] or sorted(placed, key=lambda p: p[1].dim() == 0)
    index = next((i for _, _, i in owners if i != HOST), HOST)
    numbers = 0
    for argument, t, i in placed:
        if i == index or is_marked_number(t):
            continue
        if not rule.accepts(argument, t.dim() == 0, i == HOST):
            raise _refusal(func, rule, placed, index, (argument, t, i), box)
        numbers += rule.takes[argument] == NUMBER
        if t.requires_grad and t.dim() == 0:
            _bring_gradient_home(t, box.device_at(i))
    if numbers > 1:
        raise RuntimeError("Trying to pass too many CPU scalars to non-CPU kernel!")
    return index


def _adds_numbers(func: Any, args: tuple) -> bool:
    """Return whether backward sums two gradients without dimensions; on CUDA both came home before."""
    return func is torch.ops.aten.add.Tensor and all(isinstance(a, Tensor) and a.dim() == 0 for a in args[:2])


def _bring_gradient_home(number: Tensor, device: torch.device) -> None:
    """Bring a gradient without dimensions to its tensor's device (torch/csrc/autograd/engine.cpp)."""
    if not hasattr(number, _COMES_HOME):
        setattr(number, _COMES_HOME, number.register_hook(lambda gradient: gradient.to(device)))


def _refusal(func: Any, rule: Rule, placed: list[Placed], index: int, other: Placed, box: Box) -> RuntimeError:
    """Return torch's own error for tensors on several devices, followed by what they are and where they come from."""
    name = func._overloadpacket.__name__
    if rule.elementwise:
        first = next(p for p in placed if p[2] == index)
        text = (
            f"Expected all tensors to be on the same device, but found at least two devices, {box.device_at(index)} "
            f"and {box.device_at(other[2])}!"
        )
    elif rule.takes.get(other[0]) == CPU:
        first = placed[0]
        text = (
            "indices should be either on cpu or on the same device as the indexed tensor "
            f"({box.device_at(index)}), but got one on {box.device_at(other[2])}"
        )
    else:
        first = placed[0]
        other = next(p for p in placed if p[2] != first[2])
        text = (
            f"Expected all tensors to be on the same device, but got {other[0]} is on {box.device_at(other[2])}, "
            f"different from other tensors on {box.device_at(first[2])} (when checking argument in method "
            f"wrapper_vgpu_{METHODS.get(name, name)})"
        )
    lines = []
    for _, t, i in (first, other):
        block = box.block_of(t)
        made = f", {block.allocation}" if block is not None else f", {tuple(t.shape)}"
        lines.append(f"\n  {box.device_at(i)}{made}")
    return RuntimeError(text + "".join(lines))


def check_lengths(lengths: Tensor, device: torch.device) -> None:
    """Raise RuntimeError for lengths on a GPU, in the words of `pack_padded_sequence` (torch/nn/utils/rnn.py)."""
    if device.type != "cpu":
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {device} Long tensor"
        )


class NoData(RuntimeError):
    """A dry box was asked for a value.

    what: the call that asks for it, e.g. "item()".
    """

    def __init__(self, what: str) -> None:
        self.what = what
        line = location(asking_line()[0])
        super().__init__(
            f"{what} at {line}: a dry box holds no data, so there is no value to read; leave out `dry=True`"
        )


def no_data(what: str) -> NoData:
    """Return the error for a value asked of a dry box."""
    return NoData(what)
