"""Where calls have left a large array: in what autograd keeps, in the learner's file, or on the communicator."""

import gc
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

Large = Callable[[int], bool]  # whether so many bytes are what is looked for


def kept_array(module: ModuleType, comm: Any, large: Large, y: torch.Tensor | None = None) -> str:
    """Where an array or a tensor whose memory is `large` can be reached from what calls have left; empty: nowhere.

    y: what forward of a torch.autograd.Function returned; its ctx and its attributes are looked at, too.
    """
    places: list[tuple[str, Any]] = []
    if y is not None:
        places += [(f"y.{name}", value) for name, value in vars(y).items()]
    if y is not None and y.grad_fn is not None:
        places += [("ctx.saved_tensors", t) for t in y.grad_fn.saved_tensors]  # type: ignore[attr-defined]
        places += [(f"ctx.{name}", value) for name, value in vars(y.grad_fn).items()]
    places += [(f"`{name}` of the file", value) for name, value in vars(module).items() if not name.startswith("__")]
    places += [(f"comm.{name}", value) for name, value in getattr(comm, "__dict__", {}).items() if name != "world"]
    return next((where for where, value in places if _holds(value, large, module.__name__)), "")


def _holds(value: Any, large: Large, module: str, depth: int = 5) -> bool:
    """Whether a value is, or contains, an array or a tensor whose memory is large."""
    if isinstance(value, torch.Tensor):
        return large(value.untyped_storage().nbytes())
    if isinstance(value, np.ndarray):
        return large(value.nbytes) or (value.base is not None and _holds(value.base, large, module, depth - 1))
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
    elif hasattr(value, "cache_info") or type(value).__name__ == "_lru_list_elem":  # of functools.lru_cache
        parts = gc.get_referents(value)
    elif getattr(value, "__module__", None) == module or getattr(type(value), "__module__", None) == module:
        parts = [*getattr(value, "__dict__", {}).values()]
    return any(_holds(part, large, module, depth - 1) for part in parts)
