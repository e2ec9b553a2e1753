"""Copies from one device to another: the new tensor, and the time on the link."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from mpcourse.virtual.gpus.box import CPU, HOST, Block, block_index
from mpcourse.virtual.gpus.cost import Operation
from mpcourse.virtual.gpus.device_checks import no_data
from mpcourse.virtual.gpus.dry import stand_in
from mpcourse.virtual.gpus.kept import carry_over
from mpcourse.virtual.gpus.pinned import holds_pinned
from mpcourse.virtual.gpus.source_line import asking_line
from mpcourse.virtual.gpus.unplaced import place_beside
from mpcourse.virtual.gpus.unsupported import refuse_layout
from mpcourse.virtual.line import Line, location

if TYPE_CHECKING:
    from mpcourse.virtual.gpus.dispatch import DispatchMode

Tensor = torch.Tensor
_in_backward = torch._C._current_graph_task_id


def mixed(blocks: Sequence[Block | None], index: int) -> bool:
    """Return whether not all of them are on device `index`."""
    for block in blocks:  # noqa: SIM110, a loop is fast, and this runs before every operation
        if (HOST if block is None else block.index) != index:
            return True
    return False


def transfer(
    mode: "DispatchMode",
    x: Tensor,
    target: int,
    non_blocking: bool,
    line: Line | None,
    doing: str = "",
    in_graph: bool = False,
) -> Tensor:
    """Copy `x` to another device (an index, or HOST), and bill the copy to the link between them.

    in_graph: autograd passes through the copy, so that even in a dry box what is on the CPU must have data: zeros.
    """
    box = mode.box
    block = box.block_of(x)
    source = block_index(block)
    phase = mode.phase()
    if box.dry and is_lazy(x):
        raise RuntimeError("a lazy module has no shapes yet: in a dry box, call it once on the CPU before it is moved")
    if target != HOST and (x.layout is not torch.strided or x.is_nested):
        raise refuse_layout(x)
    with mode.paused(), torch._C.DisableTorchFunction():
        if box.dry and in_graph and target == HOST:
            stand_in(box, "what comes to the CPU", line)
            y = torch.zeros_like(x, device="cpu", requires_grad=False)
        elif box.dry:
            y = torch.empty_like(x, device="meta")
        elif x.device == box.backing or target == HOST == source:
            y = x.detach().clone() if target != HOST else x.detach().to("cpu", copy=True)
        else:
            y = x.detach().to("cpu" if target == HOST else box.backing, copy=True)
    if not is_lazy(x):
        carry_over(x, y)
    ready = 0.0 if block is None else block.ready
    made = None
    if target != HOST:
        kind = _kind(x, block, doing, phase)
        made = box.place(y, target, kind, "copy", line, phase)
    # A new tensor on the CPU is pinned if the copy is non-blocking, see aten's _to_copy.
    pageable = (source == HOST and not holds_pinned(x)) or (target == HOST and not non_blocking)
    waits = HOST in (source, target) and (pageable or not non_blocking)
    end = box.bill_copy(source, target, y.nbytes, ready, waits, pageable, location(line), phase)
    if made is not None:
        made.ready = end
    return y.as_subclass(type(x)) if is_lazy(x) else y


def crossing(
    mode: "DispatchMode", op: Operation, args: tuple, kwargs: dict, blocks: Sequence[Block | None], target: int | None
) -> Tensor | None:
    """Do `copy_` or `_to_copy` if it crosses from one device to another; return None if it does not."""
    box = mode.box
    if op.name == "_to_copy":
        source = block_index(blocks[0])
        to_cpu = target is None and kwargs.get("device") is not None and torch.device(kwargs["device"]) == CPU
        if to_cpu and box.dry and args[0].is_meta and mode.call is None and _in_backward() != -1:
            target = HOST  # a number's gradient, see torch/csrc/autograd/engine.cpp
        if target is None or target == source:
            return None
        converted = args[0]
        if kwargs.get("dtype") not in (None, converted.dtype):
            func = torch.ops.aten._to_copy.default
            converted = mode.run(func, op, (converted,), {"dtype": kwargs["dtype"]})
        return transfer(
            mode, converted, target, bool(kwargs.get("non_blocking")), asking_line()[0], "", _in_backward() != -1
        )
    if _in_backward() != -1 and mixed(blocks, HOST):
        blocks = place_beside(mode, list(args[:2]), blocks)
    here, there = map(block_index, blocks[:2])
    if here == there:
        return None
    destination, source_tensor = args[:2]
    if box.dry and source_tensor.is_meta and not destination.is_meta:
        raise no_data("copy_")
    line = asking_line()[0]
    with mode.paused():
        if not destination.is_meta:
            destination.copy_(source_tensor)
    non_blocking = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
    pageable = HOST in (here, there) and not holds_pinned(destination if here == HOST else source_tensor)
    waits = HOST in (here, there) and (pageable or not non_blocking)
    ready = 0.0 if blocks[1] is None else blocks[1].ready
    end = box.bill_copy(there, here, source_tensor.nbytes, ready, waits, pageable, location(line), mode.phase())
    if blocks[0] is not None:
        blocks[0].ready = end
    return destination


def _kind(x: Tensor, block: Block | None, doing: str, phase: str) -> str:
    if doing:
        return "parameters" if isinstance(x, Parameter) else "buffers"
    if block is None:
        return "inputs" if phase != "backward" else "temporaries"
    if block.allocation.kind == "inputs" and not x.requires_grad:
        return "inputs"
    return "activations" if phase in ("forward", "recompute") else "temporaries"
