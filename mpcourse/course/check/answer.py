"""A learner's file, loaded; its functions, called with an eye on what they do to their arguments."""

import ast
import contextlib
import copy
import functools
import inspect
import operator
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from mpcourse.common.source import load_module, read_source
from mpcourse.course.check import module_state as kept
from mpcourse.course.check.forbidden_calls import ForbiddenCalls
from mpcourse.course.check.wrong import Wrong, short, to_numpy

# Every line of the learner's code is followed by a comparison of the guarded arguments. That finds the very line
# which changes one, and it is dropped where it would cost more than it tells.
GUARDED_LINES = 20_000
GUARDED_BYTES = 1 << 20
SMALL = 1 << 14  # bytes: to copy what is larger may take longer than to write its text
MANY = 20  # modules: torch imports hundreds when something of it is first used, for as long as a right answer takes


def beginning() -> tuple[float, float, int]:
    """Return the start of a limit: this process's clock, the time that it has computed, and its number of modules."""
    return time.perf_counter(), time.process_time(), len(sys.modules)


class Answer:
    """The learner's module. `call` runs one of its functions.

    line: where the last call returned, or changed what it must not.
    result: the function that was called last and what it returned; None before the first return.
    calls: how many there were.
    limit: seconds that this process may compute since `since`, which is `beginning()`; None: as long as it likes.

    forbidden: what the file must not call; None: it may call anything.
    loaded: what could keep something from one call to the next, as it was when the file was loaded (see kept.py).

    returned: called after each call, on every rank; it waits until all ranks have come back. So a result is judged
    only when no rank hangs: a hang says more than the wrong result that another rank has meanwhile.
    """

    def __init__(self, path: Path, module: ModuleType, returned: Callable[[], None] = lambda: None) -> None:
        self.path, self.module, self.returned = path, module, returned
        self.line: int | None = None
        self._doing: Callable[[], str] = str
        self.calls = 0
        self.result: tuple[str, Any] | None = None
        self.limit: float | None = None
        self.since = 0.0, 0.0, 0
        self.loaded: dict[str, str] = {}
        self.forbidden: ForbiddenCalls | None = None

    @classmethod
    def load(
        cls,
        path: Path,
        returned: Callable[[], None] = lambda: None,
        modules: ModuleType | None = None,
        forbidden: ForbiddenCalls | None = None,
    ) -> "Answer":
        """Import the file at `path` under a name of its own. Whatever its code raises passes through.

        modules: where several threads load the file, their one entry in sys.modules; each thread has its own `mine`.
        """
        module = load_module(path, f"answer_{path.stem}", modules)
        answer = cls(path, module, returned)
        answer.loaded, answer.forbidden = kept.state(module), forbidden
        return answer

    @property
    def doing(self) -> str:
        """The call under way, or the last one, as its text; empty before the first."""
        return self._doing()

    def missing(self, names: list[str]) -> str | None:
        """Return the first of `names` that the module does not define as something callable."""
        return next((name for name in names if not callable(getattr(self.module, name, None))), None)

    def left(self) -> str:
        """Say where the file's functions have left something since it was loaded, as a phrase; empty: nowhere."""
        return kept.changed(self.loaded, self.module)

    def mentions(self, name: str) -> bool:
        """Return whether the file's own code, outside its `__main__` block, has a variable or an attribute `name`."""
        tree = ast.parse(read_source(self.path))
        body = [node for node in tree.body if not (isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))]
        nodes = [node for top in body for node in ast.walk(top)]
        return any(getattr(node, "attr", None) == name or getattr(node, "id", None) == name for node in nodes)

    def call(self, name: str, *args: Any, changes: tuple[Any, ...] = ()) -> Any:
        """Call the learner's function or class `name` with `args`; Wrong if that changed one of them, not in `changes`.

        Exceptions of the learner's code pass through. Communicators and modules are never compared.
        """
        return self.run(getattr(self.module, name), name, *args, changes=changes)

    def run(self, function: Callable[..., Any], name: str, *args: Any, changes: tuple[Any, ...] = ()) -> Any:
        """Call `function`, e.g. a method of what the learner's code made; Wrong if that changed one of `args`.

        name: how messages call it. changes: those of `args` that it may change. Exceptions of the learner's code pass
        through. Communicators and modules are never compared.
        """
        self.calls += 1
        guarded = [(i, a) for i, a in enumerate(args) if _comparable(a) and not any(a is c for c in changes)]
        before = {i: _copied(a) for i, a in guarded}
        as_given = before | {i: a.copy() for i, a in enumerate(args) if i not in before and _small_array(a)}
        shown = [_named(a) if i not in as_given else "" for i, a in enumerate(args)]
        self._doing = functools.partial(_text_of, name, shown, as_given)
        try:
            inspect.signature(function).bind(*args)
        except TypeError as error:
            self.line = getattr(getattr(function, "__code__", None), "co_firstlineno", None)
            raise Wrong(
                f"{name} to take the arguments that its task names", f"{error}", "Keep the `def` line as it was."
            ) from None
        changed_at: dict[int, int] = {}
        with self._traced(name, guarded, before, changed_at):
            result = function(*args)
        self.result = name, result
        self.returned()
        for i, argument in guarded:
            if not _equal(argument, before[i]):
                self.line = changed_at.get(i, self.line)
                raise Wrong(
                    f"{name} to leave its arguments as they are",
                    f"argument {i + 1} changed from {short(before[i])} to {short(argument)}",
                    "The caller still needs that object: work on a copy, or build a new one.",
                )
        return result

    def _over(self, limit: float) -> bool:
        """Return whether the process has computed for longer. Imports do not count: `since` moves on behind them."""
        began, computed, modules = self.since
        # The process's own clock takes five times as long to read as the other.
        if time.perf_counter() - began <= limit or time.process_time() - computed <= limit:
            return False
        if len(sys.modules) - modules < MANY:
            return True
        self.since = beginning()
        return False

    @contextlib.contextmanager
    def _traced(
        self, name: str, guarded: list[tuple[int, Any]], before: dict[int, Any], changed_at: dict[int, int]
    ) -> Iterator:
        """Follow the learner's lines: where the call returns from, and after which line a guarded argument differs."""
        path = str(self.path)
        small = sum(_nbytes(a) for _, a in guarded) <= GUARDED_BYTES
        last: dict[int, int] = {}  # frame id -> the line that it executed last
        seen = 0

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal seen
            seen += 1
            if small and seen < GUARDED_LINES:
                for i, argument in guarded:
                    if i not in changed_at and not _equal(argument, before[i]):
                        changed_at[i] = last.get(id(frame), frame.f_lineno)
            last[id(frame)] = frame.f_lineno
            if self.limit is not None and self._over(self.limit):
                self.line = frame.f_lineno
                why = "An endless loop, or far too many steps. What must happen for this loop to be left?"
                raise Wrong(f"{name} to return", f"no end after {self.limit:g} s of computing", why)
            if event == "return":
                self.line = frame.f_lineno  # the outermost frame returns last
            return local

        def outer(frame: FrameType, event: str, arg: Any) -> Any:
            if frame.f_code.co_filename == path:
                return local
            if self.forbidden is not None:
                self.forbidden.refuse(frame)
            return None

        previous = sys.gettrace()
        sys.settrace(outer)
        try:
            yield
        finally:
            sys.settrace(previous)


def _text_of(name: str, shown: list[str], before: dict[int, Any]) -> str:
    """Return the text of a call of `name`.

    shown: the texts of its arguments. before: copies of the arguments that have no text yet: the text of an array takes
    up to a third of a millisecond, and few calls are ever shown.
    """
    return f"{name}({', '.join(_named(before[i]) if i in before else text for i, text in enumerate(shown))})"


def _named(value: Any) -> str:
    """Name an argument for a reader: tensors and modules by what they are, other things by what is in them."""
    if hasattr(value, "Get_rank"):
        return "comm"
    if hasattr(value, "parameters"):
        return f"a {type(value).__name__}"
    if hasattr(value, "numel") and value.numel() > 4:
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, list) and value and hasattr(value[0], "parameters"):
        return f"[{len(value)} modules]"
    if isinstance(value, list) and value and hasattr(value[0], "numel"):
        return f"[{len(value)} tensors]"
    return short(value)


def _comparable(value: Any) -> bool:
    if isinstance(value, list | dict | set | bytearray):
        return True
    # To refuse a communicator's `shape` takes 0.02 s in each process: what mpi4py has is read from its stub.
    return not hasattr(value, "Get_rank") and hasattr(value, "shape") and hasattr(value, "dtype")


def _small_array(value: Any) -> bool:
    """Return whether it is a small numpy array; a copy of a tensor would show in its device's memory."""
    return type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.nbytes < SMALL


def _nbytes(value: Any) -> int:
    return getattr(value, "nbytes", None) or 64 * len(value)


def _equal(a: Any, b: Any) -> bool:
    if hasattr(a, "shape"):
        x, y = to_numpy(a), to_numpy(b)
        return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()
    if isinstance(a, list | tuple):
        # What cannot change is the same object in the copy, and lists are compared after each line.
        return type(a) is type(b) and len(a) == len(b) and (all(map(operator.is_, a, b)) or all(map(_equal, a, b)))
    return bool(a == b)


def _copied(value: Any) -> Any:
    """Copy a value to compare with later. Of a tensor, copy the values alone: autograd's graph cannot be copied."""
    return value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value)
