"""The loss of ranks that share the tokens of a sequence."""

import torch
import torch.nn.functional as F

from mpcourse.collectives.tensors import all_reduce
from mpcourse.common.comm import Comm

Tensor = torch.Tensor


def mean_token_loss(comm: Comm | None, logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """Return the mean cross-entropy over the tokens of all ranks, the same on all of them. All ranks call it.

    comm: the ranks that share tokens; None: one rank.
    logits: this rank's, (batch, own tokens, vocabulary).
    targets: this rank's, int64 (batch, own tokens).
    ignore_index: tokens with this target do not count; they are not in the mean either.

    Ranks may have different numbers of tokens that count, so the sum over all ranks is divided by the number on all
    ranks: the mean of the ranks' means would be different. Backward gives each rank the gradients of its own tokens'
    part of this loss: add them up over the ranks (`sum_gradients`).
    """
    own = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum", ignore_index=ignore_index)
    counted = (targets != ignore_index).sum()
    total, number = all_reduce(comm, torch.stack([own.detach(), counted.to(own.dtype)]))
    return own / number + (total - own.detach()) / number
