"""Exercise e09: LARS."""

import torch


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in filter(lambda w: w.grad is not None, group["params"]):
                step = group["lr"] * self.trust(w, **group) * (w.grad + group["weight_decay"] * w)
                if group["momentum"]:
                    old = self.state[w].get("old")
                    step = step if old is None else step + group["momentum"] * old
                    self.state[w]["old"] = step.clone()
                w.copy_(w - step)

    def trust(self, w, weight_decay, trust_coefficient, **_):
        if w.dim() < 2:
            return 1.0
        value = trust_coefficient / (w.grad.norm() / w.norm() + weight_decay)
        return value.item() if value > 0 and value.isfinite() else 1.0
