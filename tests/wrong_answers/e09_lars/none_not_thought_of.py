# says: A parameter whose .grad is None is left alone
# thinks: after backward every parameter has a gradient.
"""Exercise e09: LARS."""

import torch


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v
