"""What a file's functions keep from one call to the next: where it is, as it was when the file was loaded."""

import functools
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from mpcourse.course.check.wrong import short

_SHOWN = 5000  # characters of a value that are compared


def state(module: ModuleType) -> dict[str, str]:
    """Return all that the module's functions can keep something in: how to call it, and what is in it."""
    return dict(_values(module))


def changed(before: dict[str, str], module: ModuleType) -> str:
    """Say where the module has something else than `before`, as a phrase; empty where nothing has changed."""
    names = [name for name, value in _values(module) if before.get(name, value) != value]
    return " and ".join(names[:2])


def why(where: str) -> str:
    """Explain an answer whose first call is right. where: as `changed` says."""
    if not where:
        return (
            "As a first call it is right, here it is not: something is kept from one call to the next, which keeps "
            "what earlier calls left there. Make it anew in each call."
        )
    return f"As a first call it is right, here it is not: {where} keeps what earlier calls left. Make it anew in each."


def _values(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if name.startswith("__") or isinstance(value, ModuleType):
            continue
        if hasattr(value, "cache_info"):
            yield f"the cache of {name}", repr(value.cache_info().currsize)
        elif isinstance(value, FunctionType):
            if own:
                yield from _of_function(name, value)
        elif isinstance(value, type):
            if own:
                yield from _of_class(name, value)
        elif not callable(value) or own:
            yield f"`{name}` (made once, when the file is loaded)", short(value, _SHOWN)


def _of_function(name: str, function: FunctionType) -> Iterator[tuple[str, str]]:
    if function.__defaults__ or function.__kwdefaults__:
        kept = (function.__defaults__, function.__kwdefaults__)
        yield f"a default argument of {name} (made once, when the file is loaded)", short(kept, _SHOWN)
    for key, value in vars(function).items():
        yield f"`{name}.{key}`", short(value, _SHOWN)


def _of_class(name: str, cls: type) -> Iterator[tuple[str, str]]:
    for key, value in vars(cls).items():
        if isinstance(value, FunctionType):
            yield from _of_function(f"{name}.{key}", value)
        elif not key.startswith("__") and not isinstance(value, _PARTS):
            yield f"`{name}.{key}` (which all objects of the class share)", short(value, _SHOWN)


_PARTS: tuple[Any, ...] = (staticmethod, classmethod, property, functools.cached_property)
