"""Operations that CUDA does by other operations than a CPU: CUDA's are counted, and the CPU's give the values."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mpcourse.virtual.gpus.box import TAG
from mpcourse.virtual.gpus.dispatch import DispatchMode
from mpcourse.virtual.gpus.kernels import copy_of, paused, unseen

Tensor = torch.Tensor


def without_data(mode: DispatchMode, x: Tensor) -> Tensor:
    """Return a tensor with the same look in the same place, which holds no data."""
    with paused():
        twin = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    setattr(twin.untyped_storage(), TAG, mode.box.block_of(x))
    return twin


def counted(
    mode: DispatchMode, plan: Callable[..., tuple], compute: Callable[..., tuple], tensors: Sequence[Tensor],
    again: Callable[..., tuple] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Count what `plan` does, forward and backward, and return the values and gradients of `compute`.

    Both take all `tensors`. again: its second derivatives are taken, if the plan keeps all `tensors` for backward.
    """
    if mode.box.dry:
        return plan(*tensors)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return _Counted.apply(mode, plan, compute, again, learns, *tensors)


class _Counted(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mode: DispatchMode, plan: Any, compute: Any, again: Any, learns: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.mode, ctx.again = mode, again
        ctx.set_materialize_grads(False)
        with paused():
            ctx.leaves = [
                torch.empty_like(t, device="meta").requires_grad_(learns and t.requires_grad) for t in tensors
            ]
        with torch.set_grad_enabled(learns):
            twins = [_Twin.apply(leaf, without_data(mode, t)) for leaf, t in zip(ctx.leaves, tensors, strict=True)]
            places = plan(*twins)
        # What the plan keeps for backward stays. Nothing else of it stays, so that no more memory is held.
        marks = [_Mark() for _ in twins]
        for twin, mark in zip(twins, marks, strict=True):
            setattr(twin.untyped_storage(), _MARK, mark)
        alive = [weakref.ref(mark) for mark in marks]
        del twins, twin, marks, mark
        ctx.ends = [torch.autograd.graph.get_gradient_edge(p) if p.requires_grad else None for p in places]
        ctx.save_for_backward(*(tensors if again and learns and all(mark() for mark in alive) else ()))
        # A checkpoint around the operation drops what the plan keeps, and not what the values need.
        with unseen(), torch.autograd.graph.saved_tensors_hooks(_same, _same):
            ctx.inputs = [copy_of(t).requires_grad_(learns and t.requires_grad) for t in tensors]
            with torch.set_grad_enabled(learns):
                ctx.results = compute(*ctx.inputs)
        return tuple(_placed(mode, r, p) for r, p in zip(ctx.results, places, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        mode = ctx.mode
        wanted = [i for i, t in enumerate(ctx.leaves) if t.requires_grad]
        given = [(i, g) for i, g in enumerate(gradients) if g is not None]
        if torch.is_grad_enabled():
            values = _Counted._differentiable(ctx, wanted, given)
        else:
            keep = torch._C._autograd._get_current_graph_task_keep_graph()
            if not keep:  # the plan's graph holds the inputs as long as CUDA's would
                ctx.maybe_clear_saved_tensors()
            starts = [without_data(mode, g) for _, g in given]
            places = torch.autograd.grad(
                [ctx.ends[i] for i, _ in given], [ctx.leaves[i] for i in wanted], starts, retain_graph=keep
            )
            with unseen():
                computed = torch.autograd.grad(
                    [ctx.results[i] for i, _ in given], [ctx.inputs[i] for i in wanted], [g for _, g in given],
                    retain_graph=True, materialize_grads=True,
                )  # fmt: skip
            made: dict[int, Tensor] = {}  # two inputs may get one gradient, like the two biases of a cell
            for value, place in zip(computed, places, strict=True):
                made.setdefault(id(place), _placed(mode, value, place))
            values = tuple(made[id(place)] for place in places)
        results: list[Tensor | None] = [None] * (5 + len(ctx.leaves))
        for i, value in zip(wanted, values, strict=True):
            results[5 + i] = value
        return tuple(results)

    @staticmethod
    def _differentiable(ctx: Any, wanted: list[int], given: list[tuple[int, Tensor]]) -> tuple[Tensor, ...]:
        inputs = ctx.saved_tensors
        if not inputs:
            raise RuntimeError(
                "a second derivative of this operation is not offered on virtual GPUs, which keep for backward what "
                "CUDA keeps: compute it on the CPU"
            )
        results = ctx.again(*inputs)
        return torch.autograd.grad(
            [results[i] for i, _ in given], [inputs[i] for i in wanted], [g for _, g in given], create_graph=True
        )


def _same(x: Tensor) -> Tensor:
    return x


class _Mark:
    """An object that lives as long as the storage whose attribute it is."""


_MARK = "mpcourse_mark"


class _Twin(torch.autograd.Function):
    """The tensor without data, in the graph behind `leaf`: the graph would hold a leaf itself."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, twin: Tensor) -> Tensor:
        return twin.view_as(twin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        return *gradients, None


def _placed(mode: DispatchMode, value: Tensor, place: Tensor) -> Tensor:
    """Return the value, in the layout and in the memory that were planned for it."""
    with paused():
        made = torch.empty_strided(place.shape, place.stride(), dtype=place.dtype, device=value.device)
        made.copy_(value.detach())
    setattr(made.untyped_storage(), TAG, mode.box.block_of(place))
    return made
