# says: differ in their index
# thinks: device.type tells where a tensor is.
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
    if x.device.type == torch.device(device).type:
        return x
    return Copy.apply(x, device)
