"""LAMB: Adam's step, with a rate for each layer as in LARS."""

import math

import torch

from mpcourse.large_batch.stepping import Closure, Params, dense_gradients, norm, run_closure


class LAMB(torch.optim.Optimizer):
    """Layer-wise adaptive moments (You et al., "Large Batch Optimization for Deep Learning", 2020, algorithm 2).

    params: tensors, or groups of them, as torch's optimizers take them.
    lr: the rate.
    betas: of the moving averages m and v, each from 0 to below 1.
    eps: added below the fraction.
    weight_decay: a part of w that is added to Adam's step.
    bounds: phi clips ||w|| to these.
    exclude_1d: use a ratio of 1 for parameters with one dimension or none, which gives AdamW's steps. They keep the
    weight decay of their group.

    For each parameter w, with Adam's moments m and v, both corrected for their start at zero: u = m / (sqrt(v) + eps) +
    weight_decay w, w = w - lr phi(||w||) / ||u|| u. The ratio is 1 where it would be 0 or 0/0. Parameters without a
    gradient do not change.
    Raises ValueError for numbers out of range, and in a step for a sparse gradient.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bounds: tuple[float, float] = (0.0, math.inf),
        exclude_1d: bool = True,
    ) -> None:
        if not (lr >= 0 and all(0 <= beta < 1 for beta in betas) and eps >= 0 and weight_decay >= 0):
            raise ValueError(
                "LAMB takes lr >= 0, betas from 0 to below 1, eps >= 0 and weight_decay >= 0: got "
                f"lr={lr}, betas={betas}, eps={eps}, weight_decay={weight_decay}"
            )
        if not 0 <= bounds[0] <= bounds[1]:
            raise ValueError(f"bounds are two norms, the lower first: got {bounds}")
        defaults = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, bounds=bounds, exclude_1d=exclude_1d
        )  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Make one update. closure: computes the loss and its gradients; its result is returned."""
        loss = run_closure(closure)
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w, g in dense_gradients(group):
                state = self.state[w]
                if not state:
                    state["step"] = 0
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(w), torch.zeros_like(w)
                state["step"] += 1
                m = state["exp_avg"].mul_(beta1).add_(g, alpha=1 - beta1)
                v = state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
                below = (v / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
                u = (m / (1 - beta1 ** state["step"])).div_(below).add_(w, alpha=group["weight_decay"])
                if w.dim() > 1 or not group["exclude_1d"]:
                    u.mul_(_ratio(norm(w).clamp(*group["bounds"]), norm(u)))
                w.sub_(u, alpha=group["lr"])
        return loss


def _ratio(weights: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    return torch.where((weights > 0) & (step > 0), weights / step, torch.ones_like(step))
