"""What one training step holds in memory, measured by kind."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Saved:
    """One tensor that autograd keeps for the backward pass.

    shape: of the tensor.
    dtype: of the tensor.
    nbytes: of its storage.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int


@dataclass
class StepMemory:
    """What a step holds, in bytes by kind.

    parameters: all of the model's.
    gradients: of the parameters.
    optimizer: its state.
    activations: what autograd keeps for backward.
    saved: the tensors that make up the activations.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    saved: list[Saved] = field(default_factory=list)

    def as_dict(self) -> dict[str, int]:
        """Return the four kinds, without the list of saved tensors."""
        return {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "activations": self.activations,
        }


def measure_step(
    model: nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy,
) -> StepMemory:
    """Train a model for one step and count what torch holds at its fullest.

    model: trained by that one step; pass a copy if that matters.
    inputs: a batch, as the model takes it.
    labels: as `loss` takes them.
    optimizer: of the model's parameters.
    loss: of (output, labels); returns a scalar.

    Activations are the storages that autograd saves in the forward pass. Each counts once; parameters and buffers do
    not count (Griewank & Walther, "Evaluating Derivatives", ch. 12: reverse mode must remember the forward pass).
    """
    measured = StepMemory()
    known = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    alive = []  # the address of a freed storage may be used again, so keep each saved tensor until all are counted

    def count(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            known.add(storage.data_ptr())
            alive.append(tensor)
            measured.saved.append(Saved(tuple(tensor.shape), tensor.dtype, storage.nbytes()))
        return tensor

    optimizer.zero_grad(set_to_none=True)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        value = loss(model(inputs), labels)
    value.backward()
    optimizer.step()
    measured.parameters = _nbytes(model.parameters())
    measured.gradients = _nbytes(p.grad for p in model.parameters() if p.grad is not None)
    measured.optimizer = _nbytes(
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    )
    measured.activations = sum(saved.nbytes for saved in measured.saved)
    return measured


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of all storages behind `tensors`. A storage that several share (tied weights) counts once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
