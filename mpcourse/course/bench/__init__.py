"""Measurements, each a row with what was measured on which machine. Timings live here, not in tests."""

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpcourse.course.bench.record import Record

# Each is a function of a module of its own, both called so, with _ for -.
NAMES = (
    *("allreduce", "context", "course", "crossovers", "data-parallel", "experts", "pipeline", "scaling"),
    *("setup", "tensor", "twins", "two-hosts", "virtual", "zero"),
)


def benchmark(name: str) -> "Callable[..., Iterable[Record]]":
    """Import the function that measures and return it. It is imported only now because most import torch.

    name: one of NAMES.
    """
    word = name.replace("-", "_")
    return getattr(importlib.import_module(f"mpcourse.course.bench.{word}"), word)
