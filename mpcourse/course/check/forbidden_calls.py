"""An answer that takes from somewhere else what it is asked to compute: the library, the solution, the check itself."""

import ast
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from mpcourse.course.check.wrong import Wrong

PACKAGE = Path(__file__).resolve().parents[2]
SOLUTIONS = f"{os.sep}solutions{os.sep}"
_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
_LOOKS = ("sys._getframe", "sys._current_frames", "gc.get_objects", "gc.get_referrers")
_NAMES = (*_FRAMES, "_getframe", "_current_frames", "currentframe", "f_back", "get_objects", "get_referrers")
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")


@dataclass
class ForbiddenCalls:
    """Where an answer took something from. sources: files, and folders with a separator at their end, of the library,
    that hold what it is to write; functions: those of other files, as (file, name). `taken` is asked of every function
    that is called while the answer runs.

    refusal: the first thing that it took, as Wrong; it counts also where the answer has caught that.
    """

    path: str
    exercise: str
    sources: tuple[str, ...] = ()
    functions: frozenset[tuple[str, str]] = frozenset()
    refusal: Wrong | None = None

    @classmethod
    def of(cls, path: Path, exercise: str, forbidden_modules: Sequence[str]) -> "ForbiddenCalls":
        """forbidden_modules: "package", "package.module" or "package.module:function", as the manifest has them."""
        sources, functions = [], set()
        for name in forbidden_modules:
            module, _, function = name.partition(":")
            place = PACKAGE.joinpath(*module.split(".")[1:])
            if function:
                functions.add((f"{place}.py", function))
            else:
                sources.append(f"{place}{os.sep}" if place.is_dir() else f"{place}.py")
        return cls(str(path), exercise, tuple(sources), frozenset(functions))

    def taken(self, frame: FrameType) -> bool:
        """Raise Wrong if the function of this frame is, or belongs to, what the answer is to write itself.

        Returns whether other functions of its file are.
        """
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(self.sources) or (file, name) in self.functions:
            module = ".".join([PACKAGE.name, *Path(file).relative_to(PACKAGE).with_suffix("").parts])
            self.refuse(
                f"{name} of {module}",
                f"The library has what {self.exercise} is about, and a call of it shows nothing of what you know. "
                "Write it here yourself; the other parts of mpcourse are yours to use.",
            )
        elif self._is_solution(file):
            self.refuse_solution()
        return any(file == one for one, _ in self.functions)

    def _is_solution(self, file: str) -> bool:
        return file.endswith(f"{SOLUTIONS}{self.exercise}.py") and file != self.path

    def refuse(self, what: str, why: str, asked: str = "") -> None:
        """Raise Wrong, and keep it."""
        asked = asked or f"{self.exercise} to be written in your own file"
        self.refusal = self.refusal or Wrong(asked, f"it runs {what}", why)
        raise self.refusal

    def refuse_solution(self) -> None:
        why = f"`mpcourse solution {self.exercise} --spoil` shows it, to compare with what you have written yourself."
        self.refuse(f"solutions/{self.exercise}.py", why)

    def look(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook's part: what the answer's own lines do that only reads from the check, or the solution."""
        if event == "open":
            if isinstance(args[0], str) and self._is_solution(os.path.abspath(args[0])) and self._ours():
                self.refuse_solution()
        elif event in _STARTS:
            if "solution" in repr(args) and self._ours():
                self.refuse_solution()
        elif event in _LOOKS or event == "object.__getattr__":
            if self._ours(direct=True):
                self.refuse_look(event if event in _LOOKS else args[1])

    def refuse_look(self, what: str) -> None:
        """Raise Wrong for what shows the answer its caller."""
        self.refuse(
            f"{what}, which looks at the program that called it",
            f"That is the check's, and holds what it expects. {self.exercise} is to compute it from its arguments.",
            f"{self.exercise} to use its arguments, and nothing of its caller's",
        )

    def read(self, tree: ast.AST) -> None:
        """Raise Wrong where the answer's text names what shows its caller, or a solution; hooks cost too much."""
        for node in ast.walk(tree):
            name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "value", None)
            if isinstance(name, str) and name in _NAMES:
                self.refuse_look(name)
            if isinstance(name, str) and "solutions" in name and not name.count(" "):
                self.refuse_solution()

    def _ours(self, direct: bool = False) -> bool:
        """Whether the answer's code asked for this. direct: its own line did, at most through the module inspect."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if file == self.path:
                return True
            if direct and file != _INSPECT and file != __file__:
                return False
            frame = frame.f_back
        return False


_CHECK = os.path.join(str(PACKAGE), "course", "check", "")
_INSPECT = os.path.join(os.path.dirname(os.__file__), "inspect.py")
_now: list[ForbiddenCalls] = []  # at most one: hooks cannot be taken away, so one is made, and asks this
_hooked = threading.Lock()
_busy = threading.local()


def _hook(event: str, args: tuple[Any, ...]) -> None:
    # Most events are of a frame's code, which whoever follows lines asks for, or of virtual ranks that look for one.
    if event == "object.__getattr__":
        if args[1] not in _FRAMES:
            return
    elif event not in _EVENTS:
        return
    elif event == "sys._getframe":
        file = args[0].f_code.co_filename
        if file != _now[0].path and not file.startswith(_CHECK):
            return
    if getattr(_busy, "now", False):
        return
    _busy.now = True
    try:
        _now[0].look(event, args)
    finally:
        _busy.now = False


_EVENTS = frozenset({"open", *_LOOKS, *_STARTS})


def watch(borrowed: ForbiddenCalls) -> None:
    """From now on what code of this process does is looked at, until another answer is."""
    _now[:] = [borrowed]
    if _hooked.acquire(blocking=False):
        sys.addaudithook(_hook)
