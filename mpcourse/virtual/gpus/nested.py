"""The tensors among the arguments of a call."""

from typing import Any

import torch

Tensor = torch.Tensor


def tensors_in(values: Any) -> list[Tensor]:
    """Return the tensors among `values`, and in lists and tuples among them."""
    tensors = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += tensors_in(value)
    return tensors
