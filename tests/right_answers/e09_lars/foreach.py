"""Exercise e09: LARS."""

import torch


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            ws = [w for w in group["params"] if w.grad is not None]
            if not ws:
                continue
            gs = [w.grad for w in ws]
            lengths, slopes = torch._foreach_norm(ws), torch._foreach_norm(gs)
            steps = torch._foreach_add(gs, ws, alpha=group["weight_decay"])
            for w, step, length, slope in zip(ws, steps, lengths, slopes):
                below = slope + group["weight_decay"] * length
                trust = group["trust_coefficient"] * length / below if w.dim() > 1 and length and below else 1.0
                step *= group["lr"] * trust
            for w in ws:
                self.state[w].setdefault("velocity", torch.zeros_like(w))
            vs = [self.state[w]["velocity"] for w in ws]
            torch._foreach_mul_(vs, group["momentum"])
            torch._foreach_add_(vs, steps)
            torch._foreach_sub_(ws, vs)
