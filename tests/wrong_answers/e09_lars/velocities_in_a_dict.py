# says: Velocities belong into self.state[p]
# thinks: a dict of my own is clearer.
"""Exercise e09: LARS."""

import torch


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)
        self.velocities = {}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                below = w.grad.norm() + group["weight_decay"] * w.norm()
                plain = w.dim() < 2 or w.norm() == 0 or below == 0
                trust = 1.0 if plain else group["trust_coefficient"] * w.norm() / below
                v = group["momentum"] * self.velocities.get(w, 0) + group["lr"] * trust * (w.grad + group["weight_decay"] * w)
                self.velocities[w] = v
                w -= v
