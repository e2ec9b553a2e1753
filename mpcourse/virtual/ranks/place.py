"""The line of a program that a rank has reached: the innermost one outside of this library."""

import os
import sys
from types import FrameType, TracebackType

from mpcourse.virtual.line import location

_RANKS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_VIRTUAL = os.path.dirname(os.path.dirname(_RANKS)) + os.sep
_LIBRARY = os.path.dirname(os.path.dirname(_VIRTUAL)) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


def place(frame: FrameType | None) -> str:
    """Return a rank's line: "train.py:12", or "train.py:12, in ShardedOptimizer.step()" if it calls this library.

    frame: the innermost frame of the rank.
    """
    own, within, called = None, "", ""
    while frame is not None and own is None:
        code = frame.f_code
        if _is_programs(code.co_filename):
            own = location((code.co_filename, frame.f_lineno))
        elif code.co_filename.startswith(_LIBRARY) and not code.co_filename.startswith(_VIRTUAL):
            within = within or location((code.co_filename, frame.f_lineno))
            if code.co_name != "<lambda>":
                called = code.co_qualname.rpartition("<locals>.")[2]
        frame = frame.f_back
    if own is None:  # the program itself belongs to this library
        return within or "an unknown line"
    return f"{own}, in {called}()" if called else own


def asked(frame: FrameType | None) -> tuple[str, FrameType | None]:
    """Return the method of MPI that a rank has called, "Send()", and the calling frame; ("", None) if there is none.

    frame: the innermost frame of the rank.
    """
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    while frames and frames[-1].f_code.co_filename.startswith((_RANKS, _STANDARD)):
        frames.pop()  # what runs the program
    caller = None
    for each in reversed(frames):
        if each.f_code.co_filename.startswith(_RANKS):
            return f"{each.f_code.co_name}()", caller
        caller = each
    return "", None


def raised_at(error: BaseException) -> str:
    """Return the line of the program that raised an error, or that called what raised it."""
    at: TracebackType | None = error.__traceback__
    line = None
    while at is not None:
        if _is_programs(file := at.tb_frame.f_code.co_filename):
            line = file, at.tb_lineno
        at = at.tb_next
    return location(line) or "an unknown line"


def _is_programs(file: str) -> bool:
    torch = sys.modules.get("torch")  # virtual ranks do not need it
    libraries = (_LIBRARY, _STANDARD, "<frozen", *([os.path.dirname(torch.__file__ or "") + os.sep] if torch else []))
    return not file.startswith(libraries)
