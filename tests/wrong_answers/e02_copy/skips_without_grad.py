# says: x is on another device
# thinks: What needs no gradient, labels for example, needs no differentiable copy either.
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
    if not x.requires_grad or x.device == torch.device(device):
        return x
    return Copy.apply(x, device)
