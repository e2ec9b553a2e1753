"""Cross-entropy as trainings compute it: what it costs, not its value.

"float32": torch's own, on logits in float32: the logits, their logarithms of probabilities and two gradients exist.
"fused": one kernel reads the logits in half precision, and backward writes their gradient in their place, as
flash-attention's CrossEntropyLoss does. "chunked": the head and the loss take some of the tokens at a time, and compute
the gradients at once, so that all logits never exist together, as Liger-Kernel's does.
"""

from typing import Any

import torch
import torch.nn.functional as F

LOSSES = ("float32", "fused", "chunked")
CHUNKS = 8  # of a micro-batch's tokens


def plain(logits: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy in float32.

    logits: (tokens, vocabulary).
    """
    logits = logits.float()
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64, device=logits.device))


class Fused(torch.autograd.Function):
    """Logits -> a number for each token, in float32; backward writes the logits' gradient in their place."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        ctx.logits = logits
        return logits.amax(-1).float()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return ctx.logits.mul_(gradients[0].unsqueeze(-1))


class Chunked(torch.autograd.Function):
    """(tokens, width) and the head's weight -> the loss; forward computes both gradients, too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        back, of_weight = torch.empty_like(x), torch.zeros_like(weight) if weight.requires_grad else None
        losses = []
        for piece, gradient in zip(x.chunk(CHUNKS), back.chunk(CHUNKS), strict=True):
            logits = F.linear(piece, weight)
            losses.append(logits.amax(-1).float().sum())
            logits.mul_(logits.new_empty(len(logits), 1))  # its gradient, in its place
            torch.mm(logits, weight, out=gradient)
            if of_weight is not None:
                of_weight.addmm_(logits.T, piece)
            del logits
        ctx.save_for_backward(back, of_weight)
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        back, of_weight = ctx.saved_tensors
        return back, of_weight
