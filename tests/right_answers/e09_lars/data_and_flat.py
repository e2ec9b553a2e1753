"""Exercise e09: LARS."""

import math

import torch


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            self._group(group, [w for w in group["params"] if w.grad is not None])

    def _group(self, group, held):
        for w in held:
            flat, g = w.data.flatten(), w.grad.data.flatten()
            length = math.sqrt(flat @ flat)
            below = math.sqrt(g @ g) + group["weight_decay"] * length
            trust = 1.0
            if len(w.shape) > 1 and length * below != 0.0:
                trust = group["trust_coefficient"] * length / below
            change = (g + group["weight_decay"] * flat) * (trust * group["lr"])
            if "v" in self.state[w]:
                change = change + self.state[w]["v"] * group["momentum"]
            self.state[w]["v"] = change
            w.data = (flat - change).reshape(w.shape)
