"""RMSprop warm-up: training begins with RMSprop, and changes gradually to momentum SGD."""

import math

import torch

from mpcourse.large_batch.stepping import Closure, Params, dense_gradients, run_closure


def sgd_share(step: int, center: float, period: float) -> float:
    """Return the share of momentum SGD in an update, 0 to 1; the rest is RMSprop.

    step: its number, from 0.
    center: the update in which half is SGD.
    period: of the change, in updates; with 0 the change is at once, at `center`.

    The share is exponential before the center, exp(2 (step - center) / period) / 2, then a straight line, 1/2 + (step -
    center) / period, which reaches 1 half a period after the center: the shape of the exponential-linear unit. (The
    formula was recalled, and compared to public implementations in Chainer. Some of these have twice the slope in the
    line, which then jumps from 3/2 back to 1; the slope here meets both ends.)
    """
    if step >= center + period / 2:
        return 1.0
    if step >= center:
        return 0.5 + (step - center) / period
    return 0.5 * math.exp(2 * (step - center) / period) if period else 0.0


class RMSpropWarmup(torch.optim.Optimizer):
    """Momentum SGD that begins as RMSprop.

    Source: Akiba, Suzuki and Fukuda, "Extremely Large Minibatch SGD", 2017, section 3, which trains ResNet-50 with
    batches of 32 768.

    params: tensors, or groups of them, as torch's optimizers take them.
    lr: of SGD, in this step.
    center: of the change, in updates; Akiba's was 10 epochs.
    period: of the change, in updates; Akiba's was 5 epochs.
    lr_rmsprop: of RMSprop, which no scheduler changes.
    momentum: from 0 to below 1.
    alpha: of the moving average m, from 0 to below 1.
    eps: added below the fraction.
    weight_decay: a part of w that is added to its gradient.

    For each parameter w, with s = `sgd_share` of its step:
    m = alpha m + (1 - alpha) g^2
    d = momentum d - (s + (1 - s) lr_rmsprop / lr / (sqrt(m) + eps)) g, w = w + lr d.
    Parameters without a gradient do not change.
    Raises ValueError for numbers out of range, and in a step whose lr is 0 or with a sparse gradient.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        center: float,
        period: float,
        lr_rmsprop: float = 3e-4,
        momentum: float = 0.9,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if not (lr > 0 and lr_rmsprop >= 0 and 0 <= momentum < 1 and 0 <= alpha < 1 and eps >= 0 and weight_decay >= 0):
            raise ValueError(
                "RMSpropWarmup takes lr > 0, lr_rmsprop >= 0, momentum and alpha from 0 to below 1, eps and "
                f"weight_decay >= 0: got lr={lr}, lr_rmsprop={lr_rmsprop}, momentum={momentum}, alpha={alpha}, "
                f"eps={eps}, weight_decay={weight_decay}"
            )
        if period < 0:
            raise ValueError(f"a period is 0 updates or more: got {period}")
        defaults = dict(
            lr=lr, center=center, period=period, lr_rmsprop=lr_rmsprop, momentum=momentum, alpha=alpha, eps=eps,
            weight_decay=weight_decay,
        )  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Make one update. closure: computes the loss and its gradients; its result is returned."""
        loss = run_closure(closure)
        for group in self.param_groups:
            if group["lr"] <= 0:
                raise ValueError("RMSprop warm-up divides by the learning rate, which is 0: begin with a positive one")
            for w, g in dense_gradients(group):
                state = self.state[w]
                if not state:
                    state["step"] = 0
                    state["square_avg"], state["momentum_buffer"] = torch.zeros_like(w), torch.zeros_like(w)
                g = g.add(w, alpha=group["weight_decay"])
                share = sgd_share(state["step"], group["center"], group["period"])
                state["step"] += 1
                m = state["square_avg"].mul_(group["alpha"]).addcmul_(g, g, value=1 - group["alpha"])
                part = (1 - share) * group["lr_rmsprop"] / group["lr"]
                factor = m.sqrt().add_(group["eps"]).reciprocal_().mul_(part).add_(share) if part else share
                d = state["momentum_buffer"].mul_(group["momentum"]).sub_(factor * g)
                w.add_(d, alpha=group["lr"])
        return loss
