"""Unusual right answers to e09_lars. What a cell holds is told in tests/answers.py."""

# %% data_and_flat
# thinks: It works on flat tensors and gives w.data a new one, which leaves w the same parameter; a missing velocity
#   counts as 0.
import math


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


# %% foreach
# thinks: It updates all parameters of a group by foreach calls, which do the same sums for many tensors at once.
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


# %% momentum_buffer_in_place
# thinks: It changes d in place, which is a new tensor and not the gradient, and picks the trust by torch.where.
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


# %% no_momentum_special_case
# thinks: Without momentum v is the step itself, so nothing is kept; the trust is the formula with both sides divided
#   by ||w||.
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
