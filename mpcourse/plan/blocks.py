"""Where a model can be cut: its blocks, found in the tree of its modules."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from torch import nn

from mpcourse.common.errors import UserError

_LISTS = (nn.Sequential, nn.ModuleList)


def find_blocks(model: nn.Module, named: Sequence[str] = ()) -> list[str]:
    """Return the names of a model's blocks, in the order of its tree.

    model: any.
    named: names of blocks, or of lists of blocks, that a user gives; empty: they are found.

    The children of an nn.Sequential are blocks. In any other model, a list (nn.ModuleList or nn.Sequential) whose
    children repeat a module that has children of its own holds blocks, as `layers` of a decoder and `layer1` of a
    ResNet do. Where there is no such list, the children of every nn.Sequential are blocks. A model without any has no
    blocks, and cannot be cut.
    Raises UserError for a name that the model does not have.
    """
    if named:
        return [block for name in named for block in _elements(name, _module(model, name))]
    if isinstance(model, nn.Sequential):
        return [name for name, _ in model.named_children()]
    return list(_lists(model, "", _repeats)) or list(_lists(model, "", lambda m: isinstance(m, nn.Sequential)))


def _lists(module: nn.Module, name: str, holds_blocks: Callable[[nn.Module], bool]) -> Iterator[str]:
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}" if name else child_name
        if holds_blocks(child):
            yield from _elements(full, child)
        else:
            yield from _lists(child, full, holds_blocks)


def _elements(name: str, module: nn.Module) -> Iterator[str]:
    """Yield the names of what a list holds, and for lists in it of what these hold."""
    if not isinstance(module, _LISTS):
        yield name
        return
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}"
        yield from _elements(full, child) if _repeats(child) else (full,)


def _repeats(module: nn.Module) -> bool:
    if not isinstance(module, _LISTS):
        return False
    composite = Counter(type(m) for m in module.children() if any(True for _ in m.children()))
    return max(composite.values(), default=0) > 1


def _module(model: nn.Module, name: str) -> nn.Module:
    modules = dict(model.named_modules())
    if name in modules and name:
        return modules[name]
    near = difflib.get_close_matches(name, list(modules), 1, 0.5) or [n for n, _ in model.named_children()]
    raise UserError(f"the model has no module {name!r}: try {', '.join(near)}")
