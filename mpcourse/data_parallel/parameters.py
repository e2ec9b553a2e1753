"""The tensors of a model, by name."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

Model = (
    nn.Module | Mapping[str, torch.Tensor] | Iterable[torch.Tensor]
)  # what the functions of this package take as a model


def all_tensors(model: Model) -> dict[str, torch.Tensor]:
    """Return all parameters of a model by name, including frozen ones, and a module's buffers.

    model: a module, or its tensors, by name or in a list.
    """
    if isinstance(model, nn.Module):
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if isinstance(model, Mapping):
        return dict(model)
    return {f"parameter {i}": p for i, p in enumerate(model)}


def trained_parameters(model: Model) -> dict[str, torch.Tensor]:
    """Return the parameters of a model that get gradients, by name, each once.

    model: a module, or its parameters, by name or in a list.
    Raises ValueError for a sparse gradient.
    """
    parameters = dict(model.named_parameters()) if isinstance(model, nn.Module) else all_tensors(model)
    for name, p in parameters.items():
        check_dense(name, p)
    return {name: p for name, p in parameters.items() if p.requires_grad}


def check_dense(name: str, p: torch.Tensor) -> None:
    """Raise ValueError for a sparse gradient.

    name: of the parameter.
    p: the parameter.
    """
    if p.grad is not None and p.grad.is_sparse:
        raise ValueError(f"the gradient of {name!r} is sparse, and only dense ones are summed: sparse=False")


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]) -> dict[str, torch.Tensor]:
    """Return all numbers that decide an optimizer's next update, except gradients: its groups' options, its state.

    optimizer: any of torch's.
    names: of its parameters.
    """
    found: dict[str, torch.Tensor] = {}
    for i, group in enumerate(optimizer.param_groups):
        for option, value in group.items():
            if isinstance(value, int | float | torch.Tensor) or option == "betas":
                found[f"{option} of group {i}"] = torch.as_tensor(value, dtype=torch.float64)
    for p, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, int | float | torch.Tensor):
                found[f"{key} of {names.get(p, 'a parameter')}"] = torch.as_tensor(value)
    return found


def same_tensors(some: Iterable[torch.Tensor], others: Iterable[torch.Tensor]) -> bool:
    """Return whether these are the same tensors in the same order, not only equal ones.

    some, others: tensors of any kind.
    """
    return list(map(id, some)) == list(map(id, others))
