# says: None for the device
# thinks: There is one tensor, so backward returns one gradient.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source)


def copy(x, device):
    device = torch.device(device)
    if x.device == device:
        return x
    return Copy.apply(x, device)
