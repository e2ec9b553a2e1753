"""The lower mode: every aten operation, forward and backward, passes here on its way to the CPU's (or meta) kernel."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from mpcourse.virtual.gpus.box import HOST, TAG, Block, Box, block_index
from mpcourse.virtual.gpus.cost import Operation, cost, describe, flops_of, in_parts
from mpcourse.virtual.gpus.crossing import crossing, mixed
from mpcourse.virtual.gpus.device_checks import check_lengths, judged
from mpcourse.virtual.gpus.dry import SHAPES, number, shapes_or_refusal, without_data, without_numbers
from mpcourse.virtual.gpus.foreach import apart
from mpcourse.virtual.gpus.generators import check_generator
from mpcourse.virtual.gpus.kept import VALUES
from mpcourse.virtual.gpus.nested import tensors_in
from mpcourse.virtual.gpus.pinned import without_pinning
from mpcourse.virtual.gpus.source_line import asking_line, inside_function
from mpcourse.virtual.gpus.storages import check_device, recount
from mpcourse.virtual.gpus.unplaced import UNPLACED, after_host, made_by_torch, mark, mark_number, place_beside
from mpcourse.virtual.gpus.unsupported import refuse_layout
from mpcourse.virtual.line import location

Tensor = torch.Tensor
_known: dict[Any, Operation] = {}
_RESIZES = {"resize_", "resize_as_", "_resize_output_", "set_"}
_MOVES = {"copy_", "_to_copy", "set_"}
_in_backward = torch._C._current_graph_task_id


class DispatchMode(TorchDispatchMode):
    """Finds on which device an operation runs, refuses mixed ones, tags results and makes the box bill it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say no: otherwise dynamo imports the compiler at the first operation (2 s), and asks it about every one."""
        return False

    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box, self.depth = box, 0
        self.call: tuple[tuple, dict] | None = None  # arguments of the torch function that is being handled

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep what runs in this context outside of the virtual world: nothing is tagged or billed."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self.depth:
            return func(*args, **kwargs)
        op = _known.get(func)
        if op is None:
            op = _known[func] = describe(func)
        if op.composite:  # in inference mode, where autograd does not take them apart
            with self:
                return in_parts(func, *args, **kwargs)
        with torch._C.DisableTorchFunction():
            if op.view:
                if type(args[0]) is Parameter:
                    self._adopt(args[:1], [self.box.block_of(args[0])])
                return func(*args, **kwargs)
            return self.run(func, op, args, kwargs)

    def run(self, func: Any, op: Operation, args: tuple, kwargs: dict) -> Any:
        """Run an operation on the device of its tensors, and settle it."""
        box = self.box
        inputs = tensors_in(args)
        if kwargs:
            inputs += tensors_in(kwargs.values())
        blocks: Sequence[Block | None] = box.blocks_of(inputs)
        target = kwargs.get("device")
        if target is not None:
            kwargs, target = self._real_device(op, kwargs, target, inputs)
        if op.name in _MOVES:
            moved = self._moved(op, args, kwargs, blocks, target)
            if moved is not None:
                return moved
        # A target comes first, as in zeros_like(x, device=...), whatever device x is on.
        index = target if target is not None else next((b.index for b in blocks if b is not None), HOST)
        if target is None and len(inputs) > 1 and mixed(blocks, index):
            if _in_backward() != -1:
                blocks = place_beside(self, inputs, blocks)
            if mixed(blocks, index):
                if op.foreach and len(args[0]) > 1:
                    return self._foreach(func, op, args, kwargs)
                index = judged(func, args, kwargs, box, self.call is None and _in_backward() != -1)
                if box.dry and index != HOST:
                    args = without_numbers(args)
        self._check(func, op, args, kwargs, inputs, blocks, index)
        out = self._result(func, op, args, kwargs, inputs, index)
        if made_by_torch(op.name, kwargs):
            mark_number(out)
        self._settle(op, args, kwargs, inputs, blocks, index, out)
        return out

    def _moved(
        self, op: Operation, args: tuple, kwargs: dict, blocks: Sequence[Block | None], target: int | None
    ) -> Tensor | None:
        """Do a copy if it crosses from one device to another; check that `set_` does not."""
        if op.name != "set_":
            return crossing(self, op, args, kwargs, blocks, target)
        if len(args) > 1:
            check_device(args[0], args[1].untyped_storage() if isinstance(args[1], Tensor) else args[1])
        return None

    def _check(
        self,
        func: Any,
        op: Operation,
        args: tuple,
        kwargs: dict,
        inputs: list[Tensor],
        blocks: Sequence[Block | None],
        index: int,
    ) -> None:
        """Refuse a generator or lengths on the wrong device, and a result that does not fit."""
        if kwargs.get("generator") is not None and self.call is not None:
            check_generator(self.box, self.call[1].get("generator"), index)
        if op.name == "_pack_padded_sequence":
            check_lengths(args[1], self.box.device_at(block_index(blocks[-1])))
        if index >= 0 and not inputs:
            self._check_room(func, op, args, kwargs, index)

    def _result(self, func: Any, op: Operation, args: tuple, kwargs: dict, inputs: list[Tensor], index: int) -> Any:
        """Return what an operation on device `index` returns; in a dry box, tensors without data."""
        box = self.box
        if not box.dry:
            return self._kernel(func, index, inputs)(*args, **kwargs)
        if op.name == "_local_scalar_dense" and inputs[0].is_meta:
            return number(box, inputs[0])
        if index == HOST and not op.mutates:
            args = without_data(args, inputs)
        return shapes_or_refusal(func, args, kwargs, index >= 0)

    @staticmethod
    def _kernel(func: Any, index: int, inputs: list[Tensor]) -> Any:
        """Return what makes the results: the CPU's kernel, or one that does the same and returns what CUDA's does."""
        if index == HOST:
            return func
        return (SHAPES if inputs and inputs[0].is_meta else VALUES).get(func, func)

    def _settle(
        self,
        op: Operation,
        args: tuple,
        kwargs: dict,
        inputs: list[Tensor],
        blocks: Sequence[Block | None],
        index: int,
        out: Any,
    ) -> None:
        """Tag what is new on device `index`, and bill the operation."""
        box = self.box
        outputs = [out] if isinstance(out, Tensor) else tensors_in((out,))
        if op.name == "_pack_padded_sequence":
            outputs.pop()  # the number of sequences left at each step, which is on the CPU wherever the sequences are
        if index == UNPLACED:
            mark(outputs)
            return
        if index == HOST:
            self._settle_on_host(op, args, kwargs, inputs, outputs, out)
            return
        fresh = _fresh(outputs)
        if not (fresh or op.mutates or op.synchronizes):
            self._adopt(inputs, blocks)
            return  # a view costs nothing
        if op.name in _RESIZES or "out" in kwargs:
            for t in outputs:
                recount(t.untyped_storage())
        phase = self.phase()
        line, doing = asking_line(4) if box.record else (None, "")  # above _settle, run and __torch_dispatch__
        if op.product:
            box.workspace(index, phase in ("backward", "recompute"))
        made = [box.place(t, index, _kind(inputs, phase, doing), op.name, line, phase) for t in fresh]
        self._adopt(inputs, blocks)
        changed = tensors_in(args[:1]) if op.mutates else []  # an operation in place changes its first argument
        nbytes, flops, seconds = cost(op, box.gpus[index], args, kwargs, inputs, fresh, changed, out)
        end = box.bill(op, index, _ready(blocks), seconds, nbytes, flops, line, phase)
        for block in [*made, *blocks[: len(changed)]]:
            if block is not None:
                block.ready = end
        if op.synchronizes:
            box.wait_until(end, op.name, location(line))

    def _settle_on_host(
        self, op: Operation, args: tuple, kwargs: dict, inputs: list[Tensor], outputs: list[Tensor], out: Any
    ) -> None:
        """Bill the host for an operation, unless it only makes a view."""
        if _in_backward() != -1:
            after_host(inputs, outputs)
        if op.mutates or not _shares_storage(outputs, inputs):
            self._bill_host(op, args, kwargs, inputs, [] if op.mutates else outputs, out, self.phase())

    def settle(self, op: Operation, inputs: list[Tensor], results: list[Tensor]) -> None:
        """Bill an operation whose parts were not seen: by its inputs, its results and `op.flops`."""
        blocks = self.box.blocks_of(inputs)
        index = next(b.index for b in blocks if b is not None)
        self._settle(op, tuple(inputs), {}, inputs, blocks, index, results)

    def _foreach(self, func: Any, op: Operation, args: tuple, kwargs: dict) -> Any:
        """Do an operation over lists whose tensors are on several devices."""

        def places(tensors: list[Tensor]) -> tuple:
            return tuple(block and block.index for block in self.box.blocks_of(tensors))

        def run(args: tuple, kwargs: dict) -> Any:
            if op.name != "_foreach_copy_":
                return self.run(func, op, args, kwargs)
            copy = torch.ops.aten.copy_.default
            pairs = zip(*args[:2], strict=True)
            return [self.run(copy, describe(copy), (*pair, *args[2:]), kwargs) for pair in pairs]

        results = apart(args, kwargs, places, run)
        return None if op.mutates else results

    def _real_device(self, op: Operation, kwargs: dict, device: Any, inputs: list[Tensor]) -> tuple[dict, int | None]:
        """Return `kwargs` with the device that holds the data, and the index of the device that was meant, if any."""
        box = self.box
        device = torch.device(device)
        if device.type == "vgpu":
            index = box.index_of(device)
            return without_pinning(kwargs) | {"device": box.backing}, index
        if device.type not in ("cpu", "meta"):
            return kwargs, None
        if made_by_torch(op.name, kwargs):
            return kwargs, HOST
        # torch's C++ code passes on the device that holds the data, which says nothing about the virtual one. The
        # Python code that called torch has named a device, or else given tensors, whose device it is.
        if inputs:
            given = None if self.call is None else self.call[1].get("device")
            return kwargs, HOST if given is not None and torch.device(given).type == "cpu" else None
        if self.call is not None:
            if self.call[1].get("device") is None:
                for t in tensors_in((*self.call[0], *self.call[1].values())):
                    if (block := box.block_of(t)) is not None:
                        return kwargs, block.index
        elif _in_backward() != -1 and (device.type == box.backing.type or not box.dry):
            return kwargs, UNPLACED
        return kwargs, HOST

    def _check_room(self, func: Any, op: Operation, args: tuple, kwargs: dict, index: int) -> None:
        """Refuse what cannot fit, before this machine's own memory is requested for it."""
        if self.box.backing.type == "meta":
            return
        with self.paused():
            planned = SHAPES.get(func, func)(*args, **kwargs | {"device": "meta"})
        nbytes = planned.untyped_storage().nbytes() if isinstance(planned, Tensor) else 0
        if nbytes > self.box.ledger.free(index):
            raise self.box.ledger.out_of_memory(index, nbytes)

    def _bill_host(
        self, op: Operation, args: tuple, kwargs: dict, inputs: list[Tensor], fresh: list[Tensor], out: Any, phase: str
    ) -> None:
        host = self.box.host
        nbytes = _nbytes(inputs) + _nbytes(fresh)
        flops = flops_of(op, args, kwargs, out) if op.flops else 0
        line = location(asking_line()[0]) if self.box.record else ""
        self.box.bill_host(op, host.call + max(nbytes / host.bandwidth, flops / host.flops), nbytes, flops, line, phase)

    def phase(self) -> str:
        """Return what the program is doing, as torch's own state shows it."""
        if _in_backward() != -1:
            return "recompute" if torch.is_grad_enabled() else "backward"  # by activation checkpointing
        if self.box.optimizing:
            return "optimizer"
        return "forward" if torch.is_grad_enabled() or inside_function() else ""

    def _adopt(self, inputs: Sequence[Tensor], blocks: Sequence[Block | None]) -> None:
        """Count a tensor that turns out to be a Parameter as one in the ledger, too."""
        for t, block in zip(inputs, blocks, strict=True):
            if type(t) is Parameter and block is not None:
                block.allocation.kind = "parameters"


def _fresh(outputs: list[Tensor]) -> list[Tensor]:
    """Return the outputs in new storages, one for each storage. Raises RuntimeError for a sparse or nested one."""
    fresh: list[Tensor] = []
    for t in outputs:
        if t.layout is not torch.strided or t.is_nested:
            raise refuse_layout(t)
        storage = t.untyped_storage()
        if getattr(storage, TAG, None) is None and not (fresh and _shares_storage([t], fresh)):
            fresh.append(t)
    return fresh


def _ready(blocks: Sequence[Block | None]) -> float:
    """Return when all inputs are ready."""
    ready = 0.0
    for block in blocks:
        if block is not None and block.ready > ready:
            ready = block.ready
    return ready


def _nbytes(tensors: list[Tensor]) -> int:
    total = 0  # this loop is several times as fast as sum() of a generator for one or two tensors
    for t in tensors:
        try:
            total += t.nbytes
        except RuntimeError:  # a sparse tensor
            total += t._nnz() * t.element_size()
    return total


def _shares_storage(outputs: list[Tensor], inputs: list[Tensor]) -> bool:
    try:
        held = {t.untyped_storage()._cdata for t in inputs}
        return any(t.untyped_storage()._cdata in held for t in outputs)
    except NotImplementedError:  # one of them is sparse
        return False


def _kind(inputs: list[Tensor], phase: str, doing: str) -> str:
    """Return the kind of a new tensor, as far as it is known: gradients and optimizer state are known later."""
    if not inputs:
        return "buffers" if doing == "init" else "inputs"
    return "activations" if phase in ("forward", "recompute") else "temporaries"
