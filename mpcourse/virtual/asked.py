"""Whose line was it? The first frame outside of torch and of this package."""

import functools
import os
import sys
from types import CodeType, FrameType

import torch

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_COPY = os.path.join(os.path.dirname(os.path.dirname(_OURS)), "split", "copy.py")  # asks on behalf of its caller
_FUNCTION_APPLY = torch.autograd.Function.apply.__code__
_MODULE_APPLY = torch.nn.Module._apply.__code__
_library: dict[CodeType, bool] = {}  # code object -> whether it is torch's or ours

Line = tuple[str, int]


def _is_library(code: CodeType) -> bool:
    file = code.co_filename
    known = _library[code] = file.startswith((_OURS, _TORCH, _COPY)) or file.startswith("<frozen")
    return known


def asking_line() -> tuple[Line | None, str]:
    """File and line of the user's code that is being executed, and what torch is doing on its behalf.

    The latter is "module" inside Module.to and its like, "init" inside a torch.nn module's constructor, or "".
    """
    frame: FrameType | None = sys._getframe(1)
    doing = ""
    while frame is not None:
        code = frame.f_code
        if not (_library[code] if code in _library else _is_library(code)):
            return (code.co_filename, frame.f_lineno), doing
        if not doing:
            if code is _MODULE_APPLY:
                doing = "module"
            elif code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), torch.nn.Module):
                doing = "init"
        frame = frame.f_back
    return None, doing


def inside_function() -> bool:
    """Whether an autograd.Function's forward is running, in which autograd is off though its result counts."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _FUNCTION_APPLY:
            return True
        frame = frame.f_back
    return False


@functools.cache
def told(line: Line | None) -> str:
    """`file.py:12`; of a notebook's cell, whose file has a name of chance, `cell:12`."""
    if line is None:
        return ""
    file, number = line
    name = os.path.basename(file)
    return f"{'cell' if 'ipykernel' in file or name.startswith('<ipython') else name}:{number}"
