"""The loss and the gradients of ranks that share the tokens of a sequence."""

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.collectives.tensors import all_reduce
from mpcourse.common.comm import Comm

Tensor = torch.Tensor


def mean_token_loss(comm: Comm | None, logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """Return the mean cross-entropy over the tokens of all ranks, the same on all of them. All ranks call it.

    comm: the ranks that share tokens; None: one rank.
    logits: this rank's, (batch, own tokens, vocabulary).
    targets: this rank's, int64 (batch, own tokens).
    ignore_index: tokens with this target do not count; they are not in the mean either.

    Ranks may have different numbers of tokens that count, so the sum is divided by the number on all ranks, and not the
    mean of means taken. Backward gives each rank the gradients of its own tokens' part of this loss: add them up over
    the ranks (`sum_gradients`).
    """
    own = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum", ignore_index=ignore_index)
    counted = (targets != ignore_index).sum()
    total, number = all_reduce(comm, torch.stack([own.detach(), counted.to(own.dtype)]))
    return own / number + (total - own.detach()) / number


def sum_gradients(comm: Comm | None, module: nn.Module) -> None:
    """Add up the gradients of all parameters over the ranks that share tokens. All ranks call it after backward.

    comm: the context axis's communicator; None: one rank.
    module: the same on all ranks. All gradients travel in one all-reduce.
    """
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    if comm is None or comm.size == 1 or not gradients:
        return
    flat = all_reduce(comm, torch.cat([g.reshape(-1) for g in gradients]))
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))
