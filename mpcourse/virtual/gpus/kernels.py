"""Operations that a GPU does in one kernel where torch takes several on a CPU.

torch decides between the two by the device of the tensors, above autograd. The tensors of a box are on the CPU, so the
decision is made here instead: a thread in a box sets a dispatch key in front of autograd and autocast that torch leaves
to others (DeferredInit). C++ code also calls what is registered for it, as attention and recurrent layers call dropout.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from mpcourse.virtual.gpus import autocast
from mpcourse.virtual.gpus.cost import describe
from mpcourse.virtual.gpus.dispatch import DispatchMode
from mpcourse.virtual.specs import GPU

Tensor = torch.Tensor
KEY = torch._C._dispatch_key_parse("DeferredInit")
KEYS = torch._C.DispatchKeySet(KEY)
_AUTOCAST = torch._C.DispatchKeySet(autocast.KEY).add(torch._C.DispatchKey.AutocastCPU)
_libraries = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
_libraries[0].fallback(torch.library.fallthrough_kernel, "DeferredInit")


class _Here(threading.local):
    mode: DispatchMode | None = None


_here = _Here()


@contextlib.contextmanager
def active(mode: DispatchMode) -> Iterator[None]:
    """Treat operations on the devices of the mode's box as a GPU's in this thread, and let autocast know them."""
    before, _here.mode = _here.mode, mode
    try:
        with torch._C._IncludeDispatchKeyGuard(KEY), torch._C._IncludeDispatchKeyGuard(autocast.KEY):
            yield
    finally:
        _here.mode = before


def register(kernels: dict[str, Callable[..., Any]]) -> None:
    """Register `run(mode, func, *args)` for each of these aten operations, where its first tensor is on a device.

    What `run` leaves to torch is done in parts (cost.py), which come here in turn.
    """
    for name, run in kernels.items():
        packet, _, overload = name.partition(".")
        func = getattr(getattr(torch.ops.aten, packet), overload or "default")
        _libraries[1].impl(name, _chosen(run, func), "DeferredInit")


def _chosen(run: Callable[..., Any], func: Any) -> Callable[..., Any]:
    def choose(*args: Any, **kwargs: Any) -> Any:
        mode = _here.mode
        if mode is None or mode.depth or mode.box.block_of(args[0]) is None:
            with torch._C._ExcludeDispatchKeyGuard(KEYS):
                return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            return run(mode, func, *args, **kwargs)

    return choose


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Keep what runs in this context outside of the virtual world, if this thread is in one."""
    with _here.mode.paused() if _here.mode else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Let torch's own CPU code run in this context: nothing is counted, and no autocast region applies."""
    with paused(), torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        yield


@dataclasses.dataclass
class Whole:
    """An operation that is one kernel on a GPU and several on a CPU.

    name: CUDA's; its backward has `_backward` appended. compute: the results, of plain tensors, as torch makes them on
    a CPU. shapes: the same without data; gradient: an input's gradient, by the input's number, without data. flops: of
    forward, and of backward. takes: seconds of the arithmetic on a GPU, in backward or not. reserve: bytes that
    backward needs in addition to inputs and results; trains: whether there may be a backward.
    """

    mode: DispatchMode
    func: Any
    name: str
    compute: Callable[[Sequence[Tensor]], tuple[Tensor, ...]]
    shapes: Callable[[Sequence[Tensor]], tuple[Tensor, ...]]
    gradient: Callable[[int, Tensor], Tensor]
    flops: tuple[int, int]
    takes: Callable[[GPU, bool], float]
    reserve: int
    trains: bool

    def bill(self, inputs: Sequence[Tensor], results: Sequence[Tensor], backward: bool = False) -> None:
        """Bill one operation on the device of the inputs; the results are placed there."""
        op = dataclasses.replace(
            describe(self.func),
            name=self.name + "_backward" * backward,
            view=False,
            product=False,
            flops=lambda *args, **options: self.flops[backward],
            takes=lambda gpu: self.takes(gpu, backward),
        )
        self.mode.settle(op, list(inputs), list(results))


def copy_of(x: Tensor) -> Tensor:
    """Copy with the strides of x, so that torch runs the same loops; where elements overlap, make a plain copy."""
    x = x.detach()
    return (
        x.clone()
        if 0 in x.stride()
        else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    )


class _Whole(torch.autograd.Function):
    """The values and gradients are those of the CPU's operations, which run unseen and keep their own graph.

    They have copies of the inputs, because that graph lives longer than what is saved for backward.
    """

    @staticmethod
    def forward(ctx: Any, whole: Whole, learns: bool, *tensors: Tensor) -> Any:
        mode = whole.mode
        backing = mode.box.backing
        ctx.set_materialize_grads(False)
        with unseen():
            reserve = torch.empty(whole.reserve if whole.trains else 0, dtype=torch.uint8, device=backing)
            if mode.box.dry:
                results = whole.shapes(tensors)
            else:
                ctx.inputs = [copy_of(t).requires_grad_(t.requires_grad and learns) for t in tensors]
                with torch.set_grad_enabled(learns):
                    ctx.results = whole.compute(ctx.inputs)
                results = tuple(
                    place.copy_(r.detach()) for place, r in zip(whole.shapes(tensors), ctx.results, strict=True)
                )
        whole.bill(tensors, [*results, reserve])
        ctx.whole, ctx.count = whole, len(tensors)
        ctx.save_for_backward(*tensors, *results, reserve)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        whole, saved = ctx.whole, ctx.saved_tensors
        if not whole.trains:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")
        wanted = [i for i in range(ctx.count) if ctx.needs_input_grad[2 + i]]
        given = [(i, g) for i, g in enumerate(gradients) if g is not None]
        with unseen():
            if whole.mode.box.dry:
                input_gradients = [whole.gradient(i, saved[i]) for i in wanted]
            else:
                values = torch.autograd.grad(
                    [ctx.results[i] for i, _ in given], [ctx.inputs[i] for i in wanted], [g for _, g in given],
                    retain_graph=True, materialize_grads=True,
                )  # fmt: skip
                input_gradients = [
                    whole.gradient(i, saved[i]).copy_(value) for i, value in zip(wanted, values, strict=True)
                ]
        whole.bill([*(g for _, g in given), *saved], input_gradients, backward=True)
        results: list[Tensor | None] = [None] * (2 + ctx.count)
        for i, gradient in zip(wanted, input_gradients, strict=True):
            results[2 + i] = _Last.apply(gradient, *saved) if torch.is_grad_enabled() else gradient
        return tuple(results)


class _Last(torch.autograd.Function):
    """A gradient that has no gradient itself."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        raise RuntimeError(
            "Double backwards is not supported for CuDNN RNNs and fused attention: run the forward pass with "
            "`with torch.backends.cudnn.flags(enabled=False):`, or attention without dropout"
        )


def whole(call: Whole, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Do the operation; return the results, on the tensors' device, with one node in autograd's graph."""
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return _Whole.apply(call, learns, *tensors)
