"""Whether an answer is the learner's own: nothing that checks rely on is replaced, nothing asked for borrowed."""

import ast
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from mpcourse.common.source import read_source
from mpcourse.course.check import forbidden_calls as borrowed
from mpcourse.course.check import intact
from mpcourse.course.check.wrong import Wrong


class Fair:
    """Made before an answer is loaded: it remembers what the checks rely on as it is now.

    holds: of the library what the answer is to write itself, as the manifest has it. hooked: whether an audit hook
    sees what the answer looks at; else its text is read. The hook doubles the time of virtual ranks that ask again and
    again.
    """

    def __init__(self, path: Path, exercise: str, holds: Sequence[str], hooked: bool = True) -> None:
        self._replaced = intact.guard()
        self._borrowed = borrowed.ForbiddenCalls.of(path, exercise, holds)
        if hooked:
            borrowed.watch(self._borrowed)
        self._tree = None if hooked else ast.parse(read_source(path))
        self._waits = False  # whether it judges once, at the end of a run of several ranks

    def loaded(self) -> None:
        """The answer has been loaded. Raises Wrong as `judge_call` does, or for what stands in its text."""
        if self._tree is not None:
            self._borrowed.read(self._tree)
            self._tree = None  # virtual ranks load the same text again and again
        self.judge_call()

    def called(self, frame: FrameType) -> bool:
        """A function is called while the answer runs. Raises Wrong if it does what is asked of the answer; whether
        others of its file do.
        """
        return self._borrowed.taken(frame)

    def untraced(self) -> None:
        """The answer has put something in the place of what follows its lines. Raises Wrong."""
        self._borrowed.refuse_look("sys.settrace")

    @contextlib.contextmanager
    def judged_once(self) -> Iterator[None]:
        """Judge calls at the end of this context, and not after each: the ranks of one process share what an answer
        could replace.
        """
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
            self.judge_call()

    def judge_call(self) -> None:
        """After a call: judge all but what the answer has replaced of the course, which has most of the functions."""
        if not self._waits:
            self.judge(course_too=False)

    def judge(self, course_too: bool = True) -> None:
        """Raise Wrong if the answer has replaced or borrowed something; what was replaced is put back.

        Whoever holds this method, or `rather`, since before the answer was loaded calls what it was then.
        """
        if name := self._replaced(course_too):
            raise _replaced(name)
        if self._borrowed.refusal is not None:
            raise self._borrowed.refusal

    def rather(self, failure: BaseException) -> BaseException:
        """Why the answer failed: by `failure`, or by what it has replaced, which may be the reason, and is put back."""
        name = self._replaced(True)
        return _replaced(name) if name else failure


def _replaced(name: str) -> Wrong:
    why = "The checks, and all other code, compute with it. Give what you define a name of its own."
    return Wrong(f"{name} to be left as it is", "it was replaced by something else", why)
