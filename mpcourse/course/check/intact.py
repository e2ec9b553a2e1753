"""What the checks rely on, as it was before an answer was loaded: an answer that replaces it is told so."""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from mpcourse.course.check.dict_version import version_of

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
_CLASSES = {"torch": ("Tensor",), "torch.nn": ("Module", "Linear"), "torch.optim": ("Optimizer",)}


class Watched(NamedTuple):
    """owner: a module or class. now: its namespace. had: the functions and classes in it that the checks rely on."""

    owner: Any
    now: Mapping[str, Any]
    had: dict[str, Any]


class Part(NamedTuple):
    """What is watched, and the version of each one's namespace: as `version_of` has it, and as it was remembered.

    They are apart, for to look at numbers, and at nothing else, takes a tenth of the time in a process that was just
    forked. They are tuples, for nobody can change them.
    """

    watched: tuple[Watched, ...] = ()
    versions: tuple[Sequence[float], ...] = ()
    remembered: tuple[float, ...] = ()

    def and_(self, watched: list[Watched]) -> "Part":
        versions = [version_of(each.now) for each in watched]
        return Part(
            (*self.watched, *watched), (*self.versions, *versions), (*self.remembered, *(v[0] for v in versions))
        )


_seen: set[str] = set()  # names of modules
_parts = [Part(), Part()]  # of other modules, and of the course's own


def remember() -> None:
    """Note what all modules have now that have been imported since the last time.

    In a process that was just forked that takes 0.03 s, most of it for pages of memory that are its own from then on. A
    fork server does it before it forks.
    """
    found: list[list[Watched]] = [[], []]
    # The last come first, for whatever is looked at has its reference counted, and so its page of memory copied.
    for name in list(itertools.takewhile(lambda name: name not in _seen, reversed(sys.modules))):
        _seen.add(name)
        course = name.partition(".")[0] == "mpcourse"  # the place among _parts, too
        if (course or name in _RELIED_ON or name in _CLASSES) and (module := sys.modules[name]) is not None:
            found[course] += _of(name, module)
    for place, watched in enumerate(found):
        if watched:
            _parts[place] = _parts[place].and_(watched)


def guard() -> Callable[[bool], str]:
    """A function that names the first thing which has been replaced since it was remembered, and puts all back; else
    "". What has not been remembered is remembered now.

    Its argument is whether it looks at the course's own modules, too, which have most of the values. It uses nothing
    that could have been replaced itself.
    """
    remember()
    put_back, name_of, by_a_box, number = setattr, _name_of, _by_a_box, enumerate
    parts = [(part, list(part.remembered)) for part in _parts]

    def replaced(course_too: bool) -> str:
        first = ""
        for part, intact in parts if course_too else parts[:1]:
            for i, version in number(part.versions):
                if version[0] == intact[i]:
                    continue
                intact[i] = version[0]
                owner, now, had = part.watched[i]
                for name, value in had.items():
                    if (name not in now or now[name] is not value) and not by_a_box(owner, now.get(name)):
                        put_back(owner, name, value)
                        first = first or name_of(owner, name)
        return first

    return replaced


def _of(name: str, module: ModuleType) -> Iterator[Watched]:
    """What the checks rely on of a module, and of its classes."""
    course, of_module = name.partition(".")[0] == "mpcourse", vars(module)
    if course or name in _RELIED_ON:  # public names of others: a box replaces some of torch's own
        had = {n: v for n, v in of_module.items() if (course or not n.startswith("_")) and callable(v)}
        yield Watched(module, of_module, had)
    if course:
        classes = [c for c in of_module.values() if isinstance(c, type) and c.__module__ == name]
    else:
        classes = [getattr(module, class_name) for class_name in _CLASSES.get(name, ())]
    for cls in classes:
        yield Watched(cls, vars(cls), _methods(cls))


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
