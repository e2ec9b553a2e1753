"""Exercise e09: LARS, a learning rate for each layer.

With large batches and large learning rates, one layer's step may be larger than its weights, while another layer hardly
changes. Layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017) makes each layer's step proportional to the
norm of its weights. For a weight w with gradient g and velocity v (which is 0 at first):

    trust = trust_coefficient * ||w|| / (||g|| + weight_decay * ||w||)
    v     = momentum * v + lr * trust * (g + weight_decay * w)
    w     = w - v

||w|| is the square root of the sum of the squares of all numbers in w. Each w has its own trust.

Check it with `mpcourse check e09_lars`. Stuck? `mpcourse hint e09_lars`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch


class LARS(torch.optim.Optimizer):
    """SGD with momentum that multiplies the learning rate of each weight by the weight's own trust."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        super().__init__(params, options)  # keeps the options in each of self.param_groups

    @torch.no_grad()
    def step(self):
        """Update all parameters once, in place, by the formulas above.

        self.param_groups: a list of dicts. Each has "params", a list, and its own "lr", "momentum", "weight_decay" and
        "trust_coefficient". A scheduler may change "lr" between steps.
        self.state[p]: a dict for each parameter p, empty at first. Its contents are saved with the optimizer, so keep
        velocities there, under any name.

        trust is 1 for parameters with fewer than two dimensions (biases), and wherever the formula would give 0 or
        divide by 0, because weights of zeros must be able to change. A parameter whose .grad is None stays as it is.
        p.grad is not changed.
        """
        raise NotImplementedError("e09_lars: compute the trust and the velocity of each parameter of each group, and update it")
