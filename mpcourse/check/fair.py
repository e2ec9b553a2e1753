"""Whether an answer is the learner's own: nothing that checks rely on is replaced, nothing asked for borrowed."""

import ast
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from mpcourse.check import borrowed, intact
from mpcourse.check.wrong import Wrong
from mpcourse.source import read_source


class Fair:
    """Made before an answer is loaded: it remembers what the checks rely on as it is now.

    holds: of the library what the answer is to write itself, as the manifest has it. hooked: whether an audit hook
    sees what the answer looks at; else its text is read. The hook doubles the time of virtual ranks that ask again and
    again.
    """

    def __init__(self, path: Path, exercise: str, holds: Sequence[str], hooked: bool = True) -> None:
        self._replaced = intact.guard()
        self._borrowed = borrowed.Borrowed.of(path, exercise, holds)
        if hooked:
            borrowed.watch(self._borrowed)
        self._tree = None if hooked else ast.parse(read_source(path))

    def loaded(self) -> None:
        """The answer has been loaded. Raises Wrong as `judge` does, or for what stands in its text."""
        if self._tree is not None:
            self._borrowed.read(self._tree)
        self.judge()

    def called(self, frame: FrameType) -> bool:
        """A function is called while the answer runs. Raises Wrong if it does what is asked of the answer; whether
        others of its file do.
        """
        return self._borrowed.taken(frame)

    def untraced(self) -> None:
        """The answer has put something in the place of what follows its lines. Raises Wrong."""
        self._borrowed.refuse_look("sys.settrace")

    def judge(self) -> None:
        """Raise Wrong if the answer has replaced or borrowed something; what was replaced is put back."""
        if name := self._replaced():
            why = "The checks, and all other code, compute with it. Give what you define a name of its own."
            raise Wrong(f"{name} to be left as it is", "it was replaced by something else", why)
        if self._borrowed.refusal is not None:
            raise self._borrowed.refusal
