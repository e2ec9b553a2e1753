"""Where a call has left a whole weight: in what autograd keeps, in the learner's file, or on the communicator."""

from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch


def whole_weights(module: ModuleType, comm: Any, y: torch.Tensor | None, nbytes: int) -> str:
    """Where an array or a tensor of so many bytes can be reached from what calls have left; empty: nowhere."""
    places: list[tuple[str, Any]] = []
    if y is not None and y.grad_fn is not None:
        places += [("ctx.saved_tensors", t) for t in y.grad_fn.saved_tensors]  # type: ignore[attr-defined]
        places += [(f"ctx.{name}", value) for name, value in vars(y.grad_fn).items()]
    places += [(f"`{name}` of the file", value) for name, value in vars(module).items() if not name.startswith("__")]
    places += [(f"comm.{name}", value) for name, value in getattr(comm, "__dict__", {}).items() if name != "world"]
    return next((where for where, value in places if _holds(value, nbytes, module.__name__)), "")


def _holds(value: Any, nbytes: int, module: str, depth: int = 5) -> bool:
    """Whether a value is, or contains, an array or a tensor whose memory has so many bytes."""
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().nbytes() >= nbytes
    if isinstance(value, np.ndarray):
        return value.nbytes >= nbytes or (value.base is not None and _holds(value.base, nbytes, module, depth - 1))
    if depth == 0 or isinstance(value, str | bytes | int | float | ModuleType):
        return False
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value.values()]
    elif isinstance(value, list | tuple | set):
        parts = [*value]
    elif isinstance(value, FunctionType):
        parts = [*(value.__defaults__ or ()), *vars(value).values()]
        parts += [cell.cell_contents for cell in value.__closure__ or ()]
    elif getattr(value, "__module__", None) == module or getattr(type(value), "__module__", None) == module:
        parts = [*getattr(value, "__dict__", {}).values()]
    return any(_holds(part, nbytes, module, depth - 1) for part in parts)
