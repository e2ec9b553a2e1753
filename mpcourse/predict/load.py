"""A user's own model: found by `file.py:function`, made, and, when it fails, reported by file and line."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn as nn

from mpcourse.common.errors import UserError
from mpcourse.common.source import load_module, shown_path
from mpcourse.virtual.gpus.device_checks import NoData

_LIBRARIES = tuple(
    os.path.dirname(os.path.dirname(os.path.abspath(file))) + os.sep for file in (torch.__file__, contextlib.__file__)
)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INFRASTRUCTURE = tuple(_OURS + name for name in ("predict", "plan", "virtual", "split", "source.py"))


def find_maker(spec: str) -> Callable[..., object]:
    """Return the function that a user names; its file is run.

    spec: "file.py:function".
    Raises UserError where there is none.
    """
    name, colon, function = spec.rpartition(":")
    if not colon or not name or not function:
        raise UserError(f"{spec!r} names no function: write FILE:FUNCTION, as in model.py:make_model")
    path = Path(name)
    if not path.is_file():
        raise UserError(f"{name} is not a file: give the path of the Python file that defines {function}")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the file prints must not mix with --json
            module = load_module(path.resolve(), f"model_{path.stem}")
    except (Exception, SystemExit) as error:
        raise UserError(f"{name} cannot be run: {blame(error)}") from None
    maker = getattr(module, function, None)
    if not callable(maker):
        own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        raise UserError(f"{name} has no function {function!r}; it defines {', '.join(own) or 'none'}")
    return maker


def beside(spec: str, function: str) -> Callable[..., object]:
    """Return another function of the file that a user names.

    spec: "file.py:function".
    function: the other one's name.
    Raises UserError where there is none.
    """
    return find_maker(f"{spec.rpartition(':')[0]}:{function}")


def built(make: Callable[[], object]) -> nn.Module:
    """Make a user's model; its tensors hold no data where that is possible.

    make: returns it.

    The model is made on the meta device first, so that this machine's memory does not limit it. If its code reads
    values while it builds, it is made on the CPU.
    Raises UserError where `make` fails, or returns no Module.
    """
    name = getattr(make, "__name__", "the function")
    with contextlib.redirect_stdout(sys.stderr):
        try:
            with torch.device("meta"):
                model = make()
        except Exception:
            try:
                model = make()
            except (Exception, SystemExit) as error:
                raise UserError(f"{name}() failed: {blame(error)}") from None
        except SystemExit as error:
            raise UserError(f"{name}() failed: {blame(error)}") from None
    if not isinstance(model, nn.Module):
        raise UserError(f"{name}() must return a torch.nn.Module: it returned {type(model).__name__}")
    return model


def blame(error: BaseException) -> str:
    """Describe an error in one line, with the line of the user's own code that it comes from.

    error: as it was raised.
    """
    text = " ".join(str(error).split())
    if isinstance(error, NoData):  # its own message is for those who have made the box
        text = (
            f"{error.what} needs a value, and this command runs a model without data, on shapes alone: its forward "
            "must not depend on what tensors hold"
        )
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown_path(Path(error.filename))}:{error.lineno}: {type(error).__name__}: {error.msg}"
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_LIBRARIES, *_INFRASTRUCTURE, "<"))
    ]
    return f"{shown_path(Path(own[-1].filename))}:{own[-1].lineno}: {said}" if own else said
