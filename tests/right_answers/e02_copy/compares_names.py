# right: Compares the devices' names, of which both sides are normalized.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.back = str(x.device)
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(device=ctx.back), None


def copy(x, device):
    if str(x.device) != str(torch.device(device)):
        return Copy.apply(x, str(device))
    return x
