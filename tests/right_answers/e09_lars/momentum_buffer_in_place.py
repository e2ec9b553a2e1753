"""Exercise e09: LARS."""

import torch


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            decay = group["weight_decay"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                d = w.grad.add(w, alpha=decay)
                if w.ndim >= 2:
                    n = torch.linalg.vector_norm(w)
                    below = torch.linalg.vector_norm(w.grad) + decay * n
                    d.mul_(torch.where((n > 0) & (below > 0), group["trust_coefficient"] * n / below, 1.0))
                buffer = self.state[w].setdefault("momentum_buffer", torch.zeros_like(w))
                buffer.mul_(group["momentum"]).add_(d, alpha=group["lr"])
                w.sub_(buffer)
