"""Functions of Python, numpy and torch that an answer replaces with its own, so that the check computes with these."""

import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from mpcourse.course.check.wrong import Wrong

_MODULES = ("builtins", "math", "numpy", "torch", "torch.nn.functional")
_WITH_CLASSES = ("torch", "torch.nn", "torch.optim")  # modules whose classes are looked at, too


def refuse_replaced(file: str) -> None:
    """Raise Wrong if a function of `file` is in the place of one of a library."""
    ours = (name for name, value in _functions() if value.__code__.co_filename == file)
    if name := next(ours, ""):
        why = "All other code computes with it, and so does the check. Give what you define a name of its own."
        raise Wrong(f"{name} to be left as it is", "it was replaced by a function of this file", why)


def _functions() -> Iterator[tuple[str, FunctionType]]:
    """Yield the functions written in Python that the imported modules and their classes hold now, by name."""
    for module in dict.fromkeys((*_MODULES, *_WITH_CLASSES)):
        names: dict[str, Any] = dict(vars(sys.modules[module])) if module in sys.modules else {}
        if module in _WITH_CLASSES:
            classes = {name: value for name, value in names.items() if isinstance(value, type)}
            names |= {f"{name}.{method}": f for name, cls in classes.items() for method, f in vars(cls).items()}
        yield from ((f"{module}.{name}", f) for name, f in names.items() if isinstance(f, FunctionType))
