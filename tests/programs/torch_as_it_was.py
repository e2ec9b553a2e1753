"""Compare torch before mpcourse is imported, after the import and after boxes: every attribute and every entry.

Prints, as JSON, what differs after the import, in boxes and after them.
"""

import importlib
import inspect
import json
import subprocess
import sys
import threading
import types
from contextlib import suppress

import torch

IN_BOXES = """
from mpcourse.virtual import virtual_gpus
for options in {}, {"as_cuda": True}, {"dry": True}:
    with virtual_gpus(1, **options):
        use("vgpu")
print(*__import__("sys").modules)
"""
TABLES = dict, list, set


def use(device):
    """Train a step."""
    import torch

    layer = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1)
    with torch.autocast("cuda"):
        layer(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    return layer


def snapshot():
    """{where: value}: attributes of torch's modules and classes and of threading.Thread, and entries of tables."""
    found, seen = {}, set()

    def walk(owner, path, values):
        if id(owner) in seen:
            return
        seen.add(id(owner))
        for name, value in values:
            where = f"{path}.{name}" if isinstance(owner, types.ModuleType | type) else f"{path}[{name!r}]"
            found[where] = value
            if isinstance(value, TABLES):
                walk(value, where, entries(value))
            elif isinstance(value, types.ModuleType | type) and of_torch(value):
                walk(value, name_of(value), list(vars(value).items()))

    for module in [module for _, module in sorted(sys.modules.items()) if of_torch(module)]:
        walk(module, module.__name__, list(vars(module).items()))
    walk(threading.Thread, "threading.Thread", list(vars(threading.Thread).items()))
    return found


def entries(table):
    if isinstance(table, dict):
        return list(table.items())
    return list(enumerate(table)) if isinstance(table, list) else [(value, value) for value in table]


def name_of(value):
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else value.__name__


def of_torch(value):
    return f"{name_of(value)}.".startswith("torch.")


def differences(before):
    after, nothing = snapshot(), object()
    return [where for where in sorted(before | after) if before.get(where, nothing) is not after.get(where, nothing)]


if __name__ == "__main__":
    # What another process imports for the same boxes is imported before, so that importing it is no difference.
    program = [sys.executable, "-W", "ignore", "-c", inspect.getsource(use) + IN_BOXES]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    for name in ran.stdout.split():
        if name.startswith("torch."):
            with suppress(ImportError):
                importlib.import_module(name)
    assert not [name for name in sys.modules if name.startswith("mpcourse")]
    use("cpu")  # torch remembers some things when it is first used
    for make in (torch.ones, lambda n: torch.nn.Parameter(torch.ones(n))):
        torch.utils.swap_tensors(make(1), make(1))
    before = snapshot()
    from mpcourse.virtual import virtual_gpus

    found = {"import": differences(before)}
    for name, options in {"box": {}, "box for cuda": {"as_cuda": True}, "dry box": {"dry": True}}.items():
        box = virtual_gpus(1, **options)
        with suppress(ZeroDivisionError), box:
            left = use("vgpu:0")
            found[f"in a {name}"] = differences(before)
            1 / 0  # noqa: B018, a box is also left by an exception
        found[f"after a {name}"] = differences(before)
    with box:
        left.to("cpu")
    found["after a box that was entered again"] = differences(before)
    print(json.dumps(found))
