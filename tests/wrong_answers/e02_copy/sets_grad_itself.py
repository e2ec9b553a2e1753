# says: backward returns it
# thinks: A gradient is something that gets stored in x.grad, and that is backward's work.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.x = x
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        ctx.x.grad = gradient.to(ctx.x.device)
        return None, None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
