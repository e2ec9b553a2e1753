# right: The backward calls copy itself, so the way back is differentiable too.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.origin = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return copy(gradient, ctx.origin), None


def copy(x, device):
    target = torch.device(device)
    if x.device == target:
        return x
    return Copy.apply(x, target)
