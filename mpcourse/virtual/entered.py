"""A thread enters a box: its modes, and what torch's autograd has to be told because it does not ask them."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.checkpoint
from torch.autograd.function import BackwardCFunction
from torch.overrides import _get_current_function_mode_stack

from mpcourse.virtual import attention, comm, encoder, fused, kernels, recurrent
from mpcourse.virtual.box import Box
from mpcourse.virtual.dispatch import DispatchMode
from mpcourse.virtual.dropout import dropout
from mpcourse.virtual.handlers import index_of
from mpcourse.virtual.modes import FunctionMode
from mpcourse.virtual.source_line import in_backward
from mpcourse.virtual.unplaced import note_devices, place, place_gradients, unplaced

Tensor = torch.Tensor
kernels.register({"dropout": dropout} | recurrent.KERNELS | encoder.KERNELS | attention.KERNELS | fused.KERNELS)
encoder.install()
comm.install()
_here = threading.local()


@contextlib.contextmanager
def entered(box: Box) -> Iterator[None]:
    """Both modes, in this thread."""
    dispatch = DispatchMode(box)
    _here.mode = FunctionMode(box, dispatch)
    try:
        with kernels.active(dispatch), _here.mode, dispatch:
            yield
    finally:
        _here.mode = None


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """What runs in here, on tensors of the CPU alone, is torch's own: no box sees it, so that it is done sooner."""
    mode = getattr(_here, "mode", None)
    with mode.dispatch.paused() if mode else contextlib.nullcontext(), torch._C.DisableTorchFunction():
        yield


# While a mode handles a function it is off, and `loss.backward()` is such a function. But backward runs Python code:
# the backward of an autograd.Function, hooks, the forward that a checkpoint repeats. All these must see devices.
_run_backward = torch.autograd.graph._engine_run_backward


def _run_backward_in_mode(outputs: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
    mode = getattr(_here, "mode", None)
    if mode is None or mode.dispatch.depth:  # depth: outside of the virtual world, as kernels.py runs it
        return _run_backward(outputs, gradients, *args, **kwargs)
    gradients = _checked_roots(mode, outputs, gradients)
    if mode in _get_current_function_mode_stack():
        return _run_backward(outputs, gradients, *args, **kwargs)
    dispatch = mode.dispatch
    before, dispatch.call = dispatch.call, None  # what backward makes is not made for the arguments of `backward`
    try:
        with mode:
            results = in_backward(_run_backward, outputs, gradients, *args, **kwargs)
    finally:
        dispatch.call = before
    for gradient, leaf in zip(results or (), args[2] if len(args) > 2 else (), strict=False):
        if gradient is not None and unplaced(gradient):
            place(dispatch, gradient, index_of(mode, leaf))
    return results


def _checked_roots(mode: FunctionMode, outputs: Any, gradients: Any) -> tuple:
    """Gradients to begin with are where the outputs are (torch/csrc/autograd/engine.cpp, `validate_outputs`)."""
    checked = list(gradients)
    with torch._C.DisableTorchFunction():
        for i, (output, gradient) in enumerate(zip(outputs, gradients, strict=False)):
            if isinstance(output, Tensor) and isinstance(gradient, Tensor):
                wanted, got = index_of(mode, output), index_of(mode, gradient)
                if wanted != got and gradient.dim() == 0:
                    checked[i] = mode.move(gradient, wanted, False)
                elif wanted != got:
                    raise RuntimeError(
                        f"invalid gradient at index {i} - expected device {mode.box.device_at(wanted)} but got "
                        f"{mode.box.device_at(got)}"
                    )
    return tuple(checked)


torch.autograd._engine_run_backward = _run_backward_in_mode  # type: ignore[assignment]


# A backward that is written in Python gets zeros for gradients that nobody gave, and may ask for their device.
_apply = torch.autograd.Function.__dict__["apply"].__func__
_backward_apply = BackwardCFunction.apply


def _apply_and_note(cls: Any, *args: Any, **kwargs: Any) -> Any:
    out = _apply(cls, *args, **kwargs)
    mode = getattr(_here, "mode", None)
    if mode is not None and type(out) is tuple:
        with torch._C.DisableTorchFunction():
            tensors = [t if isinstance(t, Tensor) else None for t in out]
            node = next((t.grad_fn for t in tensors if t is not None and t.grad_fn is not None), None)
            if isinstance(node, BackwardCFunction):
                note_devices(node, [None if t is None else index_of(mode, t) for t in tensors])
    return out


def _backward_apply_in_place(node: Any, *gradients: Any) -> Any:
    mode = getattr(_here, "mode", None)
    if mode is not None:
        place_gradients(mode.dispatch, node, gradients)
    return _backward_apply(node, *gradients)


torch.autograd.Function.apply = classmethod(_apply_and_note)  # type: ignore[method-assign, assignment]
BackwardCFunction.apply = _backward_apply_in_place  # type: ignore[method-assign]


# What autograd saves is packed while the operation is handled, and the mode off: hooks must see devices, too.
_set_hooks = torch.autograd.graph.saved_tensors_hooks.__init__


def _in_mode(hook: Any) -> Any:
    def called(x: Any) -> Any:
        mode = getattr(_here, "mode", None)
        if mode is None or mode in _get_current_function_mode_stack():
            return hook(x)
        with mode:
            return hook(x)

    return called


def _set_hooks_in_mode(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
    _set_hooks(self, _in_mode(pack_hook), _in_mode(unpack_hook))


torch.autograd.graph.saved_tensors_hooks.__init__ = _set_hooks_in_mode  # type: ignore[method-assign]


# Checkpointing compares the tensors of both forwards. It looks at the first ones while an operation is handled, and the
# mode off, at the second ones with it on: so that they compare equal, both times it sees where the data really are.
_extractors = torch.utils.checkpoint._allowed_determinism_checks_to_fns
_extract = _extractors["default"]


def _extract_out_of_mode(x: Tensor) -> dict[str, Any]:
    with torch._C.DisableTorchFunction():
        return _extract(x)


_extractors["default"] = _extract_out_of_mode
