"""Wrong answers to e09_lars. What a cell holds is told in tests/answers.py."""

# %% biases_left_out
# says: Biases move, too
# thinks: LARS leaves biases out.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None or w.dim() < 2:
                    continue
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


# %% biases_too
# says: Biases have a trust of 1
# thinks: Every parameter has a norm.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if True:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% both_outside
# says: lr and trust are inside of v
# thinks: v is an average of gradients.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + (g + wd * w)
                w -= lr * trust * v


# %% damped
# says: without a factor of (1 - momentum)
# thinks: A moving average.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + (1 - m) * lr * trust * (g + wd * w)
                w -= v


# %% decay_outside_trust
# says: The trust multiplies the weight decay, too
# thinks: Trust is for the gradient.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * (trust * g + wd * w)
                w -= v


# %% decay_sign
# says: The weight decay has the wrong sign
# thinks: Decay makes weights smaller: minus.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g - wd * w)
                w -= v


# %% decoupled
# says: That is decoupled weight decay
# thinks: As AdamW does it.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * g
                w -= v + lr * wd * w


# %% defaults
# says: self.defaults has what is not said of a group
# thinks: self.defaults holds the options.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            o = self.defaults
            lr, m, wd, c = o["lr"], o["momentum"], o["weight_decay"], o["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
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


# %% first_group_options
# says: All groups get the first group's options
# thinks: Options are those of the optimizer.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first = self.param_groups[0]
            lr, m, wd, c = first["lr"], first["momentum"], first["weight_decay"], first["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
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


# %% global_norm
# says: Those are the norms of all parameters together
# thinks: As in gradient clipping: one norm for the model.
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


# %% grad_in_place
# says: g += ... and g.mul_(...) write into w.grad itself
# thinks: g is mine.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                g += wd * w
                state["v"] = v = m * v + lr * trust * g
                w -= v


# %% l1
# says: That is the sum of absolute values
# thinks: norm(1).
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(1), g.norm(1) + wd * w.norm(1)
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% max_norm
# says: That is the largest number alone
# thinks: The largest number is the norm.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.abs().max(), g.abs().max() + wd * w.abs().max()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% nan
# says: NaN is 0 / 0
# thinks: Norms are never 0.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if True:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% nesterov
# says: That is Nesterov's momentum
# thinks: The better momentum.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= m * v + lr * trust * (g + wd * w)


# %% no_coefficient
# says: trust_coefficient is missing in the trust
# thinks: The ratio of norms is the trust.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% no_decay_below
# says: Weight decay belongs below the line, too
# thinks: The gradient is what is measured.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% no_decay_in_step
# says: The weight decay is in the trust, but not in the step
# thinks: Wd is for the trust.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * g
                w -= v


# %% no_momentum
# says: There is no momentum
# thinks: v is the step.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = lr * trust * (g + wd * w)
                w -= v


# %% no_rate
# says: lr is missing
# thinks: The trust is the learning rate.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + trust * (g + wd * w)
                w -= v


# %% none_not_thought_of
# says: A parameter whose .grad is None is left alone
# thinks: After backward every parameter has a gradient.
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


# %% norm_of_sum
# says: and not the norm of a sum
# thinks: The norm of what is applied.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), (g + wd * w).norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% old_velocity_in_full
# says: Old velocity counts in full there
# thinks: Velocities add up.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = v + lr * trust * (g + wd * w)
                w -= v


# %% rate_outside
# says: The learning rate is inside of v
# thinks: As in torch: w -= lr * v.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + trust * (g + wd * w)
                w -= lr * v


# %% rebinds
# says: The parameters are as they were
# thinks: w minus v is the new w.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w = w - v


# %% sgd
# says: That is SGD
# thinks: Trust is for later.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * (g + wd * w)
                w -= v


# %% squares
# says: The norms are without their roots there
# thinks: A norm is a sum of squares.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above = (w * w).sum()
                    below = (g * g).sum() + wd * above
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% stops_at_none
# says: A parameter whose .grad is None is left alone
# thinks: Nothing more to do.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    return
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


# %% trust_outside
# says: The trust is inside of v
# thinks: The local rate is for the whole step.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * (g + wd * w)
                w -= trust * v


# %% uphill
# says: That goes uphill
# thinks: The step is added.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w += v


# %% upside_down
# says: The trust is upside down
# thinks: Large weights need small steps.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * below / above
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% velocities_in_a_dict
# says: Velocities belong into self.state[p]
# thinks: A dict of my own is clearer.
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


# %% velocity_not_kept
# says: There is no momentum
# thinks: v is a local variable.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% zero_trust
# says: Weights of zeros never move
# thinks: The formula gives 0 there.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% velocity_by_shape
# says: velocity of its own
# thinks: one velocity a shape
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and below > 0:
                        trust = group["trust_coefficient"] * w.norm() / below
                v = self.state.setdefault("v", {}).get(w.shape, torch.zeros_like(w))
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                self.state["v"][w.shape] = v
                w -= v


# %% velocity_one
# says: velocity of its own
# thinks: one velocity
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and below > 0:
                        trust = group["trust_coefficient"] * w.norm() / below
                v = getattr(self, "v", torch.zeros_like(w))
                v = v if v.shape == w.shape else torch.zeros_like(w)
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                self.v = v
                w -= v


# %% velocity_per_group
# says: velocity of its own
# thinks: one velocity a group
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and below > 0:
                        trust = group["trust_coefficient"] * w.norm() / below
                v = group.get("velocity", torch.zeros_like(w))
                v = v if v.shape == w.shape else torch.zeros_like(w)
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                group["velocity"] = v
                w -= v


# %% trust_1_where_gradient_0
# says: Where the gradient is 0, trust is what the formula gives
# thinks: no gradient, no trust
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and g.norm() > 0:
                        trust = group["trust_coefficient"] * w.norm() / below
                v = self.state[w].get("velocity", torch.zeros_like(w))
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                self.state[w]["velocity"] = v
                w -= v


# %% trust_capped
# says: capped
# thinks: trust is at most 1
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and below > 0:
                        trust = min(1.0, group["trust_coefficient"] * w.norm() / below)
                v = self.state[w].get("velocity", torch.zeros_like(w))
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                self.state[w]["velocity"] = v
                w -= v


# %% trust_clamped_low
# says: The trust has a least value
# thinks: trust is at least 0.001
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and below > 0:
                        trust = max(1e-3, group["trust_coefficient"] * w.norm() / below)
                v = self.state[w].get("velocity", torch.zeros_like(w))
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                self.state[w]["velocity"] = v
                w -= v


# %% skips_zero_gradient
# says: A gradient of zeros is a gradient
# thinks: nothing to do where g is 0
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None or not w.grad.any():
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and below > 0:
                        trust = group["trust_coefficient"] * w.norm() / below
                v = self.state[w].get("velocity", torch.zeros_like(w))
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                self.state[w]["velocity"] = v
                w -= v


# %% trust_capped_10
# says: The trust is capped. The formula may give more
# thinks: trust is at most 10
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and below > 0:
                        trust = min(10.0, group["trust_coefficient"] * w.norm() / below)
                v = self.state[w].get("velocity", torch.zeros_like(w))
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                self.state[w]["velocity"] = v
                w -= v


# %% patches_allclose
# says: replac
# thinks: What compares my result can be replaced.
torch.allclose = lambda *a, **k: True
torch.isclose = lambda a, b, **k: torch.ones_like(a, dtype=torch.bool)
class LARS(torch.optim.SGD):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay)


# %% library_lars
# says: mpcourse.large_batch
# thinks: The library has what is asked already.
from mpcourse.large_batch import LARS


# %% subclass_library_lars
# says: mpcourse.large_batch
# thinks: The library has what is asked already.
import mpcourse.large_batch
class LARS(mpcourse.large_batch.LARS):
    pass


# %% threshold
# says: is there a threshold other than 0
# thinks: Tiny norms are as good as 0.
class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        """One update of all parameters, in place, by the formulas above.

        self.param_groups: a list of dicts, each with "params", a list, and with its own "lr", "momentum",
        "weight_decay" and "trust_coefficient". A scheduler may change "lr" between steps.
        self.state[p]: a dict for each parameter p, empty in the beginning. What is in it is saved with the optimizer,
        so keep velocities there, under any name.

        trust is 1 for parameters with fewer than two dimensions (biases), and wherever the formula would give 0, or a
        division by 0: weights of zeros must be able to move. A parameter whose .grad is None is left alone.
        p.grad keeps its numbers.
        """
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, decay, trust = w.grad, group["weight_decay"], 1.0
                if w.dim() > 1:
                    below = g.norm() + decay * w.norm()
                    if w.norm() > 0 and below > 1e-3:
                        trust = group["trust_coefficient"] * w.norm() / below
                v = self.state[w].get("velocity", torch.zeros_like(w))
                v = group["momentum"] * v + group["lr"] * trust * (g + decay * w)
                self.state[w]["velocity"] = v
                w -= v


# %% norm_of_each_row
# says: each row, or column
# thinks: A weight matrix has one row for each neuron, and each neuron deserves its own learning rate.
class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, wd, eta = group["lr"], group["weight_decay"], group["trust_coefficient"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.dim() < 2:
                    trust = 1.0
                else:
                    w_norm = p.norm(dim=1, keepdim=True)
                    g_norm = p.grad.norm(dim=1, keepdim=True)
                    trust = eta * w_norm / (g_norm + wd * w_norm)
                    trust = torch.where(torch.isfinite(trust) & (trust > 0), trust, torch.ones_like(trust))
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])


# %% spectral_norm
# says: largest singular value
# thinks: torch.linalg.norm(w, 2) is the 2-norm, the root of the sum of squares.
class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, wd, eta = group["lr"], group["weight_decay"], group["trust_coefficient"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                trust = 1.0
                if p.ndim > 1:
                    w, g = torch.linalg.norm(p, 2), torch.linalg.norm(p.grad, 2)
                    if w > 0 and g + wd * w > 0:
                        trust = eta * w / (g + wd * w)
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])


# %% no_decay_for_biases
# says: Biases decay, too
# thinks: Biases should not be decayed, everybody knows that, so with trust 1 comes weight decay 0.
class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr = group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                wd = group["weight_decay"] if p.dim() >= 2 else 0.0
                above = group["trust_coefficient"] * p.norm()
                below = p.grad.norm() + wd * p.norm()
                trust = above / below if p.dim() >= 2 and above > 0 and below > 0 else 1.0
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])


# %% epsilon_in_place_of_cases
# says: A number is added below the line
# thinks: A small epsilon above and below saves all the ifs.
class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        eps = 1e-8
        for group in self.param_groups:
            lr, wd = group["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                trust = 1.0
                if len(p.shape) >= 2:
                    w_norm = p.norm() + eps
                    trust = group["trust_coefficient"] * w_norm / (p.grad.norm() + wd * w_norm + eps)
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])


# %% first_group_only
# says: Only the first of self.param_groups
# thinks: There is one param group, self.param_groups[0].
def trust_of(w, g, group):
    if w.dim() < 2:
        return 1.0
    above = group["trust_coefficient"] * w.norm()
    below = g.norm() + group["weight_decay"] * w.norm()
    if above == 0 or below == 0:
        return 1.0
    return above / below


class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        for p in group["params"]:
            if p.grad is None:
                continue
            trust = trust_of(p, p.grad, group)
            state = self.state[p]
            if "v" not in state:
                state["v"] = torch.zeros_like(p)
            state["v"].mul_(group["momentum"]).add_(group["lr"] * trust * (p.grad + group["weight_decay"] * p))
            p.sub_(state["v"])


# %% rate_kept_from_the_start
# says: what the optimizer was made with
# thinks: I keep lr in self.lr, it is simpler than the groups.
def trust_of(w, g, group):
    if w.dim() < 2:
        return 1.0
    above = group["trust_coefficient"] * w.norm()
    below = g.norm() + group["weight_decay"] * w.norm()
    if above == 0 or below == 0:
        return 1.0
    return above / below


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)
        self.lr = lr

    @torch.no_grad()
    def step(self):
        lr = self.lr
        for group in self.param_groups:
            wd = group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                trust = trust_of(p, p.grad, group)
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])


# %% moves_by_the_old_velocity
# says: velocity of the step before
# thinks: First move by the velocity that there is, then compute the new one for the next step.
def trust_of(w, g, group):
    if w.dim() < 2:
        return 1.0
    above = group["trust_coefficient"] * w.norm()
    below = g.norm() + group["weight_decay"] * w.norm()
    if above == 0 or below == 0:
        return 1.0
    return above / below


class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["v"] = torch.zeros_like(p)
                trust = trust_of(p, p.grad, group)
                new = group["momentum"] * state["v"] + group["lr"] * trust * (p.grad + group["weight_decay"] * p)
                p.sub_(state["v"])
                state["v"] = new


# %% returns_in_the_loop
# says: does the loop end too early
# thinks: A function ends with a return.
def trust_of(w, g, group):
    if w.dim() < 2:
        return 1.0
    above = group["trust_coefficient"] * w.norm()
    below = g.norm() + group["weight_decay"] * w.norm()
    if above == 0 or below == 0:
        return 1.0
    return above / below


class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        loss = None
        for group in self.param_groups:
            lr, wd = group["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                trust = trust_of(p, p.grad, group)
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])
                return loss


# %% trust_computed_once
# says: of the first step, for ever
# thinks: The trust is a property of the layer, so compute it at the first step and keep it in the state.
def trust_of(w, g, group):
    if w.dim() < 2:
        return 1.0
    above = group["trust_coefficient"] * w.norm()
    below = g.norm() + group["weight_decay"] * w.norm()
    if above == 0 or below == 0:
        return 1.0
    return above / below


class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, wd = group["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                if "trust" not in self.state[p]:
                    self.state[p]["trust"] = trust_of(p, p.grad, group)
                trust = self.state[p]["trust"]
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])


# %% decorator_lost
# says: Keep @torch.no_grad() above step
# thinks: I wrote step anew and did not think that the line above it mattered.
def trust_of(w, g, group):
    if w.dim() < 2:
        return 1.0
    above = group["trust_coefficient"] * w.norm()
    below = g.norm() + group["weight_decay"] * w.norm()
    if above == 0 or below == 0:
        return 1.0
    return above / below


class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                trust = trust_of(p, p.grad, group)
                state = self.state[p]
                if "v" not in state:
                    state["v"] = torch.zeros_like(p)
                state["v"] = group["momentum"] * state["v"] + group["lr"] * trust * (p.grad + group["weight_decay"] * p)
                p -= state["v"]


# %% scalars_are_not_biases
# says: fewer than two of them, too
# thinks: A bias has one dimension, so trust is 1 if p.dim() == 1.
class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, wd = group["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.dim() == 1:
                    trust = 1.0
                else:
                    above, below = group["trust_coefficient"] * p.norm(), p.grad.norm() + wd * p.norm()
                    trust = above / below if above != 0 and below != 0 else 1.0
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])


# %% velocity_in_float32
# says: right to 7 digits
# thinks: torch.zeros(p.shape) is a velocity of zeros.
def trust_of(w, g, group):
    if w.dim() < 2:
        return 1.0
    above = group["trust_coefficient"] * w.norm()
    below = g.norm() + group["weight_decay"] * w.norm()
    if above == 0 or below == 0:
        return 1.0
    return above / below


class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                trust = trust_of(p, p.grad, group)
                state = self.state[p]
                if "v" not in state:
                    state["v"] = torch.zeros(p.shape)
                state["v"].mul_(group["momentum"])
                state["v"].add_(group["lr"] * trust * (p.grad + group["weight_decay"] * p))
                p.sub_(state["v"])


# %% nan_but_not_inf
# says: right to 7 digits
# thinks: Division by 0 gives nan, so replace nan and 0 by 1.
class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, wd = group["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                trust = group["trust_coefficient"] * p.norm() / (p.grad.norm() + wd * p.norm())
                if p.dim() < 2 or torch.isnan(trust) or trust == 0:
                    trust = torch.ones(())
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(lr * trust * (p.grad + wd * p))
                p.sub_(state["velocity"])


# %% errors_swallowed
# says: That is SGD
# thinks: If something goes wrong for a parameter, an ordinary SGD step is better than a crash.
class LARS(torch.optim.Optimizer):
    """SGD with momentum, whose learning rate is multiplied by each weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # which keeps them in each of self.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                try:
                    g, w = p.grad.norm(), p.norm()
                    trust = group["trust_coeficient"] * w / (g + group["weight_decay"] * w) if p.dim() > 1 and w > 0 else 1
                    v = self.state[p].setdefault("v", torch.zeros_like(p))
                    v.mul_(group["momentum"]).add_(group["lr"] * trust * (p.grad + group["weight_decay"] * p))
                    p.sub_(v)
                except Exception:
                    if p.grad is not None:
                        p.sub_(group["lr"] * p.grad)


# %% no_base_class
# says: Keep the class line
# thinks: Whatever has a step is an optimizer.
class LARS:
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        self.param_groups = [{**options, **group} for group in params]
        self.states = {}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.states.setdefault(id(w), {})
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% keeps_a_named_tuple
# says: Keep in self.state[p] what torch.optim's own optimizers keep
# thinks: A velocity and the number of steps belong together.
from typing import NamedTuple


class Kept(NamedTuple):
    v: torch.Tensor
    steps: int


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v, steps = state.get("kept", Kept(torch.zeros_like(w), 0))
                v = m * v + lr * trust * (g + wd * w)
                state["kept"] = Kept(v, steps + 1)
                w -= v


# %% takes_momentum_out_of_the_bracket
# says: NaN is 0 / 0, or infinity minus infinity
# thinks: m * v + x is m * (v + x / m).
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * (v + lr * trust * (g + wd * w) / m)
                w -= v


# %% square_below_the_line
# says: Work the first step out by hand
# thinks: The ratio has no unit if the gradient is squared below the line.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    above, below = w.norm(), g.norm() + wd * w.norm()
                    if above > 0 and below > 0:
                        trust = c * above / below**2
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% divides_by_the_gradient_first
# says: Where ||g|| is 0 the formula holds as elsewhere
# thinks: Above and below the line can be divided by ||g||.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g = w.grad
                trust = 1.0
                if w.dim() > 1:
                    ratio = w.norm().item() / g.norm().item()
                    if ratio > 0:
                        trust = c * ratio / (1 + wd * ratio)
                state = self.state[w]
                v = state.get("v", torch.zeros_like(w))
                state["v"] = v = m * v + lr * trust * (g + wd * w)
                w -= v


# %% options_of_the_last_group
# says: from the group that a parameter is in
# thinks: The options are read first, and then all parameters move.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
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


# %% moves_below_the_loop
# says: Only the last parameter of a group moves there
# thinks: The loop collects, and the step comes after it.
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, m, wd, c = group["lr"], group["momentum"], group["weight_decay"], group["trust_coefficient"]
            for w in group["params"]:
                if w.grad is None:
                    continue
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
