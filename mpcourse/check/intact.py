"""What the checks rely on, as it was before an answer was loaded: an answer that replaces it is told so."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

# Modules with what checks call; of the checker and the library itself all.
_RELIED_ON = (
    "builtins",
    "json",
    "hmac",
    "math",
    "numpy",
    "numpy.linalg",
    "torch",
    "torch.nn.functional",
    "torch.autograd",
    "torch.linalg",
)
_CLASSES = ("torch:Tensor", "torch.nn:Module", "torch.nn:Linear", "torch.optim:Optimizer")


def guard() -> Callable[[], str]:
    """A function that names the first thing which has been replaced since now, and puts all back; else "".

    It uses nothing that could have been replaced itself.
    """
    relied_on = list(_relied_on())
    dicts = [(owner, vars(owner), values) for owner, values in relied_on]
    put_back, name_of, by_a_box = setattr, _name_of, _by_a_box

    def replaced() -> str:
        first = ""
        for owner, now, values in dicts:
            for name, value in values.items():
                if (name not in now or now[name] is not value) and not by_a_box(owner, now.get(name)):
                    put_back(owner, name, value)
                    first = first or name_of(owner, name)
        return first

    return replaced


def _relied_on() -> Iterator[tuple[Any, dict[str, Any]]]:
    """Modules and classes, each with the functions, classes and modules that it has now."""
    modules = [sys.modules[name] for name in _RELIED_ON if name in sys.modules]
    modules += [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "mpcourse" and m is not None]
    for module in modules:
        own = module.__name__.startswith("mpcourse")  # of torch public names alone: a box replaces some of its own
        public = {name: value for name, value in vars(module).items() if own or not name.startswith("_")}
        yield module, {name: value for name, value in public.items() if callable(value)}
        if own:
            for cls in [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]:
                yield cls, _methods(cls)
    for name in _CLASSES:
        module_name, _, class_name = name.partition(":")
        if module_name in sys.modules:
            cls = getattr(sys.modules[module_name], class_name)
            yield cls, _methods(cls)


def _by_a_box(owner: Any, value: Any) -> bool:
    """Whether a box of virtual GPUs has put `value` into torch, as it does while it is entered."""
    of = owner.__module__ if isinstance(owner, type) else owner.__name__
    return of.partition(".")[0] == "torch" and str(getattr(value, "__module__", "")).startswith(("mpcourse.", "torch"))


def _methods(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if callable(value) or isinstance(value, staticmethod | classmethod | property)
    }


def _name_of(owner: Any, name: str) -> str:
    if not isinstance(owner, type):
        return f"{owner.__name__}.{name}" if owner.__name__ != "builtins" else name
    return f"{owner.__module__}.{owner.__qualname__}.{name}"
