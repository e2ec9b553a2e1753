# says: Those are the norms of all parameters together
# thinks: as in gradient clipping: one norm for the model.
"""Exercise e09: LARS."""

import torch


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        held = [w for group in self.param_groups for w in group["params"] if w.grad is not None]
        weights = torch.stack([w.norm() for w in held]).norm()
        gradients = torch.stack([w.grad.norm() for w in held]).norm()
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                below = gradients + wd * weights
                trust = c * weights / below if w.dim() > 1 and weights > 0 and below > 0 else 1.0
                state = self.state[w]
                state["v"] = m * state.get("v", torch.zeros_like(w)) + lr * trust * (w.grad + wd * w)
                w -= state["v"]
