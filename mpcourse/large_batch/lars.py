"""LARS: a learning rate for each layer, so that no layer's step is large compared with its weights."""

import torch

from mpcourse.large_batch.stepping import Closure, Params, dense_gradients, norm, run_closure


def trust_ratio(
    w: torch.Tensor, gradient: torch.Tensor, weight_decay: float = 0.0, coefficient: float = 0.001
) -> torch.Tensor:
    """Return coefficient ||w|| / (||g|| + weight_decay ||w||), a tensor of no dimensions; 1 where that is 0 or 0/0.

    w: a parameter of any shape.
    gradient: of w's shape; g in the formula.
    weight_decay: a part of w that is added to its gradient.
    coefficient: length of a step of rate 1, as a part of ||w||.

    Weights of zero would never move with a trust of 0. (You, Gitman and Ginsburg 2017, equation 6)
    """
    weights = norm(w)
    below = norm(gradient) + weight_decay * weights
    return torch.where((weights > 0) & (below > 0), coefficient * weights / below, torch.ones_like(below))


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling, for large batches.

    Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017, algorithm 1.

    params: tensors, or groups of them, as torch's optimizers take them.
    lr: the rate.
    momentum: from 0 to below 1.
    weight_decay: a part of w that is added to its gradient.
    trust_coefficient: length of a step of rate 1, as a part of ||w||.
    exclude_1d: use a trust of 1 for parameters with one dimension or none (biases, the weights of normalisations), as
    is usual; the paper does not say. They keep the weight decay of their group.

    For each parameter w: v = momentum v + lr trust (g + weight_decay w), w = w - v, with `trust_ratio` as trust. The
    rate is inside v, unlike in torch's SGD: when it falls, earlier steps keep their size. Parameters without a gradient
    do not change.
    Raises ValueError for numbers out of range, and in a step for a sparse gradient.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        exclude_1d: bool = True,
    ) -> None:
        if not (lr >= 0 and 0 <= momentum < 1 and weight_decay >= 0 and trust_coefficient > 0):
            raise ValueError(
                "LARS takes lr >= 0, momentum from 0 to below 1, weight_decay >= 0 and trust_coefficient > 0: got "
                f"lr={lr}, momentum={momentum}, weight_decay={weight_decay}, trust_coefficient={trust_coefficient}"
            )
        defaults = dict(
            lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient,
            exclude_1d=exclude_1d,
        )  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Make one update. closure: computes the loss and its gradients; its result is returned."""
        loss = run_closure(closure)
        for group in self.param_groups:
            for w, g in dense_gradients(group):
                trust: torch.Tensor | float = 1.0
                if w.dim() > 1 or not group["exclude_1d"]:
                    trust = trust_ratio(w, g, group["weight_decay"], group["trust_coefficient"])
                change = g.add(w, alpha=group["weight_decay"]).mul_(group["lr"] * trust)
                if group["momentum"]:
                    state = self.state[w]
                    v = state.get("momentum_buffer")
                    change = state["momentum_buffer"] = change if v is None else v.mul_(group["momentum"]).add_(change)
                w.sub_(change)
        return loss
