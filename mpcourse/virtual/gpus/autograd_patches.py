"""What autograd does in a box. Autograd asks no mode, so these functions replace torch's own.

In a thread without a box, each of them calls torch's own function.
"""

from typing import Any

import torch
import torch.utils.checkpoint
from torch.autograd.function import BackwardCFunction
from torch.overrides import _get_current_function_mode_stack

from mpcourse.virtual.gpus.handlers import index_of
from mpcourse.virtual.gpus.modes import FunctionMode, mode_here
from mpcourse.virtual.gpus.source_line import in_backward
from mpcourse.virtual.gpus.unplaced import note_devices, place, place_gradients, unplaced

Tensor = torch.Tensor

# A mode is off while it handles a function, and `loss.backward()` is such a function. But backward runs Python code:
# the backward of an autograd.Function, hooks, the forward that a checkpoint repeats. All of these must see devices.
_run_backward = torch.autograd.graph._engine_run_backward


def run_backward(outputs: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a backward pass, and in a box let its Python code see devices."""
    mode = mode_here()
    if mode is None or mode.dispatch.depth:  # depth: outside of the virtual world, where kernels.py runs it
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
    """Check that the first gradients are where the outputs are (torch/csrc/autograd/engine.cpp, `validate_outputs`)."""
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


# A backward that is written in Python gets zeros for gradients that were not given, and may ask for their device.
_apply = torch.autograd.Function.__dict__["apply"].__func__
_backward_apply = BackwardCFunction.apply


def apply_and_note(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply an autograd.Function, and record where its outputs are."""
    out = _apply(cls, *args, **kwargs)
    mode = mode_here()
    if mode is not None and type(out) is tuple:
        with torch._C.DisableTorchFunction():
            tensors = [t if isinstance(t, Tensor) else None for t in out]
            node = next((t.grad_fn for t in tensors if t is not None and t.grad_fn is not None), None)
            if isinstance(node, BackwardCFunction):
                note_devices(node, [None if t is None else index_of(mode, t) for t in tensors])
    return out


def backward_apply(node: Any, *gradients: Any) -> Any:
    """Run an autograd.Function's backward on gradients that have devices."""
    mode = mode_here()
    if mode is not None:
        place_gradients(mode.dispatch, node, gradients)
    return _backward_apply(node, *gradients)


# What autograd saves is packed while the operation is handled, and the mode is off; hooks must see devices, too.
_enter_hooks = torch.autograd.graph.saved_tensors_hooks.__enter__


def _in_mode(hook: Any) -> Any:
    def called(x: Any) -> Any:
        mode = mode_here()
        if mode is None or mode in _get_current_function_mode_stack():
            return hook(x)
        with mode:
            return hook(x)

    return called


def enter_hooks(self: Any) -> None:
    """Set both hooks of `saved_tensors_hooks`, in the form that sees devices."""
    if mode_here() is None:
        return _enter_hooks(self)
    torch._C._autograd._push_saved_tensors_default_hooks(_in_mode(self.pack_hook), _in_mode(self.unpack_hook))


# Checkpointing compares the tensors of both forwards. It reads the first ones while an operation is handled, and the
# mode is off, and the second ones with the mode on. For them to compare equal, it sees both times where the data really
# are.
_extract = torch.utils.checkpoint._allowed_determinism_checks_to_fns["default"]


def extract(x: Tensor) -> dict[str, Any]:
    """Return what a checkpoint compares of a tensor."""
    if mode_here() is None:
        return _extract(x)
    with torch._C.DisableTorchFunction():
        return _extract(x)
