# says: starts a graph of its own
# thinks: The result needs a gradient, so it has to be told so with requires_grad_().
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    if x.device == device:
        return x
    y = Copy.apply(x.detach(), device)
    y.requires_grad_()
    return y
