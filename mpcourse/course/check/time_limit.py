"""An end to what takes too long, where the reason is known better than "no progress": too many steps for its size."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.wrong import Wrong


@contextlib.contextmanager
def within_seconds(answer: Answer, seconds: float, asked: str, why: str) -> Iterator[None]:
    """Raise Wrong in the learner's code once this process has computed for `seconds`, on the line where it is then.

    Time is the process's own, so a busy machine changes nothing. For code without MPI, in the main thread.
    """

    def end(number: int, frame: FrameType | None) -> Any:
        while frame is not None and frame.f_code.co_filename != str(answer.path):
            frame = frame.f_back
        if frame is not None:
            answer.line = frame.f_lineno
        raise Wrong(asked, f"none after {seconds:g} s of computing", why)

    previous = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
