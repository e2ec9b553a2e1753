"""The line of the user's program that is being executed: the first frame outside of torch and of this package."""

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from mpcourse.virtual.line import Line

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_COPY = os.path.join(os.path.dirname(os.path.dirname(_OURS)), "split", "copy.py")  # it asks for its caller
_FUNCTION_APPLY = torch.autograd.Function.apply.__code__
_MODULE_APPLY = torch.nn.Module._apply.__code__
_library: dict[CodeType, bool] = {}  # code object -> whether it belongs to torch or to this package


class _Backward(threading.local):
    """The lines that called the backward passes in this thread, the innermost last."""

    def __init__(self) -> None:
        self.lines: list[Line | None] = []


_backward = _Backward()


def in_backward(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `run`, which runs a backward pass. The line that asks is found once and not for every operation."""
    _backward.lines.append(asking_line(2)[0])
    try:
        return run(*args, **kwargs)
    finally:
        _backward.lines.pop()


_IN_BACKWARD = in_backward.__code__


def _is_library(code: CodeType) -> bool:
    file = code.co_filename
    known = _library[code] = file.startswith((_OURS, _TORCH, _COPY)) or file.startswith("<frozen")
    return known


def asking_line(above: int = 1) -> tuple[Line | None, str]:
    """Return file and line of the user's code that is being executed, and what torch is doing for it.

    above: the frame to begin with, counted from this one; to inspect a frame takes time. What torch does is "module"
    inside Module.to and its like, "init" inside a torch.nn module's constructor, or "".
    """
    frame: FrameType | None = sys._getframe(above)
    doing = ""
    while frame is not None:
        code = frame.f_code
        if not (_library[code] if code in _library else _is_library(code)):
            return (code.co_filename, frame.f_lineno), doing
        if code is _IN_BACKWARD:
            return _backward.lines[-1], doing
        if not doing:
            if code is _MODULE_APPLY:
                doing = "module"
            elif code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), torch.nn.Module):
                doing = "init"
        frame = frame.f_back
    return None, doing


def inside_function() -> bool:
    """Return whether an autograd.Function's forward is running, in which autograd is off though its result counts."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _FUNCTION_APPLY:
            return True
        frame = frame.f_back
    return False
