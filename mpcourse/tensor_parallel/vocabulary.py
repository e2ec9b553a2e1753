"""A vocabulary whose tokens are shared by the ranks: their embedding, their logits, and the loss without a gather.

The number of tokens on each rank differs by one at most, so ranks need not divide the vocabulary. (Megatron-LM pads it
instead.)
"""

from typing import Any

import torch
import torch.nn.functional as F

from mpcourse.collectives.tensors import all_reduce
from mpcourse.common.comm import Comm
from mpcourse.tensor_parallel.mappings import scatter_out, sum_out
from mpcourse.tensor_parallel.parts import ParallelLayer, own_part

Tensor = torch.Tensor


class VocabularyEmbedding(ParallelLayer):
    """Vectors of tokens: int64 (length, batch), the same on all ranks, to (length, batch, width).

    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    weight: (vocabulary, width), the same on all ranks; this rank's part is copied.
    sequence: returns this rank's rows, (length / p, batch, width).

    A rank has no vector for other ranks' tokens, and gives zeros for them. The sum over all ranks is an all-reduce;
    with `sequence` a reduce-scatter.
    Raises IndexError, on all ranks, for a token that is not in the vocabulary.
    """

    weight: Tensor

    def __init__(self, comm: Comm | None, weight: Tensor, sequence: bool = False) -> None:
        super().__init__(comm)
        self.sequence = sequence and comm is not None and comm.size > 1
        own = own_part(comm, len(weight))
        self.split_parameter("weight", weight, 0, own)
        self.first, self.vocabulary = int(own[0]), len(weight)

    def forward(self, tokens: Tensor) -> Tensor:
        check_tokens(tokens, self.vocabulary)
        local, foreign = _local(tokens, self.first, len(self.weight))
        partial = F.embedding(local, self.weight).masked_fill(foreign[..., None], 0)
        return scatter_out(self.comm, partial) if self.sequence else sum_out(self.comm, partial)


class _CrossEntropy(torch.autograd.Function):
    """-log softmax at the target, of logits (n, part of the vocabulary) and targets (n,), as n numbers on all ranks."""

    @staticmethod
    def forward(ctx: Any, comm: Comm | None, logits: Tensor, targets: Tensor, first: int) -> Tensor:
        largest = all_reduce(comm, logits.amax(1), torch.maximum)
        shifted = logits - largest[:, None]
        local, foreign = _local(targets, first, logits.shape[1])
        of_target = shifted.gather(1, local[:, None])[:, 0].masked_fill(foreign, 0)  # one rank has it
        exponentials = shifted.exp_()
        total, of_target = all_reduce(comm, torch.stack([exponentials.sum(1), of_target]))
        ctx.save_for_backward(exponentials.div_(total[:, None]), local, foreign)
        return total.log() - of_target

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        probabilities, local, foreign = ctx.saved_tensors
        of_logits = probabilities.clone()
        of_logits.scatter_add_(1, local[:, None], foreign.to(of_logits.dtype)[:, None] - 1)  # -1 at the target
        return None, of_logits.mul_(gradients[0][:, None]), None, None


def vocabulary_loss(
    comm: Comm | None, logits: Tensor, targets: Tensor, vocabulary: int, ignore_index: int = -100
) -> Tensor:
    """Return the mean cross-entropy of the targets, the same on all ranks. All ranks call it.

    comm: the tensor axis's communicator; None: one rank.
    logits: (..., this rank's part of the vocabulary), as a column-parallel layer returns them. The loss is computed in
    float32 at least.
    targets: int64 (...), the same on all ranks.
    vocabulary: number of tokens on all ranks together.
    ignore_index: positions with this target do not count; they are not in the mean either.

    Logits stay where they are. Two all-reduces send three numbers a position: the largest logit, the sum of the
    exponentials, and the target's logit. Backward sends nothing.
    Raises IndexError, on all ranks, for a target that is not in the vocabulary.
    """
    flat, at = logits.flatten(0, -2), targets.flatten()
    counted = at != ignore_index
    at = at.masked_fill(~counted, 0)
    check_tokens(at, vocabulary)
    own = own_part(comm, vocabulary)
    if flat.shape[1] != len(own):
        raise ValueError(f"this rank has {len(own)} tokens of the vocabulary, but logits for {flat.shape[1]}")
    wide = flat if flat.dtype == torch.float64 else flat.float()
    each = _CrossEntropy.apply(comm, wide, at, int(own[0]))
    return each.masked_fill(~counted, 0).sum() / counted.sum()


def _local(tokens: Tensor, first: int, own: int) -> tuple[Tensor, Tensor]:
    """Return tokens' numbers on this rank (0 for those it lacks), and which ones it lacks."""
    local = tokens - first
    foreign = (local < 0) | (local >= own)
    return local.masked_fill(foreign, 0), foreign


def check_tokens(tokens: Tensor, vocabulary: int) -> None:
    """Raise IndexError for a token that is not in the vocabulary. On a GPU, the host would have to wait, so it passes.

    tokens: int64.
    vocabulary: number of tokens.
    """
    if tokens.device.type == "cpu" and tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        wrong = tokens[(tokens < 0) | (tokens >= vocabulary)][0]
        raise IndexError(f"token {int(wrong)} is not in a vocabulary of {vocabulary}")
